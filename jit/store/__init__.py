"""The store of compiled kernels on disk.

It lives in Triton's cache folder and obeys Triton's settings (`TRITON_CACHE_DIR`,
`knobs.cache.manager_class`, remote caches). An entry is one folder, published whole by a rename, with a
record that says what it was keyed by and holds a checksum of every file; it contains no path and can be
moved. What cannot be verified when it is read is a miss with a warning. Where nothing can be written, results
stay in memory, with a warning.

For users: `entries()` lists what is stored, `explain(entry)` says what one was keyed by, `clear(...)`
deletes, and `set_limit(bytes)` bounds the size. For the compiler: `find` and `publish` (`lookup.py`).
"""

from .inventory import StoredKernel, clear, entries, explain, set_limit
from .lookup import Entry, find, lock_path, publish
from .warn import StoreWarning

__all__ = [
    "Entry",
    "StoreWarning",
    "StoredKernel",
    "clear",
    "entries",
    "explain",
    "find",
    "lock_path",
    "publish",
    "set_limit",
]

"""What a kernel writes, without compiling it: its frontend's IR is enough.

`written_by(src, target, options)` runs the frontend and the analysis of its IR, or fetches from the store
what an earlier process found.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.compiler.compiler import filter_traceback

from . import notes, store
from .drivers import backend_for
from .single_flight import SingleFlight
from .store.record import Record, checksum, key_hash
from .store_key import kernel_name, store_key
from .symbol_name import tell_constants_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from triton.backends.compiler import GPUTarget

    from .written_arguments import WrittenArguments

_flights: SingleFlight[dict[str, Any]] = SingleFlight()


def written_by(src: Any, target: GPUTarget, options: Mapping[str, Any] | None = None) -> WrittenArguments:
    """Which arguments of the frontend's function for `src` (an `ASTSource`) are written and read, by index.

    Raises what the frontend raises for the kernel.
    """
    backend: Any = backend_for(target)
    tell_constants_apart(src)
    parsed = backend.parse_options(dict(options or {}))
    key = {
        "analysis": notes.analysis_version(),
        **store_key(src, target, backend, parsed, get_cache_invalidating_env_vars()),
    }
    name = f"{src.name[:120]}.written.json"

    def find() -> dict[str, Any]:
        entry = store.find(key, name, is_code=lambda file: False)
        if entry is not None:
            found: dict[str, Any] = json.loads(entry.files[name])
            return found
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
        try:
            module = src.make_ir(target, parsed, functions, modules, context)
        except Exception as error:
            filter_traceback(error)
            raise
        found = notes.analyse(module, context)
        data = json.dumps(found).encode()
        store.publish(Record(key, kernel_name(src), name, {name: checksum(data)}, {}, time.time(), {}), {name: data})
        return found

    found, _ = _flights.run(key_hash(key), find)
    return notes.from_data(found, src.signature)

"""Whether a file on disk may be loaded as code.

`why_untrusted(path)` says why not, or None. A file is trusted when it and the folder that holds it belong to
the user or to root and nobody else can write to either: then nobody else can have put it there.
"""

from __future__ import annotations

import functools
import os
import stat


def why_untrusted(path: str) -> str | None:
    """Why the file `path` or the folder that holds it could have been written by another user; None when not.

    Raises OSError when `path` cannot be examined.
    """
    # The link and not its goal: a link could point elsewhere once it is checked.
    own = os.lstat(path)
    if stat.S_ISLNK(own.st_mode):
        return f"{path} is a symbolic link"
    folder = os.path.dirname(os.path.abspath(path))
    return why_writable(own, path) or why_writable(os.stat(folder), folder)


def is_trusted(path: str) -> bool:
    """Whether only the user and root can have written `path`. Raises OSError when it cannot be examined."""
    return why_untrusted(path) is None


def why_writable(found: os.stat_result, place: str) -> str | None:
    """Why another user could have written to `place` (a file or folder, with its status); None when not."""
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to user {found.st_uid}"
    if mode & stat.S_IWOTH:
        return f"{place} can be written by everyone (mode {mode:o})"
    if mode & stat.S_IWGRP and not _is_private_group(found.st_gid):
        return f"{place} can be written by group {found.st_gid} (mode {mode:o})"
    return None


@functools.lru_cache(16)
def _is_private_group(gid: int) -> bool:
    """Whether the group has no member but the user: the default group where every user has one of his own."""
    if gid == 0:
        return True
    try:
        import grp
        import pwd

        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except (ImportError, KeyError):
        return False
    own = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return own and set(group.gr_mem) <= {user.pw_name}

"""Digests of installed files that their wheel's RECORD already names.

An installer writes `<name>-<version>.dist-info/RECORD`, which lists the SHA-256 and the size of every file of a
wheel (https://packaging.python.org/specifications/recording-installed-packages), after it wrote the files. A
file that has that size still, and whose change time is before RECORD's own, is as it was installed: the kernel
sets the change time at every write, and no user can set it back. So the digest need not be computed, which
for Triton's compiler library takes 0.4 s or more.
"""

from __future__ import annotations

import base64
import csv
import os
import stat
from collections.abc import Collection
from pathlib import Path


def recorded_digests(root: str, names: Collection[str]) -> dict[str, str]:
    """SHA-256 in hexadecimal by name, for the unchanged ones of these files of the wheel that owns the package `root`.

    Names are relative to `root`. Empty where there is no RECORD (an installation from source, a package on PYTHONPATH).
    """
    root = os.path.abspath(root)
    site, package = os.path.split(root)
    prefix = f"{package}/"
    wanted = {prefix + name.replace(os.sep, "/"): name for name in names}
    digests: dict[str, str] = {}
    # Other distributions do not own it: what wheels of Triton are called holds "triton" (pytorch_triton, ...).
    for record in Path(site).glob(f"*{package}*.dist-info/RECORD"):
        try:
            text = record.read_text(encoding="utf-8")
            installed = record.stat().st_ctime_ns
        except (OSError, ValueError):
            continue
        for row in csv.reader(line for line in text.splitlines() if line.startswith(prefix)):
            name = wanted.get(row[0])
            if name is not None and len(row) == 3 and row[1].startswith("sha256="):
                digest = _hexadecimal(row[1].removeprefix("sha256="))
                if digest and _is_unchanged(os.path.join(root, name), row[2], installed):
                    digests[name] = digest
    return digests


def _hexadecimal(text: str) -> str | None:
    try:
        digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return digest.hex() if len(digest) == 32 else None


def _is_unchanged(path: str, size: str, installed: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and str(found.st_size) == size and found.st_ctime_ns < installed

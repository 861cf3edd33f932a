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
from pathlib import Path


def recorded_digests(root: str) -> dict[str, str]:
    """SHA-256 in hexadecimal by absolute path, for the unchanged files of the wheel that owns the package `root`.

    Empty where there is no RECORD (an installation from source, a package on PYTHONPATH).
    """
    site = os.path.dirname(os.path.abspath(root))
    name = os.path.basename(os.path.abspath(root))
    prefix = f"{name}/"
    digests: dict[str, str] = {}
    # Other distributions do not own it: what wheels of Triton are called holds "triton" (pytorch_triton, ...).
    for record in Path(site).glob(f"*{name}*.dist-info/RECORD"):
        try:
            text = record.read_text(encoding="utf-8")
            installed = record.stat().st_ctime_ns
        except (OSError, ValueError):
            continue
        if prefix not in text:
            continue
        for row in csv.reader(text.splitlines()):
            if len(row) == 3 and row[0].startswith(prefix) and row[1].startswith("sha256="):
                path = os.path.join(site, *row[0].split("/"))
                digest = _hexadecimal(row[1].removeprefix("sha256="))
                if digest and _is_unchanged(path, row[2], installed):
                    digests[path] = digest
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
    return str(found.st_size) == size and found.st_ctime_ns < installed and not os.path.islink(path)

"""The record of an entry: what the entry was keyed by, and a checksum of every file in it.

Written by `Record.dump`, read by `Record.load`, which accepts nothing that was changed by one bit. The key is
stored as readable parts and the entry's hash is the hash of these parts (`key_hash`), so an entry cannot pass
for another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

FORMAT = 1


class Damaged(Exception):
    """An entry is not what was published. The message says how."""


def key_hash(key: dict[str, Any]) -> str:
    """The hash, 64 hexadecimal digits, of the readable parts of a key (plain JSON data)."""
    return hashlib.sha256(_canonical(key)).hexdigest()


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of an entry.

    `key`: the readable parts of the key; `name`: `module.qualname` of the kernel that was compiled first
    (equal kernels of other modules share the entry); `metadata_name`: the file with Triton's metadata;
    `files`: checksum of each file; `notes`: facts about the kernel that were computed when it was compiled
    (which arguments it writes); `created`: seconds since the epoch; `times`: microseconds of each phase of
    the compile.
    """

    key: dict[str, Any]
    name: str
    metadata_name: str
    files: dict[str, str]
    notes: dict[str, Any]
    created: float
    times: dict[str, int]

    @property
    def hash(self) -> str:
        return key_hash(self.key)

    def dump(self) -> bytes:
        body = dataclasses.asdict(self)
        whole = {"format": FORMAT, "sha256": checksum(_canonical(body)), "record": body}
        return json.dumps(whole, indent=1).encode()

    @staticmethod
    def load(data: bytes) -> Record:
        """Raises Damaged when `data` is not exactly what `dump` made."""
        try:
            read = json.loads(data)
            if read["format"] != FORMAT:
                raise Damaged(f"its record has format {read['format']}, expected {FORMAT}")
            body = read["record"]
            if checksum(_canonical(body)) != read["sha256"]:
                raise Damaged("its record does not match its checksum")
            return Record(**body)
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"its record cannot be read ({error!r})") from error


def record_name(metadata_name: str) -> str:
    """The file name of the record beside the metadata file `metadata_name`."""
    return f"__entry__{metadata_name}"

"""A shared library is loaded only from where nobody but the user and root can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opgraft.jit import store
from opgraft.jit.store import StoreWarning
from opgraft.jit.store.place import folder_name
from opgraft.jit.store.record import Record, checksum
from opgraft.jit.store.trust import is_trusted, why_untrusted

FILES = {"kernel.so": b"\x7fELF of a library", "kernel.cpp": b"void kernel() {}", "kernel.json": b"{}"}
STRANGER = 65533

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def record():
    checksums = {name: checksum(data) for name, data in FILES.items()}
    return Record({"kernel": "kernel"}, "kernel", "kernel.json", checksums, {}, 0.0, {})


def find(is_code=lambda name: name.endswith(".so")):
    return store.find(record().key, "kernel.json", is_code=is_code)


@pytest.fixture
def published(cache) -> Path:
    store.publish(record(), FILES)
    return cache / folder_name(record().hash)


def test_a_library_that_the_user_stored_is_found(published):
    assert find().files == FILES


FAULTS = {
    "the folder can be written by everyone": (lambda folder: folder.chmod(0o777), "written by everyone"),
    "the folder can be written by a group": (
        lambda folder: (os.chown(folder, -1, STRANGER), folder.chmod(0o775)),
        f"written by group {STRANGER}",
    ),
    "the file can be written by everyone": (lambda folder: (folder / "kernel.so").chmod(0o666), "by everyone"),
    "the record can be written by everyone": (
        lambda folder: (folder / "__entry__kernel.json").chmod(0o666),
        "by everyone",
    ),
    "the folder belongs to another user": (
        lambda folder: os.chown(folder, STRANGER, -1),
        f"belongs to user {STRANGER}",
    ),
    "the file belongs to another user": (
        lambda folder: os.chown(folder / "kernel.so", STRANGER, -1),
        f"belongs to user {STRANGER}",
    ),
}


@needs_root
@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_not_loaded_where(published, fault):
    spoil, says = FAULTS[fault]
    spoil(published)
    with pytest.warns(StoreWarning, match=says) as caught:
        assert find() is None
    assert "a shared library is loaded only from" in str(caught[0].message)


@needs_root
@pytest.mark.parametrize("fault", FAULTS)
def test_code_for_a_gpu_is_data_and_is_read_all_the_same_where(published, fault):
    FAULTS[fault][0](published)
    assert find(is_code=lambda name: False).files == FILES


@needs_root
def test_what_is_stored_in_its_place_is_trusted_again(published):
    published.chmod(0o777)
    with pytest.warns(StoreWarning):
        assert find() is None
    store.publish(record(), FILES)
    assert find().files == FILES
    assert published.stat().st_mode & 0o022 == 0


def test_a_library_with_another_checksum_is_not_loaded(published):
    (published / "kernel.so").write_bytes(b"\x7fELF of another one")
    with pytest.warns(StoreWarning, match=r"kernel\.so does not match its checksum"):
        assert find() is None


def test_a_link_in_place_of_the_library_is_not_followed(published, tmp_path):
    (tmp_path / "elsewhere.so").write_bytes(FILES["kernel.so"])
    (published / "kernel.so").unlink()
    (published / "kernel.so").symlink_to(tmp_path / "elsewhere.so")
    with pytest.warns(StoreWarning):
        assert find() is None


def test_a_link_in_place_of_the_folder_is_judged_by_where_it_leads(published):
    aside = published.with_name("ASIDE")
    published.rename(aside)
    published.symlink_to(aside)
    assert find().files == FILES
    aside.chmod(0o777)
    with pytest.warns(StoreWarning, match="written by everyone"):
        assert find() is None


def test_a_file_is_trusted_with_its_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    assert is_trusted(str(path)) and why_untrusted(str(path)) is None
    tmp_path.chmod(0o777)
    assert "written by everyone (mode 777)" in why_untrusted(str(path))
    with pytest.raises(OSError, match="missing"):
        is_trusted(str(tmp_path / "missing"))

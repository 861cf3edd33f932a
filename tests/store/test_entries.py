"""An entry of the store: published whole, verified when read, movable, and says what it was keyed by."""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings

import pytest

from opgraft.jit import store
from opgraft.jit.compile import compile
from opgraft.jit.store import StoreWarning, warn
from opgraft.jit.store.record import Damaged, Record, key_hash

FILES = ["add.source", "add.ttir", "add.ttgir", "add.llir", "add.ptx", "add.cubin", "add.json"]
RECORD = "__entry__add.json"


@pytest.fixture(scope="session")
def published(kernels, digests, tmp_path_factory):
    """A cache folder with one entry, to be copied."""
    folder = tmp_path_factory.mktemp("published")
    shutil.copytree(digests, folder / digests.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        compile(kernels.add_source(), kernels.CUDA)
    return folder


@pytest.fixture
def entry(published, cache):
    """The folder of the entry, in the cache of this test."""
    shutil.copytree(published, cache, dirs_exist_ok=True)
    (folder,) = [path for path in cache.iterdir() if not path.name.startswith(".")]
    return folder


def flip_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def become_a_folder(path):
    path.unlink()
    path.mkdir()


def become_a_link(path):
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(aside)


def test_it_holds_the_stages_the_metadata_and_a_record(entry):
    assert sorted(path.name for path in entry.iterdir()) == sorted([*FILES, RECORD])


def test_what_was_not_touched_is_read(entry, kernels, events):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["stored"]
    assert kernel.kernel == (entry / "add.cubin").read_bytes()


@pytest.mark.parametrize("fault", [flip_bit, truncate, empty, remove, become_a_folder, become_a_link])
@pytest.mark.parametrize("name", ["add.ttir", "add.cubin", "add.json", RECORD])
def test_a_fault_is_a_miss_with_one_warning_and_heals(entry, kernels, events, store_warnings, name, fault):
    whole = (entry / "add.cubin").read_bytes()
    fault(entry / name)
    kernel = compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    assert kernel.kernel == whole
    (message,) = store_warnings()
    assert "kernel add is compiled anew" in message and str(entry) in message


def test_each_damaged_entry_is_warned_about(entry, kernels, cache, store_warnings):
    compile(kernels.add_source(128), kernels.CUDA)
    for file in cache.glob("[!.]*/add.ttir"):
        empty(file)
    for block in (64, 128):
        compile(kernels.add_source(block), kernels.CUDA)
    assert len(store_warnings()) == 2


def test_an_empty_folder_in_its_place_is_filled(entry, kernels, events):
    shutil.rmtree(entry)
    entry.mkdir()
    with pytest.warns(StoreWarning, match="is missing"):
        compile(kernels.add_source(), kernels.CUDA)
    assert compile(kernels.add_source(), kernels.CUDA).kernel
    assert [event.outcome for event in events] == ["compiled", "stored"]


def test_a_file_in_its_place_is_replaced(entry, kernels, events):
    shutil.rmtree(entry)
    entry.write_text("in the way")
    with pytest.warns(StoreWarning, match="not a folder"):
        compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]


def test_an_entry_under_the_name_of_another_is_refused(entry, kernels, events, cache):
    compile(kernels.add_source(128), kernels.CUDA)
    (other,) = [path for path in cache.iterdir() if not path.name.startswith(".") and path != entry]
    shutil.rmtree(other)
    shutil.copytree(entry, other)
    with pytest.warns(StoreWarning, match="made for another key"):
        kernel = compile(kernels.add_source(128), kernels.CUDA)
    assert "tensor<128xf32>" in kernel.asm["ttir"].replace("tensor<128x!tt.ptr<f32>>", "tensor<128xf32>")
    assert [event.outcome for event in events] == ["compiled", "compiled"]


def test_it_can_be_moved(entry, kernels, events, cache, tmp_path, monkeypatch):
    cache.rename(tmp_path / "moved")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "moved"))
    kernel = compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["stored"]
    assert kernel.metadata_group["add.ttir"] == str(tmp_path / "moved" / entry.name / "add.ttir")


def test_its_record_and_metadata_hold_no_path_of_the_cache_or_of_triton(entry, published):
    import triton

    for name in (RECORD, "add.json"):
        text = (entry / name).read_text()
        for path in (published, entry.parent, triton.__path__[0]):
            assert str(path) not in text


def test_it_says_what_it_was_keyed_by(entry, kernels):
    key = store.explain(entry)
    assert key["kernel"] == "add" and store.entries()[0].name == "store_kernels.add"
    assert key["target"] == "cuda:80:32"
    assert key["function"] == kernels.add.cache_key
    assert key["signature"] == {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert key["constexprs"] == {"BLOCK": "64"}
    assert "divisibility" in key["attributes"]["n"]
    assert key["options"]["num_warps"] == "4"
    assert key["toolchain"].startswith("triton ")


def test_explain_takes_a_kernel_a_path_a_hash_or_an_entry(entry, kernels):
    kernel = compile(kernels.add_source(), kernels.CUDA)
    (listed,) = store.entries()
    assert store.explain(kernel) == store.explain(str(entry)) == store.explain(kernel.hash) == store.explain(listed)
    assert key_hash(store.explain(kernel)) == kernel.hash


def test_explain_says_when_there_is_nothing_to_explain(entry):
    with pytest.raises(LookupError, match="no entry"):
        store.explain("0" * 64)
    empty(entry / RECORD)
    with pytest.raises(ValueError, match="damaged"):
        store.explain(entry)


def test_a_record_changed_in_any_one_byte_is_refused(entry):
    data = (entry / RECORD).read_bytes()
    record = Record.load(data)
    for position in range(0, len(data), 7):
        changed = bytearray(data)
        changed[position] ^= 1
        with contextlib.suppress(Damaged):
            assert Record.load(bytes(changed)) == record, f"byte {position}"


def test_a_record_of_a_later_format_is_a_miss(entry, kernels):
    read = json.loads((entry / RECORD).read_text())
    (entry / RECORD).write_text(json.dumps({**read, "format": 99}))
    with pytest.warns(StoreWarning, match="format 99"):
        compile(kernels.add_source(), kernels.CUDA)


def test_warnings_come_once_for_each_fault(entry, kernels, store_warnings):
    for _ in range(3):
        empty(entry / "add.ttir")
        compile(kernels.add_source(), kernels.CUDA)
    assert len(store_warnings()) == 1
    warn.forget()
    empty(entry / "add.ttir")
    compile(kernels.add_source(), kernels.CUDA)
    assert len(store_warnings()) == 2

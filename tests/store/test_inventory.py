"""Listing, deleting and bounding what is stored."""

from __future__ import annotations

import os
import time

import pytest

from opgraft.jit import store
from opgraft.jit.store import inventory
from opgraft.jit.store.place import TEMPORARY, folder_name
from opgraft.jit.store.record import Record, checksum

DAY = 24 * 3600.0


def put(name, size=1000, used=None, cache=None):
    """Store an entry of a kernel called `name`, last used `used` seconds ago."""
    files = {f"{name}.json": b"{}", f"{name}.cubin": os.urandom(size)}
    key = {"kernel": f"module.{name}", "constexprs": {"size": str(size)}}
    checksums = {file: checksum(data) for file, data in files.items()}
    record = Record(key, name, f"{name}.json", checksums, {}, time.time(), {})
    store.publish(record, files)
    folder = cache / folder_name(record.hash)
    if used is not None:
        then = time.time() - used
        os.utime(folder / f"__entry__{name}.json", (then, then))
    return folder


@pytest.fixture(autouse=True)
def default_limit():
    yield
    store.set_limit(None)


def test_entries_come_the_most_recently_used_first(cache):
    put("old", used=DAY, cache=cache)
    put("new", cache=cache)
    new, old = store.entries()
    assert (new.name, old.name) == ("new", "old")
    assert new.size > 1000 and new.check() is None
    assert old.used < new.used and old.created == pytest.approx(time.time(), abs=60)
    assert new.record.key == {"kernel": "module.new", "constexprs": {"size": "1000"}}


def test_what_other_programs_keep_there_is_not_listed_and_not_deleted(cache):
    (cache / "TRITONSOWN").mkdir()
    (cache / "TRITONSOWN" / "__grp__kernel.json").write_text("{}")
    (cache / "file").write_text("")
    put("ours", cache=cache)
    assert [entry.name for entry in store.entries()] == ["ours"]
    assert store.clear() == 1
    assert (cache / "TRITONSOWN" / "__grp__kernel.json").exists() and (cache / "file").exists()


def test_a_folder_that_does_not_exist_has_no_entries(tmp_path):
    assert store.entries(str(tmp_path / "nowhere")) == []
    assert store.clear(folder=str(tmp_path / "nowhere")) == 0


def test_clear_deletes_by_name_and_age_and_damage(cache):
    put("a", 10, used=10 * DAY, cache=cache)
    put("a", 20, cache=cache)
    put("b", 10, used=10 * DAY, cache=cache)
    broken = put("c", cache=cache)
    (broken / "c.cubin").write_bytes(b"")
    assert store.clear("a", unused_for=5 * DAY) == 1
    assert sorted(entry.name for entry in store.entries()) == ["a", "b", "c"]
    assert store.clear(damaged=True) == 1
    assert store.clear("a") == 1 and store.clear("no such kernel") == 0
    assert [entry.name for entry in store.entries()] == ["b"]
    assert store.clear() == 1 and store.entries() == []


def test_an_entry_with_a_damaged_record_is_listed_as_such(cache):
    folder = put("a", cache=cache)
    (folder / "__entry__a.json").write_text("{")
    (entry,) = store.entries()
    assert entry.record is None and "cannot be read" in entry.fault and entry.check() == entry.fault
    assert entry.name == folder.name
    assert store.clear(damaged=True) == 1


def test_clear_removes_what_killed_processes_left_behind(cache):
    old, young = cache / f"{TEMPORARY}1", cache / f"{TEMPORARY}2"
    for folder in (old, young):
        folder.mkdir()
        (folder / "file").write_text("half")
    then = time.time() - 2 * DAY
    os.utime(old, (then, then))
    store.clear()
    assert not old.exists() and young.exists(), "a process may be writing the young one"


def test_beyond_the_limit_the_longest_unused_go_first(cache):
    for days in (3, 1, 2):
        put(f"k{days}", 10_000, used=days * DAY, cache=cache)
    assert inventory.prune(str(cache), 25_000) == 1
    assert sorted(entry.name for entry in store.entries()) == ["k1", "k2"]
    assert inventory.prune(str(cache), 0) == 2


def test_writing_keeps_the_store_within_the_limit(cache):
    store.set_limit(100_000)
    for index in range(40):
        put(f"k{index}", 10_000, used=DAY - index, cache=cache)
    assert sum(entry.size for entry in store.entries()) <= 120_000
    assert "k39" in [entry.name for entry in store.entries()]


def test_use_counts_for_the_limit(cache):
    from opgraft.jit.store.record import key_hash

    put("a", 10_000, used=3 * DAY, cache=cache)
    put("b", 10_000, used=2 * DAY, cache=cache)
    (a,) = [entry for entry in store.entries() if entry.name == "a"]
    assert store.find(a.record.key, "a.json", is_code=lambda name: False)
    assert key_hash(a.record.key) == a.record.hash
    inventory.prune(str(cache), 15_000)
    assert [entry.name for entry in store.entries()] == ["a"]


def test_the_limit_comes_from_the_environment(cache, monkeypatch):
    monkeypatch.setenv("OPGRAFT_STORE_LIMIT", "12345")
    assert inventory.limit() == 12345
    store.set_limit(7)
    assert inventory.limit() == 7
    store.set_limit(None)
    monkeypatch.setenv("OPGRAFT_STORE_LIMIT", "much")
    with pytest.raises(ValueError, match="number of bytes"):
        inventory.limit()
    with pytest.warns(store.StoreWarning, match="number of bytes"):
        put("a", cache=cache)
    assert len(store.entries()) == 1, "a wrong setting loses no kernel"
    with pytest.raises(ValueError, match="at least 0"):
        store.set_limit(-1)

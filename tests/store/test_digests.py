"""Digests of large files are remembered, and never wrong."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pytest

from opgraft.jit.store import digests
from opgraft.jit.store.digests import file_digest, tree_digest

LARGE = b"x" * 100_000


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files whose content was read."""
    names = []
    plain = digests._hash_file
    monkeypatch.setattr(digests, "_hash_file", lambda path: (names.append(os.path.basename(path)), plain(path))[1])
    monkeypatch.setattr(digests, "_known", {})
    return names


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "digests")


@pytest.fixture
def settled(monkeypatch):
    """Files count as settled at once."""
    monkeypatch.setattr(digests, "_SETTLED", -1.0)


def forget():
    digests._known.clear()


def test_a_digest_is_that_of_the_content(tmp_path, folder):
    path = tmp_path / "file"
    for content in (b"small", LARGE):
        path.write_bytes(content)
        assert file_digest(str(path), folder) == hashlib.sha256(content).hexdigest()


def test_a_large_file_is_read_once(tmp_path, folder, hashed, settled):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    first = file_digest(str(path), folder)
    forget()
    assert file_digest(str(path), folder) == first
    assert hashed == ["file"]


def test_a_moved_file_has_the_same_digest(tmp_path, folder, hashed, settled):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    first = file_digest(str(path), folder)
    path.rename(tmp_path / "moved")
    assert file_digest(str(tmp_path / "moved"), folder) == first


def test_an_edit_that_hides_is_seen(tmp_path, folder, settled):
    """Equal size and a modification time that was set back: the change time tells."""
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    before = path.stat()
    first = file_digest(str(path), folder)
    time.sleep(0.02)
    with open(path, "r+b") as file:
        file.write(b"y")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_size == before.st_size
    assert file_digest(str(path), folder) != first


def test_a_file_that_was_written_just_now_is_not_remembered(tmp_path, folder, hashed):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    file_digest(str(path), folder)
    file_digest(str(path), folder)
    assert hashed == ["file", "file"]


@pytest.mark.parametrize("damage", ["", "{", '{"key": 1}', '{"key": "other", "digest": "00"}'])
def test_a_damaged_record_is_computed_anew(tmp_path, folder, hashed, settled, damage):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    first = file_digest(str(path), folder)
    (record,) = (tmp_path / "digests").iterdir()
    record.write_text(damage)
    forget()
    assert file_digest(str(path), folder) == first
    assert hashed == ["file", "file"]
    assert json.loads(record.read_text())["digest"] == first


def test_a_record_that_others_can_write_is_not_believed(tmp_path, folder, hashed, settled):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    first = file_digest(str(path), folder)
    (record,) = (tmp_path / "digests").iterdir()
    record.write_text(json.dumps({**json.loads(record.read_text()), "digest": "0" * 64}))
    record.chmod(0o666)
    forget()
    assert file_digest(str(path), folder) == first


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path, hashed, settled):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    assert file_digest(str(path), str(path / "not a folder")) == hashlib.sha256(LARGE).hexdigest()


def make_tree(root):
    (root / "package").mkdir(parents=True)
    (root / "package" / "a.py").write_text("a")
    (root / "package" / "note.txt").write_text("not code")
    (root / "b.py").write_text("b")
    return root


def test_a_tree_is_known_by_names_and_contents(tmp_path, folder):
    def digest(root):
        return tree_digest(str(root), ("package", "b.py", "absent"), (".py",), folder)

    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "two")
    assert digest(one) == digest(two)
    (two / "package" / "note.txt").write_text("changed")
    assert digest(one) == digest(two)
    (two / "package" / "a.py").write_text("changed")
    changed = digest(two)
    assert changed != digest(one)
    (two / "package" / "new.py").write_text("")
    assert digest(two) != changed


def test_the_toolchain_names_every_part_that_makes_code(kernels, digests):
    """An edit of any of Triton's frontend, language, backends or libraries gives another identity."""
    import triton

    from opgraft.jit import toolchain

    root = triton.__path__[0]
    for part in toolchain._PARTS:
        assert os.path.exists(os.path.join(root, part)), part


@pytest.fixture
def wheel(tmp_path):
    """An installed package of two files, as pip leaves it: RECORD is written last."""
    import base64

    rows = []
    for name, content in (("pack/small.py", b"x = 1\n"), ("pack/sub/large.so", LARGE)):
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}")
    time.sleep(0.02)
    record = tmp_path / "site" / "pack-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("\n".join([*rows, "pack-1.0.dist-info/RECORD,,"]) + "\n")
    return tmp_path / "site" / "pack"


def digest_of(package, folder):
    forget()
    return tree_digest(str(package), ("small.py", "sub"), (".py", ".so"), folder)


def test_what_a_wheel_records_is_not_read(wheel, folder, hashed, tmp_path):
    recorded = digest_of(wheel, folder)
    assert hashed == []
    (wheel.parent / "pack-1.0.dist-info" / "RECORD").unlink()
    assert digest_of(wheel, str(tmp_path / "other")) == recorded
    assert sorted(hashed) == ["large.so", "small.py"]


@pytest.mark.parametrize("change", ["content", "content of equal size and time", "link"])
def test_a_file_that_was_changed_after_the_installation_is_read(wheel, folder, hashed, change, tmp_path):
    before = digest_of(wheel, folder)
    large = wheel / "sub" / "large.so"
    status = large.stat()
    if change == "content":
        large.write_bytes(LARGE + b"y")
    elif change == "link":
        (tmp_path / "elsewhere").write_bytes(b"y" + LARGE[1:])
        large.unlink()
        large.symlink_to(tmp_path / "elsewhere")
    else:
        large.write_bytes(b"y" + LARGE[1:])
        os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest_of(wheel, folder) != before
    assert hashed == ["large.so"]


@pytest.mark.parametrize(
    "text", ["", "pack/sub/large.so", "pack/sub/large.so,sha256=!,5\n", "\0,pack/", "pack/,sha256=,"]
)
def test_a_record_that_says_nothing_is_passed_over(wheel, folder, hashed, text):
    expected = digest_of(wheel, folder)
    (wheel.parent / "pack-1.0.dist-info" / "RECORD").write_text(text)
    (wheel / "small.py").touch()
    assert digest_of(wheel, folder) == expected
    assert sorted(hashed) == ["large.so", "small.py"]

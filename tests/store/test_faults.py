"""Disks that are read-only, full, gone or in the way: kernels compile, are kept in memory, and nothing raises."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from opgraft.jit.compile import compile

CAP_DAC_OVERRIDE = 1
LINUX_CAPABILITY_VERSION_3 = 0x20080522


@pytest.fixture
def public_folder():
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="opgraft-test-"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


@contextlib.contextmanager
def unprivileged():
    """Without root's right to write everywhere (capset(2), CAP_DAC_OVERRIDE).

    Root still reads everything: Triton may be installed where only root can read.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    before, without = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()

    def call(function, data):
        if function(header, data) != 0:
            raise OSError(ctypes.get_errno(), "capabilities")

    call(libc.capget, before)
    without[:] = before[:]
    without[0] &= ~(1 << CAP_DAC_OVERRIDE)
    call(libc.capset, without)
    try:
        yield
    finally:
        call(libc.capset, before)


@contextlib.contextmanager
def mounted(folder: Path, options: str):
    """A file system in memory; skips where it may not be mounted."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def use(folder, monkeypatch, digests):
    """Make `folder` Triton's cache; what can be kept of the digests keeps the test quick."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    monkeypatch.setattr("opgraft.jit.store_key.digest_folder", lambda: str(digests))


@pytest.fixture
def warm(cache, kernels):
    """Everything that a compile imports is imported."""
    compile(kernels.fill_source(), kernels.CUDA)


def compiles_in_memory(kernels, events, store_warnings, cause):
    """Compile twice: the first result serves the second, one warning says why, with `cause`."""
    events.clear()
    first = compile(kernels.add_source(), kernels.CUDA)
    second = compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    assert first.kernel == second.kernel and "tt.func" in first.asm["ttir"]
    (message,) = store_warnings()
    assert "compiled kernels cannot be stored in" in message and cause in message
    assert "TRITON_CACHE_DIR" in message
    return first


def test_a_folder_without_the_right_to_write(
    warm, kernels, events, store_warnings, public_folder, monkeypatch, digests
):
    use(public_folder, monkeypatch, digests)
    public_folder.chmod(0o555)
    with unprivileged():
        kernel = compiles_in_memory(kernels, events, store_warnings, "Permission denied")
    assert list(public_folder.iterdir()) == []
    assert Path(kernel.metadata_group["add.cubin"]).read_bytes() == kernel.kernel, "tools read files by path"


def test_a_folder_that_cannot_be_made(warm, kernels, events, store_warnings, public_folder, monkeypatch, digests):
    use(public_folder / "deep" / "cache", monkeypatch, digests)
    public_folder.chmod(0o555)
    with unprivileged():
        compiles_in_memory(kernels, events, store_warnings, "Permission denied")


def test_a_read_only_folder_serves_what_it_holds(
    warm, kernels, events, store_warnings, public_folder, monkeypatch, digests
):
    use(public_folder, monkeypatch, digests)
    compile(kernels.add_source(), kernels.CUDA)
    for path in [public_folder, *public_folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    events.clear()
    with unprivileged():
        compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["stored"]
    assert store_warnings() == []


def test_a_damaged_entry_that_cannot_be_replaced(
    warm, kernels, events, store_warnings, public_folder, monkeypatch, digests
):
    use(public_folder, monkeypatch, digests)
    compile(kernels.add_source(), kernels.CUDA)
    (file,) = public_folder.glob("[!.]*/add.cubin")
    file.write_bytes(b"")
    for path in [public_folder, *public_folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    events.clear()
    with unprivileged():
        compile(kernels.add_source(), kernels.CUDA)
        compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    anew, kept = store_warnings()
    assert "compiled anew" in anew and "cannot be stored" in kept


def test_a_read_only_file_system(kernels, events, store_warnings, tmp_path, monkeypatch, digests, cache):
    with mounted(tmp_path / "disk", "ro"):
        use(tmp_path / "disk", monkeypatch, digests)
        compiles_in_memory(kernels, events, store_warnings, "Read-only file system")


def test_a_full_disk(kernels, events, store_warnings, tmp_path, monkeypatch, digests, cache):
    with mounted(tmp_path / "disk", "size=16k"):
        use(tmp_path / "disk", monkeypatch, digests)
        compiles_in_memory(kernels, events, store_warnings, "No space left on device")
        assert [path for path in (tmp_path / "disk").iterdir() if "tmp" in path.name] == [], "nothing half-written"


def test_a_disk_that_is_full_everywhere(kernels, events, store_warnings, tmp_path, monkeypatch, digests, cache):
    with mounted(tmp_path / "disk", "size=16k"):
        use(tmp_path / "disk", monkeypatch, digests)
        monkeypatch.setattr("tempfile.mkdtemp", _no_space)
        kernel = compiles_in_memory(kernels, events, store_warnings, "No space left on device")
        assert kernel.metadata_group == {}


def _no_space(*args, **kwargs):
    raise OSError(28, "No space left on device")


def test_a_limit_on_the_size_of_files(kernels, events, store_warnings, cache):
    # The smallest artefacts fit, the largest do not.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    kernel = compile(kernels.add_source(128), kernels.CUDA)
    largest = max(Path(path).stat().st_size for path in kernel.metadata_group.values())
    files = dict(kernel.asm)
    assert files
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest // 2, limits[1]))
        # The compiler's own temporary files are subject to the limit too: publish what was compiled.
        _publish_again(kernel, kernels)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    (message,) = store_warnings()
    assert "File too large" in message
    assert [path.name for path in cache.iterdir() if "tmp" in path.name] == [], "nothing half-written"


def _publish_again(kernel, kernels):
    import dataclasses

    from opgraft.jit import store

    (stored,) = store.entries()
    files = {name: Path(path).read_bytes() for name, path in kernel.metadata_group.items()}
    record = dataclasses.replace(stored.record, key={**stored.record.key, "kernel": "another"})
    entry = store.publish(record, files)
    assert entry.files == files
    found = store.find(record.key, record.metadata_name, is_code=lambda name: False)
    assert found is not None and found.files == files


def test_a_cache_folder_that_vanishes_is_made_again(kernels, events, cache, store_warnings, monkeypatch, digests):
    use(cache, monkeypatch, digests)
    compile(kernels.add_source(), kernels.CUDA)
    shutil.rmtree(cache)
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "compiled", "stored"]
    assert store_warnings() == []


def test_a_cache_folder_that_vanishes_during_a_compile(kernels, events, cache, store_warnings, monkeypatch, digests):
    from opgraft.jit import notes

    use(cache, monkeypatch, digests)
    with monkeypatch.context() as patch:
        patch.setattr(notes.Collector, "begin", lambda self: shutil.rmtree(cache, ignore_errors=True))
        compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    assert store_warnings() == []


def test_a_file_where_the_cache_folder_should_be(
    kernels, events, store_warnings, tmp_path, monkeypatch, digests, cache
):
    (tmp_path / "file").write_text("")
    use(tmp_path / "file", monkeypatch, digests)
    compiles_in_memory(kernels, events, store_warnings, "File exists")


def test_a_link_to_the_cache_folder_is_followed(kernels, events, tmp_path, monkeypatch, digests, cache):
    (tmp_path / "link").symlink_to(cache)
    use(tmp_path / "link", monkeypatch, digests)
    compile(kernels.add_source(), kernels.CUDA)
    use(cache, monkeypatch, digests)
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]


def test_without_locks_kernels_are_stored_all_the_same(kernels, events, cache, monkeypatch):
    import fcntl

    def no_locks(*args):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]


def test_a_lock_holder_that_hangs_is_not_waited_for_for_ever(tmp_path):
    from opgraft.jit.store.lock import process_lock

    path = str(tmp_path / "locks" / "lock")
    with process_lock(path) as held:
        assert held
        with process_lock(path, patience=0.05) as held_too:
            assert not held_too


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_others_can_never_write_what_is_stored(kernels, cache, mask):
    before = os.umask(mask)
    try:
        compile(kernels.add_source(), kernels.CUDA)
    finally:
        os.umask(before)
    (folder,) = [path for path in cache.iterdir() if not path.name.startswith(".")]
    for path in [folder, *folder.iterdir()]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o022 == 0
        assert mode & 0o044 == 0o044 & ~mask, "others may read where the umask lets them"

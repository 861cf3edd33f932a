"""Compiled kernels on the CPU: loading, launching, handles, and what can be known of them."""

from __future__ import annotations

import copy
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.errors import OutOfResources

from opgraft.jit.compile import compile
from opgraft.jit.compiled import CompiledKernel
from opgraft.jit.store import StoreWarning


@pytest.fixture(autouse=True)
def own_settings(cache):
    with knobs.runtime.scope():
        yield


@pytest.fixture
def compiled(kernels):
    return compile(kernels.add_source(), kernels.cpu_target())


def tensors(n=1000):
    return torch.randn(n), torch.randn(n), torch.full((n,), float("nan"))


def check(launch, n=1000):
    x, y, out = tensors(n)
    launch(x, y, out)
    torch.testing.assert_close(out, x + y)


def test_its_stages_end_in_readable_c_plus_plus_and_a_library(compiled):
    assert list(compiled.asm) == ["source", "ttir", "cpp", "so"]
    assert 'extern "C"' in compiled.asm["cpp"]
    assert compiled.kernel.startswith(b"\x7fELF")


def test_nothing_is_loaded_before_it_is_needed(compiled):
    assert compiled.module is None and compiled.function is None
    compiled._init_handles()
    assert compiled.function


def test_it_launches(compiled):
    check(lambda x, y, out: compiled[16, 1, 1](x, y, out, 1000, 64))


def test_a_grid_may_be_shorter_than_three(compiled):
    check(lambda x, y, out: compiled[(16,)](x, y, out, 1000, 64))


def test_what_only_loading_tells_can_be_asked_for(compiled):
    assert (compiled.n_regs, compiled.n_spills) == (0, 0) and compiled.n_max_threads > 0
    with pytest.raises(AttributeError, match="no_such"):
        compiled.no_such  # noqa: B018


def test_it_runs_from_the_store(compiled, kernels, events):
    again = compile(kernels.add_source(), kernels.cpu_target())
    assert [event.outcome for event in events] == ["compiled", "stored"] or events[-1].outcome == "stored"
    check(lambda x, y, out: again[16, 1, 1](x, y, out, 1000, 64))


def test_a_cpu_kernel_runs_where_the_active_driver_is_another(compiled, monkeypatch):
    class Elsewhere:
        """A driver that must not be asked to load or launch anything."""

        def get_current_target(self):
            return GPUTarget("cuda", 80, 32)

    monkeypatch.setattr(triton.runtime.driver, "_active", Elsewhere())
    monkeypatch.setattr(type(compiled.driver), "is_active", classmethod(lambda cls: False))
    check(lambda x, y, out: compiled[16, 1, 1](x, y, out, 1000, 64))


def test_threads_load_it_once(compiled, monkeypatch):
    loads = []
    knobs.runtime.kernel_load_start_hook.add(lambda *args: loads.append(args))
    barrier = threading.Barrier(8)

    def launch(_):
        barrier.wait()
        check(lambda x, y, out: compiled[16, 1, 1](x, y, out, 1000, 64))

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(launch, range(8)))
    finally:
        knobs.runtime.kernel_load_start_hook.calls.clear()
    assert len(loads) == 1


def test_load_hooks_get_tritons_payload(compiled):
    calls = []

    def start(module, function, name, metadata_group, hash):
        calls.append(("start", module, function, name, hash))

    def end(module, function, name, metadata_group, hash):
        calls.append(("end", function, name, metadata_group["add.ttir"]))

    knobs.runtime.kernel_load_start_hook.add(start)
    knobs.runtime.kernel_load_end_hook.add(end)
    try:
        compiled._init_handles()
    finally:
        knobs.runtime.kernel_load_start_hook.remove(start)
        knobs.runtime.kernel_load_end_hook.remove(end)
    assert calls == [
        ("start", None, None, "add", compiled.hash),
        ("end", compiled.function, "add", compiled.metadata_group["add.ttir"]),
    ]


@pytest.mark.parametrize("which", ["launch_enter_hook", "launch_exit_hook"])
def test_launch_hooks_get_name_function_and_stream(compiled, which):
    seen = []

    def hook(metadata):
        seen.append(metadata.get())

    chain = getattr(knobs.runtime, which)
    chain.add(hook)
    try:
        check(lambda x, y, out: compiled[16, 1, 1](x, y, out, 1000, 64))
    finally:
        chain.remove(hook)
    (metadata,) = seen
    assert metadata["name"] == "add" and metadata["function"] == compiled.function and "stream" in metadata


def test_without_hooks_no_launch_metadata_is_made(compiled):
    assert compiled.launch_metadata((1, 1, 1), 0) is None


def test_too_much_shared_memory_is_an_error_at_every_use(compiled):
    compiled.metadata = compiled.metadata._replace(shared=2**80)
    for _ in range(2):
        with pytest.raises(OutOfResources, match="shared memory"):
            compiled.run()
        with pytest.raises(OutOfResources, match="shared memory"):
            compiled[(1,)]


def test_copies_are_the_kernel_itself(compiled):
    assert copy.copy(compiled) is compiled and copy.deepcopy([compiled])[0] is compiled


def test_it_can_be_made_from_the_files_of_an_entry(compiled, kernels):
    """As tools do that construct Triton's class."""
    made = CompiledKernel(kernels.add_source(), compiled.metadata_group, compiled.hash)
    assert made.asm == compiled.asm and made.metadata == compiled.metadata
    assert made.written == compiled.written
    check(lambda x, y, out: made[16, 1, 1](x, y, out, 1000, 64))


def test_it_knows_what_it_writes(compiled):
    assert compiled.written.written == (2,) and compiled.written.read == (0, 1)
    assert compiled.written.exact
    assert compiled.written_paths == {(2,)}


def test_what_it_writes_is_read_from_the_store_and_not_analysed_again(compiled, kernels, monkeypatch):
    from opgraft.jit import notes

    again = compile(kernels.add_source(), kernels.cpu_target())
    monkeypatch.setattr(notes, "analyse", lambda *args: pytest.fail("analysed again"))
    assert again.written == compiled.written


def test_an_answer_of_another_version_of_the_analysis_is_not_believed(compiled, kernels, monkeypatch):
    from opgraft.jit import notes

    expected = compiled.written
    monkeypatch.setattr(notes, "analysis_version", lambda: "another")
    again = compile(kernels.add_source(), kernels.cpu_target())
    seen = []
    analyse = notes.analyse
    monkeypatch.setattr(notes, "analyse", lambda *args: (seen.append(1), analyse(*args))[1])
    assert again.written == expected and seen == [1]


def test_it_is_analysed_while_the_last_stage_runs(kernels, monkeypatch):
    from opgraft.jit import ir
    from opgraft.jit.backends.cpu import stages

    analysed, seen = threading.Event(), []
    find, build = ir.written_arguments, stages.make_so

    def analyse(module):
        seen.append(threading.current_thread())
        analysed.set()
        return find(module)

    def last_stage(*args):
        seen.append(analysed.wait(60))
        return build(*args)

    monkeypatch.setattr(ir, "written_arguments", analyse)
    monkeypatch.setattr(stages, "make_so", last_stage)
    assert compile(kernels.add_source(), kernels.cpu_target()).written.written == (2,)
    assert seen[0] is not threading.current_thread() and seen[1] is True


def test_it_is_analysed_where_no_thread_can_be_started(kernels, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert compile(kernels.add_source(), kernels.cpu_target()).written.written == (2,)


def test_a_kernel_whose_ir_cannot_be_analysed_counts_as_writing_everything(kernels, monkeypatch):
    from opgraft.jit import ir

    def refuse(module):
        raise NotImplementedError("something new")

    monkeypatch.setattr(ir, "written_arguments", refuse)
    kernel = compile(kernels.add_source(), kernels.cpu_target())
    assert kernel.written_paths == {(0,), (1,), (2,)}
    assert "something new" in kernel.written.reasons[0]


def test_a_handle_launches_it_in_c(compiled):
    handle = compiled.handle()
    assert handle is compiled.handle()
    check(lambda x, y, out: handle(None, x, y, out, 992, 64, 16, 1, 1), n=992)


def test_a_handle_refuses_what_the_variant_is_not_for(compiled):
    x, y, out = tensors()
    with pytest.raises(ValueError, match="n"):
        compiled.handle()(None, x, y, out, 999, 64, 16, 1, 1)


def test_a_handle_falls_back(compiled):
    calls = []
    handle = compiled.handle(lambda *args: calls.append(args))
    x, y, out = tensors()
    handle(None, x, y, out, 999, 64, 16, 1, 1)
    assert calls == [(None, x, y, out, 999, 64, 16, 1, 1)]


# ---- the library in the store ----


def test_a_library_in_a_folder_without_the_right_to_execute_runs(kernels, tmp_path, monkeypatch, digests):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(disk))
        monkeypatch.setattr("opgraft.jit.store_key.digest_folder", lambda: str(digests))
        for _ in range(2):
            kernel = compile(kernels.add_source(), kernels.cpu_target())
            check(lambda x, y, out, kernel=kernel: kernel[16, 1, 1](x, y, out, 1000, 64))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_library_that_others_could_have_written_is_rebuilt(compiled, kernels, events, entry_folder):
    entry_folder().chmod(0o777)
    with pytest.warns(StoreWarning, match="shared library is loaded only from where nobody else can write"):
        again = compile(kernels.add_source(), kernels.cpu_target())
    assert events[-1].outcome == "compiled"
    check(lambda x, y, out: again[16, 1, 1](x, y, out, 1000, 64))
    assert compile(kernels.add_source(), kernels.cpu_target()) and events[-1].outcome == "stored"


def test_a_library_that_was_exchanged_is_rebuilt(compiled, kernels, events, entry_folder):
    other = compile(kernels.fill_source(), kernels.cpu_target())
    folder = os.path.dirname(compiled.metadata_group["add.so"])
    with open(os.path.join(folder, "add.so"), "wb") as file:
        file.write(other.kernel)
    with pytest.warns(StoreWarning, match=r"add\.so does not match its checksum"):
        again = compile(kernels.add_source(), kernels.cpu_target())
    check(lambda x, y, out: again[16, 1, 1](x, y, out, 1000, 64))


def test_a_c_plus_plus_stage_can_be_overridden(compiled, kernels, tmp_path):
    path = tmp_path / "add.cpp"
    path.write_text(compiled.asm["cpp"] + "\n// edited\n")
    kernel = compile(kernels.add_source(), kernels.cpu_target(), {"ir_override": str(path)})
    assert kernel.asm["cpp"].endswith("// edited\n")
    check(lambda x, y, out: kernel[16, 1, 1](x, y, out, 1000, 64))

"""Launches: threads, forks, the GIL, arguments of every type, tuples, errors of the toolchain."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit.backends.cpu import library, toolchain

from .kernels import add_kernel


@triton.jit
def thread_kernel(out_ptr, rounds, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = (i + pid).to(tl.float32)
    for _ in range(rounds):
        x = tl.sin(x)
    tl.store(out_ptr + pid * BLOCK + i, x)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_result(threads):
    before = torch.get_num_threads()
    out = [torch.empty(40, 64) for _ in range(2)]
    try:
        torch.set_num_threads(1)
        thread_kernel[(40,)](out[0], 10, BLOCK=64)
        torch.set_num_threads(threads)
        thread_kernel[(40,)](out[1], 10, BLOCK=64)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*out)


def test_kernels_run_in_a_forked_child():
    x, out = torch.randn(100_000), torch.empty(100_000)
    grid = (triton.cdiv(100_000, 256),)
    add_kernel[grid](x, x, out, 100_000, BLOCK=256)  # the pool of threads exists now
    twice, result = 2 * x.numpy(), out.numpy()
    child = os.fork()
    if child == 0:
        try:
            # Torch's own parallel loops hang in a forked child: numpy looks at the result.
            result[:] = 0
            add_kernel[grid](x, x, out, 100_000, BLOCK=256)
            os._exit(0 if (result == twice).all() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_other_python_threads_run_during_a_kernel():
    out = torch.empty(1, 1024)
    thread_kernel[(1,)](out, 1, BLOCK=1024)
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks.append(1)

    other = threading.Thread(target=tick)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that keeps the GIL would keep it through the kernel
    try:
        for _ in range(3):
            thread_kernel[(1,)](out, 20_000, BLOCK=1024)
    finally:
        sys.setswitchinterval(interval)
        done.set()
        other.join()
    assert len(ticks) > 3


def test_many_python_threads_launch_at_once():
    sizes, rounds, workers = (100, 5000), 20, 8
    for n in sizes:
        # Compiled beforehand: stock Triton parses sources, which CPython 3.11 cannot do in several threads at once.
        add_kernel[(1,)](torch.zeros(n), torch.zeros(n), torch.zeros(n), n, BLOCK=256)
    errors, right = [], []

    def work(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            for n in sizes:
                x, y = (torch.randn(n, generator=generator) for _ in range(2))
                out = torch.empty(n)
                for _ in range(rounds):
                    out.zero_()
                    add_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
                    right.append(torch.equal(out, x + y))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(right) == workers * len(sizes) * rounds and all(right)


@triton.jit
def tuple_kernel(pair, out_ptr, scale, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(pair[0] + i) * scale[0] + tl.load(pair[1] + i) * scale[1][0])


def test_tuple_arguments():
    x, y, out = torch.randn(32), torch.randn(32), torch.empty(32)
    tuple_kernel[(1,)]((x, y), out, (2.0, (3.0,)), BLOCK=32)
    torch.testing.assert_close(out, 2 * x + 3 * y)


@triton.jit
def optional_kernel(x_ptr, bias_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + i)
    tl.store(out_ptr + i, x)


def test_none_as_an_argument():
    x, out = torch.randn(32), torch.empty(32)
    optional_kernel[(1,)](x, None, out, BLOCK=32)
    assert torch.equal(out, x)
    optional_kernel[(1,)](x, x, out, BLOCK=32)
    assert torch.equal(out, x + x)


@pytest.mark.cpu_active
def test_a_tensor_that_is_not_on_the_cpu_is_refused_by_name():
    here, elsewhere = torch.zeros(32), torch.zeros(32, device="meta")
    with pytest.raises(ValueError, match=r"argument 'bias_ptr' is a tensor on meta, .* \.to\('cpu'\)"):
        optional_kernel[(1,)](here, elsewhere, here, BLOCK=32)
    with pytest.raises(ValueError, match="argument 1 is a tensor on meta"):
        tuple_kernel[(1,)]((here, elsewhere), here, (2.0, (3.0,)), BLOCK=32)


def test_launch_hooks_are_called():
    seen = []
    hooks = triton.knobs.runtime
    x, out = torch.randn(10), torch.empty(10)

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"]))

    def leave(metadata):
        seen.append(("exit", metadata.get()["name"]))

    hooks.launch_enter_hook.add(enter)
    hooks.launch_exit_hook.add(leave)
    try:
        add_kernel[(1,)](x, x, out, 10, BLOCK=256)
    finally:
        hooks.launch_enter_hook.remove(enter)
        hooks.launch_exit_hook.remove(leave)
    assert seen == [("enter", "add_kernel"), ("exit", "add_kernel")]


# ------------------------------------------------------------------------------------------------- toolchain
def test_libraries_of_the_same_name_stay_apart():
    code = 'extern "C" __attribute__((visibility("default"))) int f() { return %d; }'
    import ctypes

    loaded = [library.load("f", toolchain.build(code % number)) for number in range(5)]
    assert [ctypes.CFUNCTYPE(ctypes.c_int)(address)() for _, address in loaded] == list(range(5))


def test_loading_works_without_files_in_memory(monkeypatch):
    import ctypes

    def refuse(*_):
        raise OSError("not here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    code = 'extern "C" __attribute__((visibility("default"))) int g() { return 42; }'
    _, address = library.load("g", toolchain.build(code))
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42


def test_a_missing_symbol_or_a_broken_file_is_an_error():
    code = 'extern "C" __attribute__((visibility("default"))) int h() { return 1; }'
    with pytest.raises(RuntimeError, match="does not export 'other'"):
        library.load("other", toolchain.build(code))
    with pytest.raises(RuntimeError, match="cannot load a compiled kernel"):
        library.load("h", b"not a library")


def test_no_compiler_is_a_clear_error(tmp_path):
    code = """
        import torch, triton, triton.language as tl

        @triton.jit
        def kernel(x_ptr):
            tl.store(x_ptr, 1.0)

        try:
            kernel[(1,)](torch.zeros(1))
        except Exception as error:
            print(type(error).__name__, error)
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "PATH": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("CC", None)
    environment.pop("CXX", None)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=300)
    assert "ToolchainError the CPU backend needs a C++ compiler and found none" in done.stdout, done.stderr[-3000:]
    assert "set the environment variable CXX" in done.stdout


def test_the_compiler_comes_from_the_environment(monkeypatch, tmp_path):
    fake = tmp_path / "my-g++"
    fake.write_text('#!/bin/sh\necho "fatal error: it was me" >&2\nexit 3\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert toolchain.compiler() == [str(fake)]
    with pytest.raises(toolchain.ToolchainError, match=r"(?s)my-g\+\+ refused .*'name'.*exit status 3.*it was me"):
        toolchain.build("", name="name")


def test_a_compiler_that_breaks_down_is_asked_for_less(monkeypatch, tmp_path):
    """An internal error while it vectorizes is not the end; one that stays is reported."""
    import shlex

    real = " ".join(shlex.quote(word) for word in toolchain.compiler())
    fake = tmp_path / "breaking-g++"
    fake.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-fno-tree-vectorize*) exec ' + real + ' "$@";; esac\n'
        'echo "kernel.h:3: internal compiler error: in vectorizer" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    code = 'extern "C" __attribute__((visibility("default"))) int f() { return %s; }'
    library.load("f", toolchain.build(code % "1"))
    with pytest.raises(toolchain.ToolchainError, match="refused the generated code"):
        toolchain.build(code % "unknown")
    fake.write_text('#!/bin/sh\necho "internal compiler error: always" >&2\nexit 1\n')
    with pytest.raises(toolchain.ToolchainError, match="internal compiler error: always"):
        toolchain.build(code % "1")


def test_the_key_depends_on_compiler_and_generator(monkeypatch, tmp_path):
    before = toolchain.fingerprint()
    fake = tmp_path / "other-g++"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert toolchain.fingerprint() != before
    monkeypatch.delenv("CXX")
    assert toolchain.fingerprint() == before
    assert toolchain.host_arch() in before


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3"])
@pytest.mark.skipif(not toolchain.host_arch().startswith("x86_64"), reason="x86-64 levels")
def test_other_vector_widths_by_the_architecture_knob(arch):
    if toolchain.vector_bytes(arch) > toolchain.vector_bytes("native"):
        pytest.skip("this CPU does not have them")
    x, out = torch.randn(1000), torch.empty(1000)
    compiled = add_kernel[(4,)](x, x, out, 1000, BLOCK=256, arch=arch)
    assert torch.equal(out, x + x)
    assert f"load<{toolchain.vector_bytes(arch) // 4}>" in compiled.asm["cpp"]

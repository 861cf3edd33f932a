"""What Python code that runs in the middle of a launch does: a grid function, `__index__`, a finalizer, `__eq__`."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import triton.language as tl

from opgraft.jit import jit
from opgraft.jit.native import extension

native = extension()


@jit
def fill_kernel(out, value, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, value, mask=at < n)


def resize(tensor):
    tensor.resize_(1 << 16)


def replace(tensor):
    tensor.set_(torch.zeros(64))


def assign(tensor):
    tensor.data = torch.zeros(64)


def misalign(tensor):
    tensor.set_(torch.zeros(65)[1:])


@pytest.mark.parametrize("change", [resize, replace, assign, misalign], ids=lambda f: f.__name__)
def test_a_grid_function_may_give_a_tensor_other_memory(change):
    def grid(arguments):
        change(arguments["out"])
        return (4,)

    for _ in range(4):
        out = torch.zeros(64)
        fill_kernel[grid](out, 3.0, 64, BLOCK=16)
        assert out[:64].eq(3).all()


ENDLESS = """
import threading, torch
from kernels_of_test import fill_kernel

def grid(arguments):
    fill_kernel[grid](arguments["out"], 1.0, 16, BLOCK=16)
    return (1,)

def run():
    try:
        fill_kernel[grid](torch.zeros(16), 1.0, 16, BLOCK=16)
    except RecursionError:
        print("refused")

fill_kernel[(1,)](torch.zeros(16), 1.0, 16, BLOCK=16)
run()
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_a_grid_function_that_launches_itself_ends_in_a_recursion_error(tmp_path):
    kernel = (
        "import triton.language as tl\nfrom opgraft.jit import jit\n\n@jit\ndef fill_kernel(out, value, n, BLOCK:"
        " tl.constexpr):\n    tl.store(out + tl.arange(0, BLOCK), value, mask=tl.arange(0, BLOCK) < n)\n"
    )
    (tmp_path / "kernels_of_test.py").write_text(kernel)
    (tmp_path / "program.py").write_text(ENDLESS)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True)
    assert done.stdout.split() == ["refused", "refused"], done.stderr[-2000:]


def test_a_grid_function_may_launch_kernels():
    inner = torch.zeros(16)
    depths = []

    def grid(arguments):
        depths.append(1)
        if len(depths) < 100:  # deeper than C goes
            fill_kernel[grid](inner, float(len(depths)), 16, BLOCK=16)
        return (1,)

    out = torch.zeros(16)
    fill_kernel[grid](out, 2.0, 16, BLOCK=16)
    assert out.eq(2).all() and inner.eq(1).all()


@pytest.mark.skipif(native is None, reason="needs a C compiler")
def test_keywords_are_strings():
    fill_kernel[(1,)](torch.zeros(16), 1.0, 16, BLOCK=16)
    dispatcher = fill_kernel._memory.dispatcher
    with pytest.raises(TypeError, match="keywords must be strings"):
        dispatcher.launch((1,), (torch.zeros(16),), {7: 2})


@pytest.mark.skipif(native is None, reason="needs a C compiler")
def test_what_is_watched_may_be_replaced_while_it_is_checked():
    """Looking a key up may call the `__eq__` of another with the same hash."""

    class Key:
        def __hash__(self):
            return hash("name")

        def __eq__(self, other):
            native.environment_set([])
            return False

    namespace = {Key(): 1, "name": "value"}
    try:
        for _ in range(50):
            native.environment_set([(namespace, "name", namespace["name"])] * 8)
            native.environment_holds()
    finally:
        native.environment_set([({}, "gone", native)])

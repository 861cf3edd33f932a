"""tl.device_assert, tl.static_assert and tl.device_print."""

import re
import subprocess
import sys
import textwrap

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit.backends.cpu.launcher import DeviceAssertionError


@triton.jit
def checked_kernel(x_ptr, out_ptr, limit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + i)
    tl.device_assert(x < limit, "x is too large")
    tl.device_assert(limit > 0)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + i, x)


def test_a_failed_assertion_raises_after_the_launch_and_names_the_line():
    x = torch.zeros(3, 32)
    out = torch.empty_like(x)
    checked_kernel[(3,)](x, out, 5.0, BLOCK=32, debug=True)
    assert torch.equal(out, x)
    x[2, 17] = 9
    with pytest.raises(DeviceAssertionError) as error:
        checked_kernel[(3,)](x, out, 5.0, BLOCK=32, debug=True)
    assert "x is too large" in str(error.value)
    assert re.search(r"test_diagnostics\.py:\d+: device_assert failed", str(error.value))
    assert 'tl.device_assert(x < limit, "x is too large")' in str(error.value)
    assert "program 2, 0, 0" in str(error.value)
    x.zero_()
    checked_kernel[(3,)](x, out, 5.0, BLOCK=32, debug=True)  # the fault was taken


def test_without_debug_nothing_is_checked():
    x = torch.full((1, 32), 9.0)
    out = torch.empty_like(x)
    checked_kernel[(1,)](x, out, 5.0, BLOCK=32)
    assert torch.equal(out, x)


PRINTING = """
    import torch, triton, triton.language as tl

    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i)
        tl.device_print("x", x)
        tl.device_print("n is", n)
        tl.device_print("hexadecimal", n, hex=True)
        tl.device_print("both", x > 1, n)
        tl.device_print("nothing else")

    kernel[(2,)](torch.tensor([0.5, 1.5]), 77, BLOCK=2)
"""


def test_print_names_program_index_and_value(tmp_path):
    script = tmp_path / "printing.py"
    script.write_text(textwrap.dedent(PRINTING))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for pid in (0, 1):
        start = f"pid ({pid}, 0, 0) "
        assert f"{start}idx (0) x: 0.500000" in lines and f"{start}idx (1) x: 1.500000" in lines
        assert f"{start}idx () n is: 77" in lines
        assert f"{start}idx () hexadecimal: 0x0000004d" in lines
        assert f"{start}idx (1) both: 1" in lines and f"{start}idx () both: 77" in lines
        assert any(line.startswith(start) and "nothing else" in line for line in lines)

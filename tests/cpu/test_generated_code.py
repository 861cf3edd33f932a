"""The C++ is written to be read, and short."""

import textwrap

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit.backends.cpu.codegen import cxx
from opgraft.jit.backends.cpu.codegen.polynomial import Polynomial

from .kernels import add_kernel, softmax_kernel


def program(compiled):
    """The function for one program of a kernel, without indentation."""
    text = compiled.asm["cpp"]
    start = text.index("static void")
    return text[start : text.index("\n}\n", start)]


def test_a_kernel_reads_like_its_source():
    x, out = torch.randn(1000), torch.empty(1000)
    text = program(add_kernel[(1,)](x, x, out, 1000, BLOCK=1024, arch="x86-64"))
    expected = """
      // kernels.py:9: offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
      const i32 offsets = program.id[0];
      const i32 offsets_1 = offsets * 1024;
      // kernels.py:10: mask = offsets < n
      const i64 limit = i64(n) - offsets_1;
      // kernels.py:11: x = tl.load(x_ptr + offsets, mask=mask)
      // kernels.py:12: y = tl.load(y_ptr + offsets, mask=mask)
      // kernels.py:13: tl.store(out_ptr + offsets, x + y, mask=mask)
      {
        const i64 limit_1 = clamp_limit(limit, 1024);
        const auto pointer_at = out_ptr + i64(offsets_1);
        const auto x_at = x_ptr + i64(offsets_1);
        const auto y_at = y_ptr + i64(offsets_1);
        // If this overlaps what is yet to be loaded, the block is stored aside until all is loaded.
        const auto written = span(pointer_at, along(limit_1, 1));
        const bool clash = ahead(pointer_at, x_at, limit_1)
            || ahead(pointer_at, y_at, limit_1);
        const Aside aside(clash, written);
        auto* const pointer_to = aside.of(pointer_at);
        i64 i = 0;
        for (; i + 4 <= limit_1; i += 4) {
          const auto x = load<4>(x_at + i);
          const auto y = load<4>(y_at + i);
          const auto sum = x + y;
          store<4>(pointer_to + i, sum);
        }
        if (i < limit_1) {
          const auto tail = prefix<4>(limit_1 - i);
          const auto x_1 = load<4>(x_at + i, tail, splat<4>(0.0f));
          const auto y_1 = load<4>(y_at + i, tail, splat<4>(0.0f));
          const auto sum_1 = x_1 + y_1;
          store<4>(pointer_to + i, sum_1, tail);
          i += 4;
        }
        if (aside) {
          aside.put_back(pointer_at, limit_1);
          aside.release();
        }
      }
    """
    body = text[text.index("{\n") + 2 :]
    assert textwrap.dedent(body).strip() == textwrap.dedent(expected).strip()


def test_softmax_computes_exp_once_and_loads_a_row_twice():
    x, out = torch.randn(3, 100), torch.empty(3, 100)
    text = program(softmax_kernel[(3,)](out, x, 100, 100, 100, BLOCK=128, arch="x86-64"))
    loops = text.split("// kernels.py")
    assert sum("exp(" in part for part in loops) >= 1
    # In full vectors, in the masked tail, and once for all masked elements.
    assert text.count(" = exp(") == 3
    assert "in_ptr" in text and "alignas(64) f32 e_block[128];" in text


@triton.jit
def exp(x_ptr, int_ptr, tail, limit, BLOCK: tl.constexpr):
    """Names that C++ and the headers use: a keyword, a type, a function, a library function."""
    i = tl.arange(0, BLOCK)
    load = tl.load(x_ptr + i, mask=i < limit, other=tail)
    double = tl.exp(load)
    vec = double + tl.load(int_ptr + i)
    class_ = vec * 2
    tl.store(x_ptr + i, class_, mask=i < limit)


def test_names_of_the_kernel_collide_with_nothing():
    x, y = torch.randn(64), torch.randn(64)
    expected = (x.exp() + y) * 2
    compiled = exp[(1,)](x, y, 0.0, 50, BLOCK=64)
    torch.testing.assert_close(x[:50], expected[:50])
    assert compiled.metadata.name == "exp_"  # exp is the C library's


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("x", "x"), ("int", "int_"), ("a.b", "a_b"), ("a__b", "a_b"), ("3d", "x3d"), ("größe", "gr_e"), ("load", "load_")],
)
def test_identifiers(name, identifier):
    assert cxx.identifier(name) == identifier


def test_names_are_given_once():
    names = cxx.Names()
    assert [names.new(n) for n in ("x", "x", "x_1", "x", "y")] == ["x", "x_1", "x_1_1", "x_2", "y"]


def test_polynomials_are_computed_in_64_bits():
    a, b, two = Polynomial.of("a"), Polynomial.of("b"), Polynomial.of(2)
    assert (a * b + a * two - two).text() == "i64(a) * 2 + i64(a) * b - 2"
    assert (a - a).constant == 0 and (a + two).constant is None and two.constant == 2
    assert a + b == b + a and hash(a * b) == hash(b * a)
    assert (a + b).text({"a"}) == "a + b" and str(Polynomial()) == "0"


@pytest.mark.parametrize(
    ("value", "type_name", "text"),
    [
        (0.1, "f32", "0.1f"), (1.0, "f64", "1.0"), (float("inf"), "f32", "__builtin_inff()"), (3, "i32", "3"),
        (-(2**31), "i32", "i32(0x80000000)"), (2**40, "i64", "(i64)0x10000000000u"), (True, "i1", "true"),
        (1e-45, "f32", "1.4013e-45f"), (-5, "i8", "i8(-5)"),
    ],
)  # fmt: skip
def test_literals(value, type_name, text):
    from opgraft.jit.ir import ScalarType

    assert cxx.literal(value, ScalarType(type_name)) == text


@triton.jit
def large_kernel(x_ptr, out_ptr, n, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.exp(tl.load(x_ptr + tl.program_id(0) * R * C + at))
    y = tl.exp(x / (1 + tl.sum(x, axis=1)[:, None]))
    tl.store(out_ptr + tl.program_id(0) * R * C + at, y / tl.max(y, axis=0)[None, :] + x)


def test_large_blocks_leave_the_stack():
    x = torch.randn(4, 64, 1024)
    out = torch.empty_like(x)
    compiled = large_kernel[(4,)](x, out, 4, R=64, C=1024)
    assert "reinterpret_cast<f32*>(scratch" in compiled.asm["cpp"]
    e = x.double().exp()
    y = (e / (1 + e.sum(2, keepdim=True))).exp()
    torch.testing.assert_close(out.double(), y / y.amax(1, keepdim=True) + e, rtol=1e-5, atol=1e-5)

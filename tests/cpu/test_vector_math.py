"""The header's functions for each vector width, against float64 and numpy, over all kinds of values."""

import ctypes

import numpy as np
import pytest

from opgraft.jit.backends.cpu import toolchain

SOURCE = """
#include "memory.h"
#include "math.h"
using namespace opgraft;
#define EXPORT extern "C" __attribute__((visibility("default")))
#define UNARY(NAME) EXPORT void t_##NAME(const f32* x, f32* y, i64 n) { \\
  for (i64 i = 0; i < n; i += LANES) store<LANES>(y + i, NAME(load<LANES>(x + i))); } \\
  EXPORT void s_##NAME(const f32* x, f32* y, i64 n) { for (i64 i = 0; i < n; i++) y[i] = NAME(x[i]); }
UNARY(exp) UNARY(exp2) UNARY(log) UNARY(log2) UNARY(sin) UNARY(cos) UNARY(erf) UNARY(tanh) UNARY(sqrt) UNARY(rsqrt)
UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(round_even) UNARY(absolute)
#define FORMAT(T) EXPORT void encode_##T(const f32* x, T* y, i64 n) { \\
  for (i64 i = 0; i < n; i += LANES) store<LANES>(y + i, load<LANES>(x + i)); } \\
  EXPORT void decode_##T(const T* x, f32* y, i64 n) { \\
  for (i64 i = 0; i < n; i += LANES) store<LANES>(y + i, load<LANES>(x + i)); }
FORMAT(f16) FORMAT(bf16)
EXPORT void masked(const f32* x, f32* y, i64 k) {
  const auto m = prefix<LANES>(k);
  store<LANES>(y, load<LANES>(x, m, splat<LANES>(7.0f)) + 1.0f, m);
}
EXPORT void masked_half(const f16* x, f16* y, i64 k) {
  const auto m = prefix<LANES>(k);
  store<LANES>(y, load<LANES>(x, m, splat<LANES>(7.0f)) + 1.0f, m);
}
EXPORT void high(const i32* x, const i32* y, i32* z, i64 n) {
  for (i64 i = 0; i < n; i += LANES) store<LANES>(z + i, multiply_high(load<LANES>(x + i), load<LANES>(y + i)));
}
EXPORT void gathered(const f32* x, const i32* at, f32* y, i64 n) {
  for (i64 i = 0; i < n; i += LANES) store<LANES>(y + i, gather<LANES>(x, load<LANES>(at + i)));
}
"""


def _can_run(level):
    wanted = {"x86-64-v4": 64, "x86-64-v3": 32}.get(level, 0)
    return toolchain.vector_bytes("native") >= wanted


ARCHES = ["native"]
if toolchain.host_arch().startswith("x86_64"):
    ARCHES += [level for level in ("x86-64-v3", "x86-64") if _can_run(level)]


class Library:
    def __init__(self, arch, tmp_path):
        self.lanes = toolchain.vector_bytes(arch) // 4
        path = tmp_path / f"{arch}.so"
        path.write_bytes(toolchain.build(f"#define LANES {self.lanes}\n{SOURCE}", arch))
        self.library = ctypes.CDLL(str(path))

    def __call__(self, name, *arrays, n=None):
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        getattr(self.library, name)(*pointers, ctypes.c_int64(len(arrays[0]) if n is None else n))


@pytest.fixture(scope="module", params=ARCHES)
def library(request, tmp_path_factory):
    return Library(request.param, tmp_path_factory.mktemp("vector_math"))


@pytest.fixture(scope="module")
def values():
    """Every kind of f32: a sweep over all bit patterns, and the neighbourhoods of special points."""
    bits = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 0.5, 2.0, -1.0, 88.72284, 88.72283, -87.33655,
                        -103.97208, -103.97207, -104.5, 89.5, 0.9375, 0.625, 4.0, 30000.0, 1.1754944e-38, 1e-45,
                        np.pi, np.pi / 2, 22 / 7, 1e5, 1e22], dtype=np.float32)  # fmt: skip
    near = np.concatenate([np.nextafter(special, np.float32(s)) for s in (-np.inf, np.inf)])
    dense = np.linspace(-110, 100, 20011, dtype=np.float32)
    x = np.concatenate([bits.view(np.float32), special, near, dense, np.linspace(0.4, 2.5, 5003, dtype=np.float32)])
    return np.concatenate([x, np.ones(-len(x) % 16, np.float32)])


def ulps(actual, wanted):
    """Distance in units of the last place of the rounded reference."""
    rounded = wanted.astype(np.float32)
    spacing = np.spacing(np.maximum(np.abs(rounded), np.float32(2.0**-126))).astype(np.float64)
    return np.abs(actual.astype(np.float64) - wanted) / spacing


def references():
    import torch

    def through_torch(f):
        return lambda x: f(torch.from_numpy(x)).numpy()

    return {
        "exp": (np.exp, 2), "exp2": (np.exp2, 2), "log": (np.log, 2), "log2": (np.log2, 2), "sin": (np.sin, 4),
        "cos": (np.cos, 4), "erf": (through_torch(torch.erf), 5), "tanh": (np.tanh, 5), "sqrt": (np.sqrt, 0.5),
        "rsqrt": (lambda x: 1 / np.sqrt(x), 2), "floor": (np.floor, 0), "ceil": (np.ceil, 0), "trunc": (np.trunc, 0),
        "round_even": (np.rint, 0), "absolute": (np.abs, 0),
    }  # fmt: skip


@pytest.mark.parametrize("name", references())
@pytest.mark.parametrize("kind", ["t", "s"])
@np.errstate(all="ignore")
def test_functions_are_accurate(library, values, name, kind):
    function, limit = references()[name]
    x = values if kind == "t" else np.ascontiguousarray(values[::7])
    actual = np.empty_like(x)
    library(f"{kind}_{name}", x, actual)
    wanted = function(x.astype(np.float64))
    wanted = np.where(np.abs(wanted) > 3.4028235677973366e38, np.sign(wanted) * np.inf, wanted)  # rounds beyond f32
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(actual[~finite], wanted[~finite].astype(np.float32))
    worst = np.argmax(ulps(actual[finite], wanted[finite]))
    error = ulps(actual[finite], wanted[finite])[worst]
    assert error <= limit, f"{name}({x[finite][worst]!r}) is {error:.2f} ulp off"


@np.errstate(all="ignore")
def test_half_precision_is_read_and_rounded_as_numpy_does(library, values):
    half = np.arange(2**16, dtype=np.uint16)
    out = np.empty(2**16, np.float32)
    library("decode_f16", half, out)
    np.testing.assert_array_equal(out, half.view(np.float16).astype(np.float32))
    scales = [np.float32(2.0) ** s for s in (0, -8, -16)]
    x = np.concatenate([values, *(out * s * np.float32(1 + 2.0**-11) for s in scales)])
    actual = np.empty(len(x), np.uint16)
    library("encode_f16", x, actual)
    wanted = x.astype(np.float16)
    nan = np.isnan(x)
    np.testing.assert_array_equal(actual[~nan], wanted.view(np.uint16)[~nan])
    assert np.isnan(actual.view(np.float16)[nan]).all()


@np.errstate(all="ignore")
def test_bfloat16_is_read_and_rounded_as_torch_does(library, values):
    import torch

    brain = np.arange(2**16, dtype=np.uint16)
    out = np.empty(2**16, np.float32)
    library("decode_bf16", brain, out)
    np.testing.assert_array_equal(out.view(np.uint32), brain.astype(np.uint32) << 16)
    actual = np.empty(len(values), np.uint16)
    library("encode_bf16", values, actual)
    wanted = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    nan = np.isnan(values)
    np.testing.assert_array_equal(actual[~nan], wanted[~nan])
    assert np.isnan((actual[nan].astype(np.uint32) << 16).view(np.float32)).all()


def test_masked_access_touches_the_first_lanes_only(library):
    for k in range(-1, library.lanes + 2):
        n = min(max(k, 0), library.lanes)
        x, y = np.arange(n, dtype=np.float32), np.full(library.lanes + 4, -5, np.float32)
        library("masked", x, y, n=k)
        assert y.tolist() == [*(x + 1), *[-5] * (library.lanes + 4 - n)]
        h, z = x.astype(np.float16), np.full(library.lanes + 4, -5, np.float16)
        library("masked_half", h, z, n=k)
        assert z.tolist() == [*(h + 1), *[-5] * (library.lanes + 4 - n)]


def test_upper_halves_of_products(library):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2**32, 4096, dtype=np.uint64) for _ in range(2))
    out = np.empty(4096, np.int32)
    library("high", *(a.astype(np.uint32).view(np.int32) for a in (x, y)), out, n=4096)
    np.testing.assert_array_equal(out.view(np.uint32), ((x * y) >> np.uint64(32)).astype(np.uint32))


def test_gathers(library):
    rng = np.random.default_rng(0)
    x, at = rng.random(500, dtype=np.float32), rng.integers(0, 500, 512, dtype=np.int32)
    out = np.empty(512, np.float32)
    library("gathered", x, at, out, n=512)
    np.testing.assert_array_equal(out, x[at])

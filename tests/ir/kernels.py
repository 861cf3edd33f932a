"""Kernels that make the frontend emit every operation that the CPU backend and the analyses must know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl

HAS_BLOCK_POINTER_OPS = hasattr(triton._C.libtriton.ir.builder, "create_make_block_ptr")
HAS_ATOMIC_LOAD = hasattr(tl, "atomic_load")


@dataclass(frozen=True)
class Case:
    """A kernel with what it is compiled for; `operations` must all be among what the frontend emits.

    `compiles` says whether Triton itself makes an sm_90 binary of it.
    """

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any] = field(default_factory=dict)
    aligned: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    compiles: bool = True

    def __str__(self) -> str:
        return self.kernel.fn.__name__


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask, other=0.0) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@triton.jit
def larger(a, b):
    keep = a > b
    return tl.where(keep, a, b)


@triton.jit(noinline=True)
def put(pointer, value):
    tl.store(pointer, value)
    return value + 1


@triton.jit
def pick(pointer, value):
    return value + tl.load(pointer)


@triton.jit
def everything(x, y, out, n, flag, BLOCK: tl.constexpr):
    if flag == 3:
        return
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + offsets, mask=mask, other=-float("inf"))
    ordered = tl.sort(values)
    for i in range(0, n, 2):
        ordered = ordered + i
    count = 0
    while count < n:
        count += 1
        if count > 4:
            ordered = pick(y, ordered)
    top = tl.reduce(ordered, 0, larger)
    sums = tl.cumsum(ordered, 0)
    best, where = tl.max(ordered, 0, return_indices=True)
    put(out, top)
    tl.device_print("top of %", top, best, where)
    tl.device_assert(top > 0, 'no "good" value: \\ é')
    tl.atomic_add(out + offsets, sums, mask=mask)
    tl.store(out + offsets, ordered + tl.exp(ordered), mask=mask)


@triton.jit
def reductions(x, out, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, 16)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    values = tl.load(x + rows * n + columns)
    sums = tl.sum(values, 1)
    tops = tl.max(values, 1)
    where = tl.argmin(values, 1)
    xors = tl.xor_sum(rows + columns, 0)
    products = tl.associative_scan(values, 1, larger)
    tl.store(out + tl.arange(0, 16), sums + tops + where)
    tl.store(out + tl.arange(0, BLOCK), xors)
    tl.store(out + rows * n + columns, products)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + m[:, None] * K + k[None, :]
    right = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, K, BK, num_stages=3):
        inside = k < K - step
        total = tl.dot(tl.load(left, mask=inside[None, :], other=0.0), tl.load(right, mask=inside[:, None]), total)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def scaled_matmul(a, a_scale, b, b_scale, c):
    i = tl.arange(0, 128)
    left = tl.load(a + i[:, None] * 128 + i[None, :])
    right = tl.load(b + i[:, None] * 128 + i[None, :])
    scales = tl.arange(0, 4)[None, :] + i[:, None] * 4
    total = tl.dot_scaled(left, tl.load(a_scale + scales), "e5m2", right, tl.load(b_scale + scales), "e4m3")
    tl.store(c + i[:, None] * 128 + i[None, :], total)


@triton.jit
def shapes(x, out):
    i = tl.arange(0, 16)
    values = tl.load(x + i[:, None] * 32 + tl.arange(0, 32)[None, :])
    left, right = tl.split(tl.reshape(values, (16, 16, 2)))
    joined = tl.join(left, right)
    both = tl.cat(tl.ravel(left), tl.ravel(right), can_reorder=True)
    turned = tl.trans(joined, 2, 0, 1)
    wide = tl.broadcast_to(tl.expand_dims(i, 1), (16, 32))
    chosen = tl.gather(values, wide, 0)
    counts = tl.histogram(wide.reshape(512), 64)
    tl.store(out + tl.arange(0, 512), both)
    tl.store(out + tl.reshape(tl.arange(0, 512), (2, 16, 16)), turned)
    tl.store(out + tl.arange(0, 64), counts + tl.sum(chosen))


@triton.jit
def arithmetic(x, y, f, out, scalar):
    i = tl.arange(0, 64)
    a, b = tl.load(x + i), tl.load(y + i)
    a = (a // b) + (a % b) - a * b + (a & b) + (a | b) + (a ^ b) + (a << 2) + (a >> 1) + tl.abs(a)
    unsigned = a.to(tl.uint32)
    a += (unsigned // 3 + unsigned % 5 + (unsigned >> 1) + tl.umulhi(unsigned, unsigned)).to(tl.int32)
    a = tl.minimum(tl.maximum(a, b), scalar)
    unsigned = tl.minimum(tl.maximum(unsigned, 7), 9)
    c = tl.load(f + i)
    c = tl.exp(c) + tl.exp2(c) + tl.log(c) + tl.log2(c) + tl.sin(c) + tl.cos(c) + tl.sqrt(c) + tl.rsqrt(c) + tl.erf(c)
    c = c + tl.floor(c) + tl.ceil(c) + tl.abs(c) - c / 3.0 + c % 2.0 + (-c) + tl.fma(c, c, c)
    c += tl.sqrt_rn(c) + tl.div_rn(c, 3.0) + tl.clamp(c, 0.5, 1.5)
    c = tl.minimum(tl.maximum(c, 0.25), 8.0, propagate_nan=tl.PropagateNan.ALL)
    less, equal = c < 1.0, (a == b) | (unsigned > 3)
    tl.store(out + i, tl.where(less & equal, c, a.to(tl.float32) + unsigned.to(tl.float32)))


@triton.jit
def casts(x, small, integers, bits, out):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    narrow = v.to(tl.float16).to(tl.float32) + v.to(tl.bfloat16).to(tl.float32)
    eight = v.to(tl.float8e5)
    tl.store(small + i, eight)
    as_integer = v.to(tl.int8).to(tl.int64) + v.to(tl.uint16).to(tl.int64) + v.to(tl.int1).to(tl.int64)
    tl.store(integers + i, as_integer)
    tl.store(bits + i, v.to(tl.int32, bitcast=True))
    fill = tl.full((64,), 0.1, tl.bfloat16).to(tl.float32) + tl.full((64,), float("nan"), tl.float64).to(tl.float32)
    fill += tl.full((64,), 1e-40, tl.float32) + tl.full((64,), 3.0, tl.float16) - tl.full((64,), -0.0, tl.float32)
    tl.store(out + i, narrow + fill + eight.to(tl.float32))


@triton.jit
def double_and_sum(a, b):
    return a * 2, a + b


@triton.jit
def regions(x, out):
    i = tl.arange(0, 64)
    a, b = tl.map_elementwise(double_and_sum, tl.load(x + i), tl.load(x + 64 + i))
    tl.store(out + i, a + b)


@triton.jit
def atomics(x, locks, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    tl.atomic_add(out + i, v, sem="relaxed", scope="cta")
    tl.atomic_max(out + i, v, mask=i < n)
    tl.atomic_min(out + i, v)
    tl.atomic_xchg(out + i, v)
    bits = tl.atomic_or(locks + i, 1) + tl.atomic_and(locks + i, 3) + tl.atomic_xor(locks + i, 7)
    tl.atomic_cas(locks, 0, tl.sum(bits))


@triton.jit
def pointers(x, table, out, n):
    address = x.to(tl.int64) + 16
    moved = tl.cast(address, tl.pointer_type(tl.float32))
    chosen = moved
    if n > 3:
        chosen = x + 4
    other = tl.cast(tl.load(table), tl.pointer_type(tl.float32))
    tl.store(out, tl.load(chosen) + tl.load(other))
    tl.assume(n > 0)
    aligned = tl.max_contiguous(tl.multiple_of(tl.arange(0, 64) + n * 8, 8), 8)
    tl.store(out + aligned, tl.num_programs(0))


@triton.jit
def foreign(x, out):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    doubled = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, doubled + tl.extra.cuda.libdevice.tanh(v))


@triton.jit
def descriptors(x, out, n, m):
    source = tl.make_tensor_descriptor(x, shape=[n, m], strides=[m, 1], block_shape=[16, 32])
    target = tl.make_tensor_descriptor(out, shape=[n, m], strides=[m, 1], block_shape=[16, 32])
    block = source.load([0, 32])
    target.store([16, 0], block)
    target.atomic_add([0, 0], block)


@triton.jit
def gathering_descriptors(y, n, m):
    rows = tl.make_tensor_descriptor(y, shape=[n, m], strides=[m, 1], block_shape=[1, 32])
    some = rows.gather(tl.arange(0, 16), 0)
    rows.scatter(some, tl.arange(0, 16), 32)


@triton.jit
def host_descriptor(source, target):
    target.store([0, 0], source.load([0, 0]) * 2)


@triton.jit
def block_pointers(x, out, n, m):
    block = tl.make_block_ptr(x, (n, m), (m, 1), (0, 0), (16, 32), (1, 0))
    target = tl.make_block_ptr(out, (n, m), (m, 1), (0, 0), (16, 32), (1, 0))
    for _ in range(0, m, 32):
        tl.store(target, tl.load(block, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0,))
        block = tl.advance(block, (0, 32))
        target = tl.advance(target, (0, 32))


@triton.jit
def newer_atomics(x, flags, out):
    tl.atomic_poll(flags, 1)
    value = tl.atomic_load(x)
    tl.atomic_store(out, value)


@triton.jit
def early_returns(x, out, n):
    i = tl.program_id(0)
    if i > n:
        if n == 7:
            tl.store(out, 1.0)
            return
        tl.store(out + 1, 2.0)
    v = tl.load(x + i)
    if i == 5:
        return
    tl.store(out + i, v)


@triton.jit
def nested(x, out, n):
    a = 0.0
    b = 1
    for i in range(n):
        for j in range(i, n):
            if j % 2 == 0:
                a += tl.load(x + j)
                b += 1
            else:
                k = j
                while k > 0:
                    a -= 1.0
                    k = k // 2
    tl.store(out, a + b)


_F = "*fp32"
CASES = [
    Case(add, {"x": _F, "y": _F, "out": _F, "n": "i32"}, {"BLOCK": 1024}, ("x", "y", "out", "n"), ("tt.load",)),
    Case(
        everything,
        {"x": _F, "y": _F, "out": _F, "n": "i32", "flag": "i32"},
        {"BLOCK": 64},
        ("x",),
        ("tt.call", "tt.reduce", "tt.scan", "tt.print", "tt.assert", "scf.while", "scf.for", "scf.if", "cf.cond_br"),
    ),
    Case(reductions, {"x": _F, "out": _F, "n": "i64"}, {"BLOCK": 64}, (), ("tt.expand_dims", "tt.broadcast")),
    Case(
        matmul,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"},
        {"BM": 32, "BN": 64, "BK": 32},
        ("a", "b", "c", "K"),
        ("tt.dot", "arith.truncf"),
    ),
    Case(
        scaled_matmul,
        {"a": "*fp8e5", "a_scale": "*u8", "b": "*fp8e4nv", "b_scale": "*u8", "c": _F},
        {},
        (),
        ("tt.dot_scaled",),
    ),
    Case(
        shapes,
        {"x": _F, "out": _F},
        {},
        (),
        ("tt.split", "tt.join", "tt.cat", "tt.trans", "tt.gather", "tt.histogram", "tt.reshape"),
    ),
    Case(
        arithmetic,
        {"x": "*i32", "y": "*i32", "f": _F, "out": _F, "scalar": "i32"},
        {},
        (),
        ("tt.mulhiui", "tt.precise_sqrt", "tt.precise_divf", "tt.clampf", "math.fma", "math.erf", "arith.minimumf"),
    ),
    Case(
        casts,
        {"x": _F, "small": "*fp8e5", "integers": "*i64", "bits": "*i32", "out": _F},
        {},
        (),
        ("tt.fp_to_fp", "tt.bitcast", "arith.fptosi", "arith.extf"),
    ),
    Case(regions, {"x": _F, "out": _F}, {}, (), ("tt.map_elementwise",)),
    Case(
        atomics,
        {"x": _F, "locks": "*i32", "out": _F, "n": "i32"},
        {},
        (),
        ("tt.atomic_rmw", "tt.atomic_cas"),
    ),
    Case(
        pointers,
        {"x": _F, "table": "*i64", "out": _F, "n": "i32"},
        {},
        (),
        ("tt.int_to_ptr", "tt.ptr_to_int", "llvm.intr.assume", "tt.get_num_programs"),
    ),
    Case(foreign, {"x": _F, "out": _F}, {}, (), ("tt.elementwise_inline_asm", "tt.extern_elementwise")),
    Case(
        descriptors,
        {"x": _F, "out": _F, "n": "i32", "m": "i32"},
        {},
        ("m",),
        ("tt.make_tensor_descriptor", "tt.descriptor_reduce"),
    ),
    Case(
        gathering_descriptors,
        {"y": _F, "n": "i32", "m": "i32"},
        {},
        ("m",),
        ("tt.descriptor_gather", "tt.descriptor_scatter"),
        compiles=False,  # sm_100 and later
    ),
    Case(
        host_descriptor,
        {"source": "tensordesc<fp16[16,32]>", "target": "tensordesc<fp16[16,32]>"},
        {},
        (),
        ("tt.descriptor_load", "tt.descriptor_store"),
    ),
    Case(early_returns, {"x": _F, "out": _F, "n": "i32"}, {}, (), ("cf.br", "cf.cond_br")),
    Case(nested, {"x": _F, "out": _F, "n": "i32"}, {}, (), ("scf.while", "scf.if")),
]
if HAS_BLOCK_POINTER_OPS:
    CASES.append(
        Case(
            block_pointers,
            {"x": _F, "out": _F, "n": "i64", "m": "i64"},
            {},
            (),
            ("tt.make_tensor_ptr", "tt.advance"),
        )
    )
if HAS_ATOMIC_LOAD:
    CASES.append(
        Case(
            newer_atomics,
            {"x": "*i32", "flags": "*i32", "out": "*i32"},
            {},
            (),
            ("tt.atomic_load", "tt.atomic_store", "tt.atomic_poll"),
        )
    )

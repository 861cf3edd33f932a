"""Atomic updates, alone and with many programs on many threads."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(index_ptr, value_ptr, out_ptr, n, BLOCK: tl.constexpr, KIND: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    index = tl.load(index_ptr + i, mask=mask, other=0)
    value = tl.load(value_ptr + i, mask=mask, other=0)
    if KIND == "add":
        tl.atomic_add(out_ptr + index, value, mask=mask)
    elif KIND == "max":
        tl.atomic_max(out_ptr + index, value, mask=mask)
    elif KIND == "min":
        tl.atomic_min(out_ptr + index, value, mask=mask)
    elif KIND == "xor":
        tl.atomic_xor(out_ptr + index, value, mask=mask)
    elif KIND == "or":
        tl.atomic_or(out_ptr + index, value, mask=mask)


@pytest.mark.parametrize("kind", ["add", "max", "min", "xor", "or"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64, torch.float16])
def test_no_update_is_lost(kind, dtype):
    if (dtype.is_floating_point and kind in ("xor", "or")) or (dtype is torch.float16 and kind != "add"):
        pytest.skip("not defined for this type")
    torch.manual_seed(0)
    n, bins = 20_000, 16
    index = torch.randint(0, bins, (n,), dtype=torch.int32)
    value = torch.randint(-3, 4, (n,)).to(dtype)
    if dtype is torch.float16:
        value = value.clamp(min=0, max=1)  # sums stay exact
        index = torch.arange(n, dtype=torch.int32) % 64
        bins = 64
    out = torch.zeros(bins, dtype=dtype)
    for _ in range(3):
        out.zero_()
        histogram_kernel[(triton.cdiv(n, 64),)](index, value, out, n, BLOCK=64, KIND=kind)
        wide = value.long() if kind in ("xor", "or") else value.double()
        expected = torch.zeros(bins, dtype=wide.dtype)
        if kind in ("xor", "or"):
            for b in range(bins):
                total = 0
                for v in wide[index == b].tolist():
                    total = total ^ v if kind == "xor" else total | v
                expected[b] = total
        else:
            how = {"add": "sum", "max": "amax", "min": "amin"}[kind]
            expected.scatter_reduce_(0, index.long(), wide, how)
        assert torch.equal(out.double(), expected.double())


@triton.jit
def ticket_kernel(counter_ptr, out_ptr, BLOCK: tl.constexpr):
    first = tl.atomic_add(counter_ptr, 1)
    block = tl.atomic_add(counter_ptr + 1 + tl.arange(0, BLOCK) % 4, 1)
    tl.store(out_ptr + first * (BLOCK + 1), first)
    tl.store(out_ptr + first * (BLOCK + 1) + 1 + tl.arange(0, BLOCK), block)


def test_the_old_value_comes_back():
    programs = 1000
    counter = torch.zeros(5, dtype=torch.int32)
    out = torch.full((programs, 9), -1, dtype=torch.int32)
    ticket_kernel[(programs,)](counter, out, BLOCK=8)
    assert counter.tolist() == [programs, *[2 * programs] * 4]
    assert torch.equal(out[:, 0].sort().values, torch.arange(programs, dtype=torch.int32))
    for lane in range(4):
        tickets = torch.cat([out[:, 1 + lane], out[:, 5 + lane]]).sort().values
        assert torch.equal(tickets, torch.arange(2 * programs, dtype=torch.int32))


@triton.jit
def lock_kernel(lock_ptr, total_ptr, n):
    for _ in range(n):
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
        tl.store(total_ptr, tl.load(total_ptr) + 1)
        tl.atomic_xchg(lock_ptr, 0)


def test_a_lock_by_compare_and_swap():
    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    lock_kernel[(500,)](lock, total, 10)
    assert total.item() == 5000 and lock.item() == 0

"""Kernels as the tutorials and models have them, stock `@triton.jit`, against float64 torch."""

import pytest
import torch
import triton

from . import kernels as k


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def close(actual, expected, tolerance=2e-6):
    """Largest difference relative to the largest magnitude."""
    scale = expected.abs().max().clamp(min=1e-30)
    assert ((actual.double() - expected).abs().max() / scale) < tolerance


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000, 4096, 100_003])
def test_add(n):
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    k.add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize(
    ("rows", "cols", "dtype"),
    [
        *((rows, cols, torch.float32) for rows, cols in [(3, 781), (7, 1), (5, 1024), (64, 384), (1, 17)]),
        (3, 781, torch.float16),
        (3, 781, torch.bfloat16),
    ],
)
def test_softmax_of_rows(rows, cols, dtype):
    x = torch.randn(rows, cols).to(dtype)
    out = torch.empty_like(x)
    k.softmax_kernel[(rows,)](out, x, x.stride(0), out.stride(0), cols, BLOCK=triton.next_power_of_2(cols))
    close(out, x.double().softmax(1), {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype])


@pytest.mark.parametrize(("rows", "cols"), [(3, 781), (9, 64), (16, 33), (5, 3)])
def test_softmax_of_several_rows_in_a_program(rows, cols):
    x = torch.randn(rows, cols)
    out = torch.empty_like(x)
    k.softmax_tile_kernel[(triton.cdiv(rows, 4),)](out, x, rows, cols, ROWS=4, COLS=triton.next_power_of_2(cols))
    close(out, x.double().softmax(1))


@pytest.mark.parametrize(("rows", "cols", "block"), [(4, 384, 512), (3, 1000, 256), (2, 7, 16)])
def test_layernorm_forward_and_backward(rows, cols, block):
    x, w, b, dy = torch.randn(rows, cols), torch.randn(cols), torch.randn(cols), torch.randn(rows, cols)
    out, mean, rstd = torch.empty_like(x), torch.empty(rows), torch.empty(rows)
    k.layernorm_forward_kernel[(rows,)](x, out, w, b, mean, rstd, cols, cols, 1e-5, BLOCK=block)
    x64, w64, b64 = (t.double().requires_grad_() for t in (x, w, b))
    expected = torch.nn.functional.layer_norm(x64, (cols,), w64, b64)
    close(out, expected.detach())
    expected.backward(dy.double())
    groups = 2
    dx, dw, db = torch.empty_like(x), torch.zeros(groups, cols), torch.zeros(groups, cols)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    k.layernorm_backward_kernel[(rows,)](
        dx, dy, dw, db, x, w, mean, rstd, locks, cols, cols, GROUPS=groups, BLOCK=triton.next_power_of_2(cols)
    )
    close(dx, x64.grad)
    close(dw.sum(0), w64.grad)
    close(db.sum(0), b64.grad)


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 70, 50), (200, 129, 333), (1, 1, 1), (33, 96, 16)])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(shape, transposed):
    m, n, kk = shape
    a = torch.randn(m, kk)
    b = torch.randn(n, kk).t() if transposed else torch.randn(kk, n)
    c = torch.empty(m, n)
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 32),)
    k.matmul_kernel[grid](a, b, c, m, n, kk, *a.stride(), *b.stride(), *c.stride(), M=64, N=32, K=32, GROUP=4)
    close(c, a.double() @ b.double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matmul_of_half_precision(dtype):
    m, n, kk = 48, 40, 70
    a, b = torch.randn(m, kk).to(dtype), torch.randn(kk, n).to(dtype)
    c = torch.empty(m, n)
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32),)
    k.matmul_kernel[grid](a, b, c, m, n, kk, *a.stride(), *b.stride(), *c.stride(), M=32, N=32, K=16, GROUP=4)
    close(c, a.double() @ b.double())


def test_dropout_keeps_the_share_and_scales():
    n, p = 20_000, 0.3
    x, out = torch.randn(n) + 3, torch.empty(n)
    k.dropout_kernel[(triton.cdiv(n, 1024),)](x, out, n, p, 123, BLOCK=1024)
    kept = out != 0
    assert abs(kept.double().mean().item() - (1 - p)) < 0.02
    close(out[kept], x[kept].double() / (1 - p))


def philox(seed, offsets):
    """First word of Philox 4x32-10 (Salmon et al., 2011), in numpy."""
    import numpy as np

    c = [offsets.astype(np.uint64), *(np.zeros_like(offsets, dtype=np.uint64) for _ in range(3))]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low = np.uint64(0xFFFFFFFF)
        c = [(b >> np.uint64(32)) ^ c[1] ^ key[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return c[0]


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 123456789012345])
def test_random_numbers_are_philox(seed):
    import numpy as np

    n = 3000
    uniform, normal, bits = torch.empty(n), torch.empty(n), torch.empty(n, dtype=torch.int32)
    k.random_kernel[(triton.cdiv(n, 512),)](uniform, normal, bits, seed, n, BLOCK=512)
    expected = philox(seed, np.arange(n)).astype(np.uint32).view(np.int32)
    assert (bits.numpy() == expected).all()
    signed = np.where(expected < 0, -expected.astype(np.int64) - 1, expected)
    np.testing.assert_allclose(uniform.numpy(), signed * 4.6566127342e-10, rtol=1e-6)
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1


def test_cross_entropy_and_its_gradient():
    rows, n = 9, 777
    logits, labels = torch.randn(rows, n) * 3, torch.randint(0, n, (rows,))
    labels[3] = -100
    x = logits.double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(x, labels, reduction="none")
    expected.sum().backward()
    loss, untouched = torch.empty(rows), logits[3].clone()
    k.cross_entropy_kernel[(rows,)](loss, logits, labels, n, n, -100, BLOCK=256)
    close(loss, expected.detach())
    assert torch.equal(logits[3], untouched)
    others = torch.arange(rows) != 3
    close(logits[others], x.grad[others])


def test_rope_in_place():
    rows, half = 11, 32
    x, angle = torch.randn(rows, 2 * half), torch.rand(rows, half) * 6
    a, b = x[:, :half].double(), x[:, half:].double()
    c, s = angle.double().cos(), angle.double().sin()
    k.rope_kernel[(rows,)](x, angle.cos(), angle.sin(), x.stride(0), HALF=half)
    close(x, torch.cat([a * c - b * s, b * c + a * s], 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gelu(dtype):
    x = (torch.randn(5000) * 3).to(dtype)
    out = torch.empty_like(x)
    k.gelu_kernel[(triton.cdiv(5000, 1024),)](x, out, 5000, BLOCK=1024)
    close(out, torch.nn.functional.gelu(x.double()), {torch.float32: 1e-6}.get(dtype, 8e-3))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [64, 100])
def test_flash_attention_forward(causal, length):
    heads, d = 3, 32
    q, key, v = (torch.randn(heads, length, d) for _ in range(3))
    out = torch.empty_like(q)
    grid = (triton.cdiv(length, 32), heads)
    k.attention_kernel[grid](q, key, v, out, d**-0.5, length, M=32, N=16, D=d, CAUSAL=causal)
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), key.double(), v.double(), is_causal=causal)
    close(out, expected)

"""Kernels of the CPU backend's tests: the tutorials' and models' usual ones, and small ones for single features."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(in_ptr + row * in_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + cols, e / tl.sum(e, axis=0), mask=mask)


@triton.jit
def softmax_tile_kernel(out_ptr, in_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Several rows in one program."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    offsets = r[:, None] * cols + c[None, :]
    x = tl.load(in_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + offsets, e / tl.sum(e, axis=1)[:, None], mask=mask)


@triton.jit
def layernorm_forward_kernel(x_ptr, out_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    out_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
        x = tl.where(cols < n, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n
        w = tl.load(w_ptr + cols, mask=mask)
        b = tl.load(b_ptr + cols, mask=mask)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def layernorm_backward_kernel(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, stride, n,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of one row; its share of dw and db is added under a lock for its group."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    x_hat = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(x_hat * wdy, axis=0) / n
    c2 = tl.sum(wdy, axis=0) / n
    tl.store(dx_ptr + row * stride + cols, (wdy - (x_hat * c1 + c2)) * rstd, mask=mask)
    group = row % GROUPS
    lock = lock_ptr + group
    count = lock_ptr + GROUPS + group
    dw_at = dw_ptr + group * n + cols
    db_at = db_ptr + group * n + cols
    dw = dy * x_hat
    db = dy
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        dw += tl.load(dw_at, mask=mask)
        db += tl.load(db_at, mask=mask)
    tl.store(dw_at, dw, mask=mask)
    tl.store(db_at, db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Blocks of c in groups of rows, for the cache."""
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * cols
    first = pid // in_group * GROUP
    size = min(rows - first, GROUP)
    pid_m = first + (pid % in_group) % size
    pid_n = (pid % in_group) // size
    am = (pid_m * M + tl.arange(0, M)) % m
    bn = (pid_n * N + tl.arange(0, N)) % n
    ks = tl.arange(0, K)
    a_ptrs = a_ptr + am[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + bn[None, :] * stride_bn
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, tl.cdiv(k, K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < k - start * K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < k - start * K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += K * stride_ak
        b_ptrs += K * stride_bk
    cm = pid_m * M + tl.arange(0, M)
    cn = pid_n * N + tl.arange(0, N)
    c_ptrs = c_ptr + stride_cm * cm[:, None] + stride_cn * cn[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(cm[:, None] < m) & (cn[None, :] < n))


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def random_kernel(uniform_ptr, normal_ptr, bits_ptr, seed, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(uniform_ptr + offsets, tl.rand(seed, offsets), mask=mask)
    tl.store(normal_ptr + offsets, tl.randn(seed, offsets), mask=mask)
    tl.store(bits_ptr + offsets, tl.randint(seed, offsets), mask=mask)


@triton.jit
def cross_entropy_kernel(loss_ptr, logits_ptr, labels_ptr, stride, n, ignore, BLOCK: tl.constexpr):
    """Loss of one row, and the gradient of its logits in place."""
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * stride
    label = tl.load(labels_ptr + row)
    if label == ignore:
        tl.store(loss_ptr + row, 0.0)
        return
    top = float("-inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + cols, mask=cols < n, other=float("-inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top))
        top = new_top
    tl.store(loss_ptr + row, tl.log(total) + top - tl.load(logits_ptr + label).to(tl.float32))
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + cols, mask=cols < n, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(x - top) / total - tl.where(cols == label, 1.0, 0.0)
        tl.store(logits_ptr + cols, gradient, mask=cols < n)


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, stride, HALF: tl.constexpr):
    """Rotates the two halves of each row in place."""
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    base = x_ptr + row * stride
    a = tl.load(base + i)
    b = tl.load(base + HALF + i)
    c = tl.load(cos_ptr + row * HALF + i)
    s = tl.load(sin_ptr + row * HALF + i)
    tl.store(base + i, a * c - b * s)
    tl.store(base + HALF + i, b * c + a * s)


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, length, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    """Attention of one head for M queries, over keys in steps of N; the tensors are [heads, length, D]."""
    start_m = tl.program_id(0) * M
    head = tl.program_id(1) * length * D
    rows = start_m + tl.arange(0, M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + head + rows[:, None] * D + d[None, :], mask=rows[:, None] < length, other=0.0)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(start_m + M, length)
    for start_n in range(0, end, N):
        cols = start_n + tl.arange(0, N)
        k = tl.load(k_ptr + head + cols[None, :] * D + d[:, None], mask=cols[None, :] < length, other=0.0)
        s = tl.dot(q, k) * scale
        keep = cols[None, :] < length
        if CAUSAL:
            keep = keep & (cols[None, :] <= rows[:, None])
        s = tl.where(keep, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new_top[:, None])
        alpha = tl.exp(top - new_top)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + head + cols[:, None] * D + d[None, :], mask=cols[:, None] < length, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top
    acc = acc / total[:, None]
    tl.store(out_ptr + head + rows[:, None] * D + d[None, :], acc.to(q.dtype), mask=rows[:, None] < length)

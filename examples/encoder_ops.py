"""The four ops of the sentence encoder: Triton kernels, the op that launches each, and its gradient.

    add_layer_norm   LayerNorm(x + residual)
    bias_gelu        GELU(x + bias)
    masked_softmax   softmax(scores * scale) over the keys that are words, not padding
    mean_pool        the mean over a sentence's words, scaled to length 1

Each section reads the same way: a kernel, the op whose body allocates the outputs and launches it, the same
two for the gradient, and `register_autograd`, which joins them. Nothing here names a device, a dtype, a fake kernel or
what a kernel writes: opgraft runs the bodies to learn the shapes, and reads the kernels to learn the rest.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

import opgraft
from opgraft.jit import jit

# The longest sentence, in tokens. One block of this size serves every length: a new length compiles nothing.
MAX_TOKENS = 512

# The gradients of weights are sums over all rows: this many programs sum a share each, PyTorch adds those up.
SHARES = 64


@jit
def load(address, inside):
    """What is stored there, as float32 whatever the model's dtype is; 0 outside."""
    return tl.load(address, mask=inside, other=0.0).to(tl.float32)


# add_layer_norm: one program a row ---------------------------------------------------------------------


@jit
def normalized_row(x, residual, row, cols, eps, BLOCK: tl.constexpr):
    """A row of x + residual shifted to mean 0 and scaled to variance 1, and the factor that scaled it."""
    col = tl.arange(0, BLOCK)
    inside = col < cols
    total = load(x + row * cols + col, inside)
    total += load(residual + row * cols + col, inside)
    centred = tl.where(inside, total - tl.sum(total, 0) / cols, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
    return centred * scale, scale


@jit
def add_layer_norm_kernel(x, residual, weight, bias, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < cols
    normal, _ = normalized_row(x, residual, row, cols, eps, BLOCK)
    result = normal * load(weight + col, inside) + load(bias + col, inside)
    tl.store(out + row * cols + col, result, mask=inside)


@opgraft.custom_op("encoder::add_layer_norm")
def add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """LayerNorm(x + residual) over the last dimension; x and residual [..., cols], weight and bias [cols]."""
    x, residual = x.contiguous(), residual.contiguous()
    out = torch.empty_like(x)
    cols = x.shape[-1]
    grid = (x.numel() // cols,)
    BLOCK = triton.next_power_of_2(cols)
    add_layer_norm_kernel[grid](x, residual, weight, bias, out, cols, eps, BLOCK=BLOCK)
    return out


@jit
def add_layer_norm_backward_kernel(
    grad, x, residual, weight, grad_x, grad_weight, grad_bias, rows, cols, eps, BLOCK: tl.constexpr
):
    share = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < cols
    w = load(weight + col, inside)
    sum_weight = tl.zeros((BLOCK,), tl.float32)
    sum_bias = tl.zeros((BLOCK,), tl.float32)
    for row in range(share, rows, tl.num_programs(0)):
        normal, scale = normalized_row(x, residual, row, cols, eps, BLOCK)
        g = load(grad + row * cols + col, inside)
        sum_weight += g * normal
        sum_bias += g
        gw = g * w
        along = tl.sum(gw * normal, 0) / cols
        result = scale * (gw - tl.sum(gw, 0) / cols - normal * along)
        tl.store(grad_x + row * cols + col, result, mask=inside)
    tl.store(grad_weight + share * cols + col, sum_weight, mask=inside)
    tl.store(grad_bias + share * cols + col, sum_bias, mask=inside)


@opgraft.custom_op("encoder::add_layer_norm_backward")
def add_layer_norm_backward(
    grad: Tensor, x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x (and so of residual), weight and bias."""
    grad, x, residual = grad.contiguous(), x.contiguous(), residual.contiguous()
    cols = x.shape[-1]
    grad_x = torch.empty_like(x)
    grad_weight, grad_bias = x.new_empty(2, SHARES, cols, dtype=torch.float32)
    BLOCK = triton.next_power_of_2(cols)
    add_layer_norm_backward_kernel[(SHARES,)](
        grad, x, residual, weight, grad_x, grad_weight, grad_bias, x.numel() // cols, cols, eps, BLOCK=BLOCK
    )
    return grad_x, grad_weight.sum(0).to(weight.dtype), grad_bias.sum(0).to(weight.dtype)


def add_layer_norm_setup(ctx, inputs, output):
    x, residual, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, residual, weight)


def add_layer_norm_gradient(ctx, grad):
    grad_x, grad_weight, grad_bias = add_layer_norm_backward(grad, *ctx.saved_tensors, ctx.eps)
    return grad_x, grad_x, grad_weight, grad_bias, None


add_layer_norm.register_autograd(add_layer_norm_gradient, setup_context=add_layer_norm_setup)


# bias_gelu: one program for a row's stretch of BLOCK columns -------------------------------------------

GELU_BLOCK = 512


@jit
def normal_cdf(x):
    """How likely a standard normal variable is below x."""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)


@jit
def bias_gelu_kernel(x, bias, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    v = load(x + row * cols + col, inside) + load(bias + col, inside)
    tl.store(out + row * cols + col, v * normal_cdf(v), mask=inside)


@opgraft.custom_op("encoder::bias_gelu")
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """GELU(x + bias), exact: v * P(Z <= v) with Z standard normal; x [..., cols], bias [cols]."""
    x = x.contiguous()
    out = torch.empty_like(x)
    cols = x.shape[-1]
    grid = (x.numel() // cols, triton.cdiv(cols, GELU_BLOCK))
    bias_gelu_kernel[grid](x, bias, out, cols, BLOCK=GELU_BLOCK)
    return out


@jit
def bias_gelu_backward_kernel(grad, x, bias, grad_x, grad_bias, rows, cols, BLOCK: tl.constexpr):
    share = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    b = load(bias + col, inside)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(share, rows, tl.num_programs(0)):
        v = load(x + row * cols + col, inside) + b
        density = 0.3989422804014327 * tl.exp(-0.5 * v * v)
        result = load(grad + row * cols + col, inside) * (normal_cdf(v) + v * density)
        total += result
        tl.store(grad_x + row * cols + col, result, mask=inside)
    tl.store(grad_bias + share * cols + col, total, mask=inside)


@opgraft.custom_op("encoder::bias_gelu_backward")
def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and bias."""
    grad, x = grad.contiguous(), x.contiguous()
    cols = x.shape[-1]
    grad_x, grad_bias = torch.empty_like(x), x.new_empty(SHARES, cols, dtype=torch.float32)
    grid = (SHARES, triton.cdiv(cols, GELU_BLOCK))
    bias_gelu_backward_kernel[grid](grad, x, bias, grad_x, grad_bias, x.numel() // cols, cols, BLOCK=GELU_BLOCK)
    return grad_x, grad_bias.sum(0).to(bias.dtype)


def bias_gelu_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def bias_gelu_gradient(ctx, grad):
    return bias_gelu_backward(grad, *ctx.saved_tensors)


bias_gelu.register_autograd(bias_gelu_gradient, setup_context=bias_gelu_setup)


# masked_softmax: one program a row of scores -----------------------------------------------------------


@jit
def masked_softmax_kernel(scores, mask, out, keys, rows_per_sentence, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    key = tl.arange(0, BLOCK)
    inside = key < keys
    word = tl.load(mask + row // rows_per_sentence * keys + key, mask=inside, other=0) != 0
    score = load(scores + row * keys + key, inside) * scale
    score = tl.where(word, score, -float("inf"))
    power = tl.exp(score - tl.max(score, 0))
    tl.store(out + row * keys + key, power / tl.sum(power, 0), mask=inside)


@opgraft.custom_op("encoder::masked_softmax")
def masked_softmax(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(scores * scale) over the keys where mask holds; every sentence has at least one.

    scores [sentences, heads, queries, keys], mask [sentences, keys] of bool or integers.
    """
    scores, mask = scores.contiguous(), mask.contiguous()
    out = torch.empty_like(scores)
    sentences, heads, queries, keys = scores.shape
    if keys > MAX_TOKENS:
        raise ValueError(f"masked_softmax: at most {MAX_TOKENS} keys, got {keys}; cut the sentences")
    grid = (sentences * heads * queries,)
    masked_softmax_kernel[grid](scores, mask, out, keys, heads * queries, scale, BLOCK=MAX_TOKENS)
    return out


@jit
def masked_softmax_backward_kernel(grad, out, grad_scores, keys, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    key = tl.arange(0, BLOCK)
    inside = key < keys
    g = load(grad + row * keys + key, inside)
    p = load(out + row * keys + key, inside)
    tl.store(grad_scores + row * keys + key, scale * p * (g - tl.sum(g * p, 0)), mask=inside)


@opgraft.custom_op("encoder::masked_softmax_backward")
def masked_softmax_backward(grad: Tensor, out: Tensor, scale: float) -> Tensor:
    """The gradient of the scores, from that of the result and the result itself."""
    grad, out = grad.contiguous(), out.contiguous()
    grad_scores = torch.empty_like(out)
    keys = out.shape[-1]
    masked_softmax_backward_kernel[(out.numel() // keys,)](grad, out, grad_scores, keys, scale, BLOCK=MAX_TOKENS)
    return grad_scores


def masked_softmax_setup(ctx, inputs, output):
    ctx.scale = inputs[2]
    ctx.save_for_backward(output)


def masked_softmax_gradient(ctx, grad):
    (out,) = ctx.saved_tensors
    return masked_softmax_backward(grad, out, ctx.scale), None, None


masked_softmax.register_autograd(masked_softmax_gradient, setup_context=masked_softmax_setup)


# mean_pool: one program a sentence ---------------------------------------------------------------------


@jit
def sum_of_words(hidden, mask, sentence, tokens, cols, BLOCK: tl.constexpr):
    """The sum of a sentence's word vectors, and its length."""
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for token in range(tokens):
        word = tl.load(mask + sentence * tokens + token).to(tl.float32)
        at = (sentence * tokens + token) * cols + col
        total += word * load(hidden + at, col < cols)
    return total, tl.sqrt(tl.sum(total * total, 0))


@jit
def mean_pool_kernel(hidden, mask, out, tokens, cols, BLOCK: tl.constexpr):
    sentence = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    total, length = sum_of_words(hidden, mask, sentence, tokens, cols, BLOCK)
    tl.store(out + sentence * cols + col, total / length, mask=col < cols)


@opgraft.custom_op("encoder::mean_pool")
def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean of each sentence's word vectors, scaled to length 1: [sentences, cols].

    hidden [sentences, tokens, cols], mask [sentences, tokens], 1 for a word and 0 for padding. Scaling cancels
    the number of words, so the kernel scales the sum.
    """
    hidden, mask = hidden.contiguous(), mask.contiguous()
    sentences, tokens, cols = hidden.shape
    out = hidden.new_empty(sentences, cols)
    mean_pool_kernel[(sentences,)](hidden, mask, out, tokens, cols, BLOCK=triton.next_power_of_2(cols))
    return out


@jit
def mean_pool_backward_kernel(grad, hidden, mask, grad_hidden, tokens, cols, BLOCK: tl.constexpr):
    sentence = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < cols
    total, length = sum_of_words(hidden, mask, sentence, tokens, cols, BLOCK)
    unit = total / length
    g = load(grad + sentence * cols + col, inside)
    result = (g - unit * tl.sum(g * unit, 0)) / length
    for token in range(tokens):
        word = tl.load(mask + sentence * tokens + token).to(tl.float32)
        tl.store(grad_hidden + (sentence * tokens + token) * cols + col, word * result, mask=inside)


@opgraft.custom_op("encoder::mean_pool_backward")
def mean_pool_backward(grad: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the word vectors."""
    grad, hidden, mask = grad.contiguous(), hidden.contiguous(), mask.contiguous()
    grad_hidden = torch.empty_like(hidden)
    sentences, tokens, cols = hidden.shape
    BLOCK = triton.next_power_of_2(cols)
    mean_pool_backward_kernel[(sentences,)](grad, hidden, mask, grad_hidden, tokens, cols, BLOCK=BLOCK)
    return grad_hidden


def mean_pool_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def mean_pool_gradient(ctx, grad):
    return mean_pool_backward(grad, *ctx.saved_tensors), None


mean_pool.register_autograd(mean_pool_gradient, setup_context=mean_pool_setup)

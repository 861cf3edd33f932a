"""The example's four ops against PyTorch in double precision, values and gradients."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from encoder_ops import MAX_TOKENS, add_layer_norm, bias_gelu, masked_softmax, mean_pool
from torch import Tensor


@pytest.fixture(autouse=True)
def _everything_on(device: str) -> Iterator[None]:
    """Each test holds for CPU and CUDA alike: what it makes lies there."""
    with torch.device(device):
        yield


def plain_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x + residual, x.shape[-1:], weight, bias, eps)


def plain_bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def plain_masked_softmax(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    return (scores * scale).masked_fill(mask[:, None, None] == 0, -torch.inf).softmax(-1)


def plain_mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    words = mask.unsqueeze(-1)
    return F.normalize((hidden * words).sum(1) / words.sum(1), dim=-1)


def mask_of(sentences: int, tokens: int) -> Tensor:
    """Sentences that grow shorter, down to one word."""
    words = torch.linspace(tokens, 1, sentences).round()
    return (torch.arange(tokens) < words[:, None]).long()


# Relative and absolute tolerance of values and gradients; a gradient's absolute one is of its largest element.
TOLERANCES = {torch.float32: (1e-5, 1e-6, 1e-4, 1e-5), torch.float16: (2e-3,) * 4, torch.bfloat16: (2e-2,) * 4}


def assert_agrees(
    op: Callable[..., Tensor], plain: Callable[..., Tensor], *args: object, dtype: torch.dtype = torch.float32
) -> None:
    """`op` in `dtype` gives what `plain` gives in double precision for the same numbers, and so do their gradients."""

    def leaf(value: object, kind: torch.dtype) -> object:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.detach().to(dtype).to(kind, copy=True).requires_grad_()
        return value

    torch.manual_seed(1)
    ours = [leaf(value, dtype) for value in args]
    exact = [leaf(value, torch.float64) for value in args]
    result, expected = op(*ours), plain(*exact)
    assert result.dtype == dtype
    rtol, atol, grad_rtol, grad_atol = TOLERANCES[dtype]
    torch.testing.assert_close(result.double(), expected, rtol=rtol, atol=atol)
    grad = torch.randn_like(expected).to(dtype).double()
    result.backward(grad.to(dtype))
    expected.backward(grad)
    for mine, right in zip(ours, exact, strict=True):
        if isinstance(mine, Tensor) and mine.requires_grad:
            assert mine.grad.dtype == dtype
            size = right.grad.abs().max().item()
            torch.testing.assert_close(mine.grad.double(), right.grad, rtol=grad_rtol, atol=grad_atol * size)


@pytest.mark.parametrize("shape", [(2, 7, 384), (1, 24), (3, 100), (70, 16)])
def test_add_layer_norm(shape: tuple[int, ...]) -> None:
    x, residual = torch.randn(shape), torch.randn(shape)
    assert_agrees(add_layer_norm, plain_layer_norm, x, residual, torch.randn(shape[-1]), torch.randn(shape[-1]), 1e-5)


@pytest.mark.parametrize("shape", [(2, 7, 1536), (1, 1), (70, 513)])
def test_bias_gelu(shape: tuple[int, ...]) -> None:
    assert_agrees(bias_gelu, plain_bias_gelu, 3 * torch.randn(shape), torch.randn(shape[-1]))


@pytest.mark.parametrize("tokens", [1, 5, 16, 129, MAX_TOKENS])
def test_masked_softmax(tokens: int) -> None:
    scores = 4 * torch.randn(3, 2, tokens, tokens)
    assert_agrees(masked_softmax, plain_masked_softmax, scores, mask_of(3, tokens), 0.5)


def test_masked_softmax_with_a_mask_of_bool() -> None:
    mask = mask_of(3, 9)
    scores = torch.randn(3, 2, 9, 9)
    # Two kernels, which may add up a row in another order.
    torch.testing.assert_close(masked_softmax(scores, mask.bool(), 0.5), masked_softmax(scores, mask, 0.5))


def test_masked_softmax_gives_padding_no_weight() -> None:
    weights = masked_softmax(torch.randn(2, 1, 8, 8), mask_of(2, 8), 1.0)
    assert torch.all(weights[1, :, :, 1:] == 0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 8))


def test_masked_softmax_refuses_a_sentence_longer_than_its_block() -> None:
    tokens = MAX_TOKENS + 1
    with pytest.raises(ValueError, match="at most 512 keys, got 513; cut the sentences"):
        masked_softmax(torch.zeros(1, 1, 2, tokens), mask_of(1, tokens), 1.0)


@pytest.mark.parametrize(("sentences", "tokens", "cols"), [(2, 7, 384), (1, 1, 3), (5, 40, 100)])
def test_mean_pool(sentences: int, tokens: int, cols: int) -> None:
    assert_agrees(mean_pool, plain_mean_pool, torch.randn(sentences, tokens, cols), mask_of(sentences, tokens))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_models_in_half_precision(dtype: torch.dtype) -> None:
    x, residual, weight, bias = (torch.randn(shape) for shape in ((2, 7, 384), (2, 7, 384), (384,), (384,)))
    assert_agrees(add_layer_norm, plain_layer_norm, x, residual, weight, bias, 1e-5, dtype=dtype)
    assert_agrees(bias_gelu, plain_bias_gelu, x, bias, dtype=dtype)
    assert_agrees(masked_softmax, plain_masked_softmax, torch.randn(3, 2, 9, 9), mask_of(3, 9), 0.5, dtype=dtype)
    assert_agrees(mean_pool, plain_mean_pool, x, mask_of(2, 7), dtype=dtype)


def test_inputs_and_gradients_that_are_not_contiguous() -> None:
    x, residual = torch.randn(384, 6).T, torch.randn(6, 768)[:, ::2]
    x.requires_grad_()
    weight, bias = torch.rand(384), torch.rand(384)
    result = add_layer_norm(x, residual, weight, bias, 1e-5)
    expected = plain_layer_norm(x.double(), residual.double(), weight.double(), bias.double(), 1e-5)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(result[:, 0].sum(), x)  # its gradient comes as a strided expansion
    (right,) = torch.autograd.grad(expected[:, 0].sum(), x)
    torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-5)


CALLS = {
    "add_layer_norm": (torch.rand(4, 8), torch.rand(4, 8), torch.rand(8), torch.rand(8), 1e-5),
    "bias_gelu": (torch.rand(4, 8), torch.rand(8)),
    "masked_softmax": (torch.rand(2, 1, 4, 4), torch.ones(2, 4, dtype=torch.long), 0.5),
    "mean_pool": (torch.rand(2, 4, 8), torch.ones(2, 4, dtype=torch.long)),
}


@pytest.mark.parametrize("name", CALLS)
def test_pytorch_own_check_of_an_op_passes(name: str, device: str) -> None:
    args = tuple(arg.to(device, copy=True) if isinstance(arg, Tensor) else arg for arg in CALLS[name])
    for arg in args:
        if isinstance(arg, Tensor) and arg.is_floating_point():
            arg.requires_grad_()
    torch.library.opcheck(getattr(torch.ops.encoder, name).default, args)

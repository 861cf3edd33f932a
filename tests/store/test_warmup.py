"""Stand-ins for tensors."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode

from opgraft.jit.warmup import MockTensor, wrap


def test_a_mock_tensor_is_one_of_tritons_to_who_asks():
    assert isinstance(MockTensor(torch.float32), triton.runtime.jit.MockTensor)


def test_it_has_dtype_shape_and_strides_of_the_tensor_it_stands_for():
    tensor = torch.empty(2, 3, 4)
    mock = MockTensor(torch.float32, [2, 3, 4])
    assert mock.dtype is tensor.dtype and mock.ndim == mock.dim() == tensor.dim()
    assert mock.stride() == tensor.stride() == (12, 4, 1)
    assert [mock.stride(dim) for dim in range(3)] == [12, 4, 1] and mock.stride(-1) == 1
    assert mock.size() == tuple(tensor.size()) and mock.size(1) == 3
    assert mock.numel() == 24 and mock.element_size() == 4
    assert mock.data_ptr() == 0, "as if aligned"


def test_without_a_shape_it_has_one_element():
    mock = MockTensor(torch.int8)
    assert list(mock.shape) == [1] and mock.stride() == (1,) and mock.numel() == 1


def test_strides_can_be_given():
    assert MockTensor(torch.int8, (4, 4), (1, 4)).stride() == (1, 4)
    with pytest.raises(ValueError, match="1 strides for 2 dimensions"):
        MockTensor(torch.int8, (4, 4), (1,))


def test_a_dtype_is_wrapped():
    mock = wrap(torch.float16)
    assert isinstance(mock, MockTensor) and mock.dtype is torch.float16
    assert isinstance(MockTensor.wrap_dtype(torch.float16), MockTensor)


class Pair(NamedTuple):
    a: object
    b: object


@pytest.mark.parametrize("argument", [1, 2.5, None, "text", True, (1, 2), Pair(1, None)], ids=repr)
def test_what_is_no_tensor_stays(argument):
    assert wrap(argument) is argument


def test_a_tensor_stays():
    tensor = torch.empty(3)
    assert wrap(tensor) is tensor


def test_a_fake_tensor_becomes_a_mock_of_its_layout_and_device():
    with FakeTensorMode():
        fake = torch.empty(4, 6, device="cuda").t()
    mock = wrap(fake)
    assert isinstance(mock, MockTensor)
    assert mock.dtype is torch.float32 and tuple(mock.shape) == (6, 4) and mock.stride() == (1, 6)
    assert mock.device == torch.device("cuda", 0)


def test_a_meta_tensor_becomes_a_mock():
    mock = wrap(torch.empty(5, device="meta", dtype=torch.bfloat16))
    assert isinstance(mock, MockTensor) and mock.dtype is torch.bfloat16 and tuple(mock.shape) == (5,)


def test_a_functional_fake_tensor_becomes_a_mock():
    def record(x):
        seen.append(wrap(x))
        return x + 1

    seen = []
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.empty(3))
        torch.func.functionalize(record)(fake)
    assert isinstance(seen[0], MockTensor) and tuple(seen[0].shape) == (3,)


def test_tuples_are_searched():
    with FakeTensorMode():
        fake = torch.empty(3)
    plain = wrap((1, fake, (torch.int32,)))
    assert plain[0] == 1 and isinstance(plain[1], MockTensor) and isinstance(plain[2][0], MockTensor)
    named = wrap(Pair(fake, 2))
    assert type(named) is Pair and isinstance(named.a, MockTensor) and named.b == 2


def test_a_descriptor_over_a_fake_tensor_is_one_over_a_mock():
    from triton.tools.tensor_descriptor import TensorDescriptor

    real = TensorDescriptor.from_tensor(torch.empty(64, 64), [16, 16])
    assert wrap(real) is real
    with FakeTensorMode():
        fake = torch.empty(64, 64)
    descriptor = object.__new__(TensorDescriptor)
    vars(descriptor).update({**vars(real), "base": fake})
    wrapped = wrap(descriptor)
    assert isinstance(wrapped, TensorDescriptor) and isinstance(wrapped.base, MockTensor)
    assert list(wrapped.block_shape) == [16, 16] and list(wrapped.shape) == [64, 64]

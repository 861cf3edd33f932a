"""The device of a launch comes from its tensors."""

import types

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from opgraft.jit import MockTensor, device, jit, reinterpret


def fake(kind, index=None, pinned=False):
    """Something with an address on a device that this machine may not have."""
    return types.SimpleNamespace(
        device=torch.device(kind, index) if index is not None else torch.device(kind),
        data_ptr=lambda: 0,
        is_pinned=lambda: pinned,
        dtype=torch.float32,
    )


CPU = torch.zeros(16)


def choose(*args, **kwargs):
    return device.choose("kernel", args, kwargs, ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((CPU,), {}),
        ((1, None, CPU, 2.0), {}),
        ((), {"x": CPU}),
        (((1, (CPU,)),), {}),
        ((TensorDescriptor.from_tensor(CPU.view(4, 4), [4, 4]),), {}),
        ((reinterpret(CPU, torch.int32),), {}),
        ((CPU, torch.nn.Parameter(CPU)), {"z": CPU[1:]}),
    ],
)
def test_tensors_on_the_cpu_choose_the_cpu(args, kwargs):
    found = choose(*args, **kwargs)
    assert found.kind == "cpu" and found.index == 0
    assert found.target().backend == "cpu"


@pytest.mark.parametrize("args", [(1, 2.0), (), (None,), (triton.MockTensor(torch.float32),)])
def test_without_a_tensor_the_active_driver_serves(args):
    found = choose(*args)
    assert found.driver is triton.runtime.driver.active
    assert found.key == triton.runtime.driver.active.get_current_device()


@pytest.mark.parametrize(
    "args, kwargs, shown",
    [
        ((CPU, fake("cuda", 0)), {}, "a: cpu, b: cuda:0"),
        ((CPU,), {"y": fake("cuda", 1)}, "a: cpu, y: cuda:1"),
        (((CPU, fake("cuda", 0)),), {}, r"a\[0\]: cpu, a\[1\]: cuda:0"),
        ((fake("cuda", 0), fake("cuda", 1)), {}, "a: cuda:0, b: cuda:1"),
    ],
)
def test_tensors_on_several_devices_are_refused_by_name(args, kwargs, shown):
    with pytest.raises(
        ValueError, match=rf"kernel: Pointer argument cannot be accessed from Triton \(cpu tensor\?\).*{shown}"
    ):
        choose(*args, **kwargs)


def test_a_device_that_this_machine_lacks_is_refused_with_what_to_do():
    kind = "cuda" if not torch.cuda.is_available() else "xpu"
    with pytest.raises(
        RuntimeError, match=rf"(?s)no Triton backend can launch on '{kind}' tensors here .*variant\(GPUTarget"
    ):
        choose(fake(kind, 0))


def test_pinned_memory_goes_with_the_gpu(monkeypatch):
    chosen = []
    monkeypatch.setattr(device, "of_kind", lambda kind, index: chosen.append((kind, index)))
    choose(fake("cuda", 0), fake("cpu", pinned=True))
    choose(fake("cpu", pinned=True), 3)
    assert chosen == [("cuda", 0), ("cpu", None)]


def test_stand_ins_for_meta_tensors_have_no_device_and_meta_tensors_are_refused():
    assert choose(MockTensor(torch.float32, device="meta")).driver is triton.runtime.driver.active
    assert choose(MockTensor(torch.float32, device="cpu")).kind == "cpu"
    with pytest.raises(TypeError, match=r"argument 'b' is on the meta device and has no memory .*kernel.warmup"):
        choose(CPU, torch.empty(4, device="meta"))


def test_a_kernel_has_caches_for_each_device():
    @jit
    def kernel(x):
        pass

    assert len(kernel.device_caches) == 0
    kernels, first_keys, target, backend, binder = kernel.device_caches["cpu"]
    assert (kernels, first_keys) == ({}, {})
    assert target.backend == "cpu" == backend.target.backend
    assert callable(binder)
    assert kernel.device_caches["cpu"][0] is kernels
    # By index where the CPU's driver is the active one, as in Triton.
    is_active = triton.runtime.driver.active.get_current_target().backend == "cpu"
    assert list(kernel.device_caches) == [0 if is_active else "cpu"]


@pytest.mark.gpu
def test_cpu_and_cuda_live_side_by_side():
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    assert choose(CPU).kind == "cpu"
    on_gpu = choose(CPU.cuda())
    assert on_gpu.kind == "cuda" and on_gpu.key == 0
    assert choose(CPU).key == "cpu"


@pytest.mark.gpu
def test_a_tensor_on_the_second_gpu_chooses_it():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    found = choose(CPU.to("cuda:1"))
    assert found.index == 1
    assert torch.cuda.current_device() == 0
    with found.current():
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0

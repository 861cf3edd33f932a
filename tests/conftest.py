"""What every test may use: the devices of this machine, and caches that no other run has touched."""

import os
import sys

import pytest

# Tests edit modules and import them again, in less time than the stamps of bytecode files tell apart.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# A change of ours must show: Inductor's graph caches are off, and tests of caches turn them on. (Its folder stays the
# user's: it holds a precompiled header that takes a minute to make.)
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available() and torch.version.hip is None


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU where there is none, and what cannot be where there is one."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    on_cpu = [item for item in items if item.get_closest_marker("cpu_active")]
    if (gpu or on_cpu) and _has_gpu():
        reason = "needs the CPU to be Triton's active device, which is the GPU here"
        for item in on_cpu:
            item.add_marker(pytest.mark.skip(reason=reason))
    else:
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch sees none here"))


@pytest.fixture(scope="session", autouse=True)
def _own_caches(tmp_path_factory):
    """Kernels are stored in a folder of this run, so that no test sees the results of another run."""
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("kernels"))
    from opgraft.jit.native import extension

    extension()  # otherwise it is built beside the first tests, whose launches would go through Python
    yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Each device: a test that takes it holds for CPU and CUDA alike."""
    return request.param

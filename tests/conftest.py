"""What every test may use: the devices of this machine, and caches that no other run has touched."""

import os

import pytest


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available() and torch.version.hip is None


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU where there is none."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not _has_gpu():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch sees none here"))


@pytest.fixture(scope="session", autouse=True)
def _own_caches(tmp_path_factory):
    """Kernels and graphs are stored in a folder of this run, so that no test sees the results of another run."""
    folder = tmp_path_factory.mktemp("caches")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Each device: a test that takes it holds for CPU and CUDA alike."""
    return request.param

"""opgraft: kernels written once in the Triton language become real PyTorch ops."""

__version__ = "0.1.0"

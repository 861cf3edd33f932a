"""The CPU driver for Triton (entry point group `triton.backends`, name `cpu`)."""

from triton.backends.driver import DriverBase


class CPUDriver(DriverBase):
    @classmethod
    def is_active(cls):
        return False

    def map_python_to_cpp_type(self, ty):
        raise NotImplementedError

    def get_current_target(self):
        raise NotImplementedError

    def get_active_torch_device(self):
        raise NotImplementedError

    def get_benchmarker(self):
        raise NotImplementedError

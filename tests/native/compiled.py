"""Real kernels for these tests: C functions of the CPU backend's calling convention, compiled by gcc."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import subprocess
import tempfile

_WIDTHS = {
    **dict.fromkeys("PAlLuUd", 8),
    **dict.fromkeys("iIwWf", 4),
    **dict.fromkeys("sStThg", 2),
    **dict.fromkeys("bBcCo", 1),
}


@functools.cache
def compile_c(source: str) -> ctypes.CDLL:
    """The source as a loaded library."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.so")
        command = ["gcc", "-O1", "-fopenmp", "-shared", "-fPIC", "-x", "c", "-", "-o", path]
        subprocess.run(command, input=source.encode(), check=True)
        return ctypes.CDLL(path)


def address_of(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address
    return address


_ECHOES = 64
_ECHO_SOURCE = """
    #include <stdint.h>
    #include <string.h>
    struct { int64_t calls, n, widths[64]; uint64_t record[64]; int32_t launched[4]; } state[%(n)d];
    static void echo(int which, int32_t x, int32_t y, int32_t z, int32_t threads, void** args) {
      int32_t launched[4] = {x, y, z, threads};
      memcpy(state[which].launched, launched, sizeof launched);
      memset(state[which].record, 0, sizeof state[which].record);
      for (int i = 0; i < state[which].n; ++i)
        memcpy(&state[which].record[i], args[i], state[which].widths[i]);
      __atomic_add_fetch(&state[which].calls, 1, __ATOMIC_RELAXED);
    }
    %(functions)s
"""
_counter = itertools.count()


class _State(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("widths", ctypes.c_int64 * 64),
        ("record", ctypes.c_uint64 * 64),
        ("launched", ctypes.c_int32 * 4),
    )


class EchoKernel:
    """A kernel for `codes` that writes down what it was called with.

    `received()` returns the raw bytes of each parameter, `grid` and `threads` what came with them, `calls`
    often. There are 64 of them, which take turns.
    """

    def __init__(self, codes: str) -> None:
        functions = "\n".join(
            f"void kernel{i}(int32_t x, int32_t y, int32_t z, int32_t t, void** args)"
            f" {{ echo({i}, x, y, z, t, args); }}"
            for i in range(_ECHOES)
        )
        library = compile_c(_ECHO_SOURCE % {"n": _ECHOES, "functions": functions})
        index = next(_counter) % _ECHOES
        self._state = (_State * _ECHOES).in_dll(library, "state")[index]
        widths = [_WIDTHS[code] for code in codes if code in _WIDTHS]
        ctypes.memset(ctypes.addressof(self._state), 0, ctypes.sizeof(self._state))
        self._state.n = len(widths)
        self._state.widths[: len(widths)] = widths
        self.address = address_of(library, f"kernel{index}")

    def received(self) -> list[int]:
        return list(self._state.record)[: self._state.n]

    @property
    def grid(self) -> tuple[int, int, int]:
        x, y, z, _ = self._state.launched
        return x, y, z

    @property
    def threads(self) -> int:
        return self._state.launched[3]

    @property
    def calls(self) -> int:
        return self._state.calls


ADD_ONE = """
    #include <stdint.h>
    /* x[program * block ...] += 1 for the first n elements, programs shared out over threads */
    void add_one(int32_t gx, int32_t gy, int32_t gz, int32_t threads, void** args) {
      float* x = *(float**)args[0];
      int32_t n = *(int32_t*)args[1];
      int32_t block = (n + gx - 1) / gx;
      #pragma omp parallel for num_threads(threads) if (threads > 1)
      for (int32_t program = 0; program < gx; ++program)
        for (int32_t i = program * block; i < n && i < (program + 1) * block; ++i) x[i] += 1.0f;
    }
"""


def add_one() -> int:
    """The address of a kernel (float* x, int32 n) that adds 1 to n elements."""
    return address_of(compile_c(ADD_ONE), "add_one")

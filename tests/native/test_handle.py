"""A handle launches one compiled kernel: what it receives, what is refused, where a refused call goes."""

from __future__ import annotations

import gc
import os
import struct
import sys
import threading
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opgraft.jit.native import make_handle
from opgraft.jit.native.python_handle import PythonHandle

from .compiled import EchoKernel, add_one, address_of, compile_c

BOTH = pytest.mark.parametrize("python", [False, True], ids=["c", "python"])


def handle_for(python: bool, address: int, codes: str, **options):
    """The C handle, or the one that serves without a C compiler."""
    names = tuple(f"arg{i}" for i in range(len(codes)))
    if python:
        return PythonHandle(address, codes, "kernel", names, **options)
    return make_handle("cpu", address, codes, name="kernel", argument_names=names, **options)


def bits(kind: str, value) -> int:
    return int.from_bytes(struct.pack("<" + kind, value).ljust(8, b"\0"), "little")


# code -> (a value, the bits that the kernel must find)
PASSED = {
    "b": (-5, bits("b", -5)),
    "B": (250, 250),
    "s": (-300, bits("h", -300)),
    "S": (65535, 65535),
    "i": (-70000, bits("i", -70000)),
    "w": (2**32 - 1, 2**32 - 1),
    "l": (-(2**40), bits("q", -(2**40))),
    "u": (2**64 - 1, 2**64 - 1),
    "c": (-16, bits("b", -16)),
    "C": (240, 240),
    "t": (-320, bits("h", -320)),
    "T": (320, 320),
    "I": (-64, bits("i", -64)),
    "W": (2**31, 2**31),
    "L": (2**40, 2**40),
    "U": (2**64 - 16, 2**64 - 16),
    "o": (True, 1),
    "h": (1.5, bits("e", 1.5)),
    "g": (1.5, 0x3FC0),
    "f": (0.1, bits("f", 0.1)),
    "d": (0.1, bits("d", 0.1)),
}


@BOTH
@pytest.mark.parametrize("code", PASSED)
def test_a_scalar_arrives_at_its_width(python, code):
    value, expected = PASSED[code]
    kernel = EchoKernel(code)
    handle_for(python, kernel.address, code)(None, value, 1, 1, 1)
    assert kernel.received() == [expected]


@BOTH
def test_a_pointer_is_a_tensor_an_address_or_none(python):
    kernel = EchoKernel("PPPP")
    tensor, parameter = torch.zeros(4), torch.nn.Parameter(torch.zeros(2))
    handle_for(python, kernel.address, "PPPP")(None, tensor[1:], parameter, 4096, None, 1, 1, 1)
    assert kernel.received() == [tensor.data_ptr() + 4, parameter.data_ptr(), 4096, 0]


@BOTH
def test_anything_with_data_ptr_is_a_pointer(python):
    class Wrapper:
        def data_ptr(self):
            return 1234

    class Subclass(torch.Tensor):
        pass

    kernel = EchoKernel("PP")
    tensor = torch.zeros(3)
    handle_for(python, kernel.address, "PP")(None, Wrapper(), tensor.as_subclass(Subclass), 1, 1, 1)
    assert kernel.received() == [1234, tensor.data_ptr()]


@BOTH
def test_specialized_and_constexpr_arguments_are_not_passed(python):
    kernel = EchoKernel("i1xNi")
    handle_for(python, kernel.address, "i1xNi")(None, 7, 1, object(), None, 9, 1, 1, 1)
    assert kernel.received() == [7, 9]


@BOTH
def test_the_grid_arrives_and_a_zero_axis_launches_nothing(python):
    kernel = EchoKernel("")
    handle = handle_for(python, kernel.address, "")
    handle(None, 2, 3, 4)
    assert kernel.grid == (2, 3, 4)
    for grid in ((0, 3, 4), (2, 0, 4), (2, 3, 0)):
        handle(None, *grid)
    assert kernel.calls == 1


REFUSED = [
    ("i", 2**31, "fits int32"),
    ("i", -(2**31) - 1, "fits int32"),
    ("i", 2**70, "fits int32"),
    ("I", 17, "multiple of 16"),
    ("l", 2**63, "fits int64"),
    ("L", 8, "multiple of 16"),
    ("u", -1, "fits uint64"),
    ("u", 2**64, "fits uint64"),
    ("U", 2**64 - 1, "multiple of 16"),
    ("b", 128, "fits int8"),
    ("B", -1, "fits uint8"),
    ("s", 2**15, "fits int16"),
    ("S", 2**16, "fits uint16"),
    ("w", 2**32, "fits uint32"),
    ("o", 2, "bool"),
    ("1", 2, "the int 1"),
    ("N", 0, "None"),
    ("A", 24, "multiple of 16"),
]


@BOTH
@pytest.mark.parametrize(("code", "value", "expected"), REFUSED)
def test_a_value_outside_the_specialization_is_an_error_that_names_the_argument(python, code, value, expected):
    kernel = EchoKernel("i" + code)
    with pytest.raises(ValueError, match=rf"kernel: argument arg1 must be .*{expected}.*, got {value}"):
        handle_for(python, kernel.address, "i" + code)(None, 1, value, 1, 1, 1)
    assert kernel.calls == 0


@BOTH
@pytest.mark.parametrize(("code", "value"), [("i", 1.5), ("i", "1"), ("f", "x"), ("P", "x"), ("u", 1.5), ("1", None)])
def test_a_value_of_the_wrong_kind_is_a_type_error_that_names_the_argument(python, code, value):
    kernel = EchoKernel(code)
    with pytest.raises(TypeError, match=r"kernel: argument arg0 must be "):
        handle_for(python, kernel.address, code)(None, value, 1, 1, 1)


@BOTH
def test_an_unaligned_tensor_is_refused_by_an_aligned_pointer(python):
    kernel = EchoKernel("A")
    tensor = torch.zeros(8)
    handle = handle_for(python, kernel.address, "A")
    handle(None, tensor, 1, 1, 1)
    with pytest.raises(ValueError, match="address is a multiple of 16, got Tensor"):
        handle(None, tensor[1:], 1, 1, 1)


@BOTH
@pytest.mark.parametrize(("code", "value"), [(code, value) for code, value, _ in REFUSED])
def test_a_failed_guard_takes_the_whole_call_to_the_fallback(python, code, value):
    kernel, seen = EchoKernel("i" + code), []
    handle = handle_for(python, kernel.address, "i" + code, fallback=lambda *args: seen.append(args) or "result")
    assert handle(17, 1, value, 2, 3, 4) == "result"
    assert seen == [(17, 1, value, 2, 3, 4)]
    assert kernel.calls == 0


def test_a_fallback_may_be_another_handle():
    special, general = EchoKernel("I"), EchoKernel("i")
    handle = make_handle(
        "cpu",
        special.address,
        "I",
        name="special",
        fallback=make_handle("cpu", general.address, "i", name="general"),
    )
    handle(None, 32, 1, 1, 1)
    handle(None, 33, 1, 1, 1)
    assert (special.calls, general.calls, general.received()) == (1, 1, [33])


@BOTH
def test_the_number_of_arguments_is_checked(python):
    handle = handle_for(python, EchoKernel("ii").address, "ii")
    with pytest.raises(
        TypeError, match=r"kernel: expected a stream, 2 arguments and three grid axes.*got 5 positional"
    ):
        handle(None, 1, 1, 1, 1)


@BOTH
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_grid_axis_must_be_an_int_in_range(python, axis):
    handle = handle_for(python, EchoKernel("").address, "")
    for value in (-1, 2**31, 2**80):
        with pytest.raises(
            ValueError, match=f"kernel: axis {axis} of the grid must be from 0 to 2147483647, got {value}"
        ):
            handle(None, *[value if i == axis else 1 for i in range(3)])
    with pytest.raises(TypeError, match=f"kernel: axis {axis} of the grid must be an int, got a float"):
        handle(None, *[1.0 if i == axis else 1 for i in range(3)])


def test_a_handle_is_refused_when_it_is_described_wrongly():
    with pytest.raises(ValueError, match="unknown argument code '%' in 'i%'"):
        make_handle("cpu", 1, "i%", name="kernel")
    with pytest.raises(ValueError, match="kind must be 'cpu' or 'cuda', got 'tpu'"):
        make_handle("tpu", 1, "", name="kernel")
    with pytest.raises(ValueError, match="kernel: the address of the compiled function is 0"):
        make_handle("cpu", 0, "", name="kernel")
    with pytest.raises(ValueError, match="kernel: 1 argument names for 2 codes"):
        make_handle("cpu", 1, "ii", name="kernel", argument_names=("a",))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_without_a_cuda_driver_a_cuda_handle_says_so():
    with pytest.raises(RuntimeError, match=r"the CUDA driver could not be loaded: .*libcuda"):
        make_handle("cuda", 1, "", name="kernel")


def test_the_number_of_threads_is_that_of_torch_and_never_more_than_programs():
    kernel = EchoKernel("")
    handle = make_handle("cpu", kernel.address, "", name="kernel")
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            handle(None, 100, 1, 1)
            assert kernel.threads == threads
            handle(None, 1, 2, 1)
            assert kernel.threads == min(threads, 2)
            handle(None, 1, 1, 1)
            assert kernel.threads == 1
    finally:
        torch.set_num_threads(before)


def test_a_forked_child_runs_a_kernel_in_one_thread():
    """After the parent used the pool: a child that waited for the pool's threads would wait for ever."""
    x = torch.zeros(1000)
    handle = make_handle("cpu", add_one(), "Pi", name="add_one")
    handle(None, x, 1000, 8, 1, 1)
    kernel = EchoKernel("")
    echo = make_handle("cpu", kernel.address, "", name="echo")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            handle(None, x, 1000, 8, 1, 1)
            echo(None, 8, 1, 1)
            os.write(write, b"ok" if kernel.threads == 1 and bool((x == 2).all()) else b"wrong")
        finally:
            os._exit(0)
    os.close(write)
    deadline = time.monotonic() + 30
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            pytest.fail("the child did not come back")
        time.sleep(0.01)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"ok"
    assert bool((x == 1).all())


def test_the_gil_is_free_while_a_kernel_runs():
    """A kernel that waits for a flag which only another Python thread can set."""
    source = """
        #include <stdint.h>
        #include <time.h>
        void wait_for(int32_t x, int32_t y, int32_t z, int32_t threads, void** args) {
          volatile int32_t* flag = *(volatile int32_t**)args[0];
          struct timespec pause = {0, 100000};
          for (int i = 0; i < 100000 && !flag[0]; ++i) nanosleep(&pause, 0);
          flag[1] = flag[0];
        }
    """
    handle = make_handle("cpu", address_of(compile_c(source), "wait_for"), "P", name="wait_for")
    flag = torch.zeros(2, dtype=torch.int32)
    thread = threading.Thread(target=handle, args=(None, flag, 1, 1, 1))
    thread.start()
    flag[0] = 7
    thread.join(20)
    assert flag.tolist() == [7, 7]


def test_a_handle_keeps_its_owner_and_lets_it_go():
    class Owner:
        pass

    owner = Owner()
    before = sys.getrefcount(owner)
    handle = make_handle("cpu", EchoKernel("").address, "", name="kernel", owner=owner)
    assert handle.owner is owner
    assert sys.getrefcount(owner) == before + 1
    del handle
    assert sys.getrefcount(owner) == before


def test_a_cycle_through_fallback_and_owner_is_collected():
    class Owner:
        pass

    import weakref

    owner = Owner()
    owner.handle = make_handle("cpu", EchoKernel("").address, "", name="kernel", owner=owner, fallback=owner)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_handle_describes_itself():
    handle = make_handle("cpu", 4096, "Pi", name="kernel", argument_names=("x", "n"))
    assert repr(handle) == "<Handle of cpu kernel kernel, codes 'Pi'>"
    assert (handle.kind, handle.codes, handle.function) == ("cpu", "Pi", 4096)
    assert (handle.name, handle.argument_names, handle.fallback) == ("kernel", ("x", "n"), None)


INTEGERS = (
    st.integers(-(2**66), 2**66) | st.integers(-70, 70) | st.integers(-(2**62), 2**62).map(lambda n: n // 16 * 16)
)
NUMBERS = st.floats(width=64) | INTEGERS.filter(lambda n: abs(n) < 2**1000) | st.booleans()
ANY = INTEGERS | NUMBERS | st.none() | st.text(max_size=2)
OUTCOME = (TypeError, ValueError, OverflowError)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_c_handle_does_what_the_python_handle_does(data):
    codes = "".join(data.draw(st.lists(st.sampled_from("PAbBsSiwlucCtTIWLUohgfd1Nx"), min_size=1, max_size=4)))
    values = [data.draw(NUMBERS if code in "hgfd" else ANY) for code in codes]
    grid = data.draw(st.tuples(*[st.integers(0, 3)] * 3))
    outcomes = []
    for python in (False, True):
        kernel = EchoKernel(codes)
        try:
            handle_for(python, kernel.address, codes)(None, *values, *grid)
        except OUTCOME as error:
            outcomes.append((type(error), str(error)))
        else:
            outcomes.append((kernel.calls, kernel.received(), kernel.grid))
    assert outcomes[0] == outcomes[1]

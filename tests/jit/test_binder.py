"""Binding: arguments by name, defaults, options apart; Python's errors name the kernel."""

import pytest
import torch
import triton.language as tl

from opgraft.jit import jit


@jit
def kernel(x, y, n=3, BLOCK: tl.constexpr = 64, *, MODE: tl.constexpr = None):
    pass


def bind(*args, **kwargs):
    return kernel.device_caches["cpu"][4](*args, **kwargs)


def test_arguments_have_names_and_defaults_and_options_are_apart():
    arguments, specialization, options = bind(None, 2.0, num_warps=8, BLOCK=32)
    assert arguments == {"x": None, "y": 2.0, "n": 3, "BLOCK": 32, "MODE": None}
    assert list(arguments) == kernel.arg_names
    assert specialization == [
        ("constexpr", None),
        ("fp32", None),
        ("i32", ""),
        ("constexpr", 32),
        ("constexpr", None),
    ]
    assert options == {"num_warps": 8}


def test_binding_alone_looks_at_no_value():
    class Opaque:
        def __getattr__(self, name):
            raise AssertionError(f"looked at {name}")

    value = Opaque()
    arguments, options = kernel.bind((value, [1]), {"num_warps": 2})
    assert arguments == {"x": value, "y": [1], "n": 3, "BLOCK": 64, "MODE": None}
    assert options == {"num_warps": 2}


def test_numpy_scalars_are_bound_as_python_numbers():
    import numpy as np

    arguments, _, _ = bind(np.int64(5), np.float32(0.5), BLOCK=np.int32(16))
    assert [type(arguments[name]) for name in ("x", "y", "BLOCK")] == [int, float, int]


def test_named_tuples_keep_their_class_and_unchanged_tuples_their_identity():
    import collections

    import numpy as np

    Point = collections.namedtuple("Point", "x y")
    same = (1, (2, 3))
    arguments, _, _ = bind(same, Point(np.int64(1), 2))
    assert arguments["x"] is same
    assert type(arguments["y"]) is Point and type(arguments["y"].x) is int


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((1,), {}, r"kernel\(\) missing 1 required positional argument: 'y'"),
        ((), {"y": 1}, r"kernel\(\) missing 1 required positional argument: 'x'"),
        ((1, 2, 3, 4, 5), {}, r"kernel\(\) takes .* positional arguments but 5 were given"),
        ((1, 2), {"x": 3}, r"kernel\(\) got multiple values for argument 'x'"),
    ],
)
def test_wrong_calls_are_refused_with_the_kernels_name(args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        bind(*args, **kwargs)


def test_a_parameter_may_have_any_name():
    @jit
    def odd(options, plain, constant, PLAIN: tl.constexpr, backend, default_x=1):
        pass

    binder = odd.device_caches["cpu"][4]
    arguments, _, options = binder(1, 2, 3, 4, 5, num_warps=1)
    assert arguments == {"options": 1, "plain": 2, "constant": 3, "PLAIN": 4, "backend": 5, "default_x": 1}
    assert options == {"num_warps": 1}


def test_positional_rest_is_a_tuple():
    @jit
    def variadic(x, *rest):
        pass

    arguments, specialization, _ = variadic.device_caches["cpu"][4](1, 2, torch.zeros(4))
    assert arguments["rest"][0] == 2 and len(arguments["rest"]) == 2
    assert specialization[1][0] == ("i32", "*fp32")

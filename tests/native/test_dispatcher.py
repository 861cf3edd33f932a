"""A dispatcher launches what was launched before, when nothing that matters has changed; else it says so."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opgraft.jit.native import extension, make_handle

from .compiled import EchoKernel

native = extension()
MISSING = native.MISSING


@pytest.fixture(autouse=True)
def _quiet_environment():
    """An environment of our own, which holds. Other tests set theirs anew when they find it changed."""
    native.environment_set([])
    yield
    native.environment_set([({}, "gone", native)])


class Kernel:
    """Stands where `JITFunction` does: what a dispatcher needs of it is `run`."""

    def __init__(self) -> None:
        self.runs: list[tuple] = []

    def run(self, *args, grid, warmup, **kwargs):
        self.runs.append((args, grid, warmup, kwargs))
        return "python"

    def __repr__(self) -> str:
        return "kernel"


def parameter(name, *, constexpr=False, specialize=True, align=True, **default):
    return name, constexpr, specialize, align, bool(default), default.get("default")


X, N, BLOCK = parameter("x"), parameter("n"), parameter("BLOCK", constexpr=True)


class Case:
    """A dispatcher of an echo kernel, where `launch` must repeat what `remember` was told."""

    def __init__(self, *parameters, codes, positional=None) -> None:
        self.kernel = Kernel()
        self.echo = EchoKernel(codes)
        names = tuple(name for name, *_ in parameters)
        self.handle = make_handle("cpu", self.echo.address, codes, name="kernel", argument_names=names)
        count = len(parameters) if positional is None else positional
        self.dispatcher = native.Dispatcher(self.kernel, "kernel", parameters, count)

    def remember(self, *args, watches=(), substitutes=None, result="compiled", **kwargs):
        return self.dispatcher.remember(args, kwargs, self.handle, result, list(watches), substitutes)

    def launch(self, *args, grid=(1,), **kwargs):
        return self.dispatcher.launch(grid, args, kwargs)

    def __call__(self, *args, grid=(1,), **kwargs):
        return self.dispatcher.at(grid)(*args, **kwargs)


def case() -> Case:
    return Case(X, N, BLOCK, codes="Pix")


def test_a_remembered_call_is_launched_with_its_own_values():
    found, x, y = case(), torch.zeros(4), torch.zeros(5)
    assert found.remember(x, 5, BLOCK=16) is True
    assert found(y, 7, BLOCK=16, grid=(2, 3)) == "compiled"
    assert found.echo.received() == [y.data_ptr(), 7]
    assert found.echo.grid == (2, 3, 1)
    assert found.kernel.runs == []


def test_a_new_call_goes_to_run_with_everything_that_was_passed():
    found, x = case(), torch.zeros(4)
    assert found(x, 5, BLOCK=16, num_warps=2) == "python"
    assert found.kernel.runs == [((x, 5), (1,), False, {"BLOCK": 16, "num_warps": 2})]
    assert found.echo.calls == 0


def test_arguments_may_be_positional_or_by_keyword_in_any_order():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, 16)
    for args, kwargs in (((x, 5), {"BLOCK": 16}), ((x,), {"BLOCK": 16, "n": 5}), ((), {"n": 5, "BLOCK": 16, "x": x})):
        assert found.launch(*args, **kwargs) == "compiled"
        assert found(*args, **kwargs) == "compiled"
    assert found.echo.calls == 6


def test_defaults_are_filled_in():
    found = Case(X, parameter("n", default=5), parameter("B", constexpr=True, default=64), codes="Pix")
    x = torch.zeros(4)
    found.remember(x)
    assert found.launch(x) == found.launch(x, 5) == found.launch(x, B=64) == "compiled"
    assert found.echo.received() == [x.data_ptr(), 5]
    assert found.launch(x, B=32) is NotImplemented


def test_keyword_only_parameters_are_not_filled_by_position():
    found, x = Case(X, N, codes="Pi", positional=1), torch.zeros(4)
    found.remember(x, n=5)
    assert found.launch(x, n=5) == "compiled"
    assert found.launch(x, 5) is NotImplemented


def test_what_python_must_refuse_is_a_miss():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16)
    assert found.launch(x, 5) is NotImplemented  # BLOCK is missing
    assert found.launch(x, 5, 16, 17) is NotImplemented  # one too many
    assert found.launch(x, 5, n=5, BLOCK=16) is NotImplemented  # n twice
    assert found.launch(x, 2**70, BLOCK=16) is NotImplemented
    assert found.launch(x, 5, BLOCK=2**70) is NotImplemented
    assert found.launch(x, 5, BLOCK=x) is NotImplemented
    assert found.launch(x, "5", BLOCK=16) is NotImplemented
    assert found.echo.calls == 0


DIFFERENT_INTS = [5, 1, 16, 2**31, 2**31 + 1]


def test_ints_are_told_apart_as_the_compiler_does():
    found, x = Case(X, N, codes="Pl"), torch.zeros(4)
    for value in DIFFERENT_INTS:
        assert found.launch(x, value) is NotImplemented, value
        assert found.remember(x, value) is True
    for same in (7, -3, 2**31 - 1, 0, -32, 2**40, 2**40 + 3, -(2**31) - 1):
        assert found.launch(x, same) == "compiled"
        assert found.echo.received() == [x.data_ptr(), same % 2**64]


def test_ints_that_are_not_specialized_differ_by_width_only():
    found = Case(X, parameter("n", specialize=False), codes="Pl")
    x = torch.zeros(4)
    found.remember(x, 5)
    assert found.launch(x, 1) == found.launch(x, 16) == "compiled"
    assert found.launch(x, 2**40) is NotImplemented


def test_ints_not_specialized_on_alignment_still_know_one():
    found = Case(X, parameter("n", align=False), codes="Pl")
    x = torch.zeros(4)
    found.remember(x, 5)
    assert found.launch(x, 16) == "compiled"
    assert found.launch(x, 1) is NotImplemented


def test_tensors_are_told_apart_by_dtype_and_alignment():
    found, x = Case(X, codes="P"), torch.zeros(64)
    found.remember(x)
    assert found.launch(x[4:]) == "compiled"
    assert found.launch(x[1:]) is NotImplemented
    assert found.launch(x.half()) is NotImplemented
    assert found.launch(x.int()) is NotImplemented
    assert found.launch(x.view(8, 8).t()) == "compiled"
    assert found.launch(torch.nn.Parameter(x)) == "compiled"


def test_alignment_is_not_looked_at_where_it_is_not_specialized():
    for flags in ({"specialize": False}, {"align": False}):
        found, x = Case(parameter("x", **flags), codes="P"), torch.zeros(64)
        found.remember(x)
        assert found.launch(x[1:]) == "compiled"


def test_values_of_other_kinds_are_other_calls():
    found, x = Case(X, parameter("v"), codes="Pd"), torch.zeros(4)
    for value in (1.5, True, None):
        assert found.launch(x, value) is NotImplemented
    found.remember(x, 1.5)
    assert found.launch(x, 2.5) == found.launch(x, float("nan")) == "compiled"
    assert found.launch(x, True) is NotImplemented
    assert found.launch(x, None) is NotImplemented
    assert found.launch(x, 2) is NotImplemented


@pytest.mark.parametrize("value", [3, -1, 2**40, True, False, None, "text", 1.5, 0.0, torch.float32])
def test_constants_are_told_apart_by_value_and_type(value):
    others = [3, 1, 0, True, False, None, "text", "other", 1.5, 0.0, -0.0, torch.float32, torch.float16]
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=value)
    assert found.launch(x, 5, BLOCK=value) == "compiled"
    for other in others:
        same = type(other) is type(value) and repr(other) == repr(value)
        assert (found.launch(x, 5, BLOCK=other) == "compiled") is same, other


def test_a_text_made_at_run_time_is_left_to_python():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK="text")
    assert found.launch(x, 5, BLOCK="".join(["te", "xt"])) is NotImplemented


def test_options_are_part_of_the_call():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16, num_warps=4)
    assert found.launch(x, 5, BLOCK=16, num_warps=4) == "compiled"
    assert found.launch(x, 5, BLOCK=16, num_warps=8) is NotImplemented
    assert found.launch(x, 5, BLOCK=16, num_stages=4) is NotImplemented
    assert found.launch(x, 5, BLOCK=16) is NotImplemented


def test_objects_in_the_key_are_kept_alive():
    """Another object at the address of a dead one would be taken for it."""

    class Constant:
        pass

    found, x, constant = case(), torch.zeros(4), Constant()
    alive = weakref.ref(constant)
    found.remember(x, 5, BLOCK=constant)
    assert found.launch(x, 5, BLOCK=constant) == "compiled"
    assert found.launch(x, 5, BLOCK=Constant()) is NotImplemented
    del constant
    assert alive() is not None
    found.dispatcher.forget()
    assert alive() is None


def test_tensors_are_not_kept_alive():
    found, x = case(), torch.zeros(4)
    gone = weakref.ref(x)
    found.remember(x, 5, BLOCK=16)
    found.launch(x, 5, BLOCK=16)
    del x
    assert gone() is None


@pytest.mark.parametrize(
    "unusual",
    [
        lambda: torch.zeros(0),
        lambda: torch.zeros(4, device="meta"),
        lambda: torch.zeros(4).as_subclass(type("Subclass", (torch.Tensor,), {})),
        lambda: types.SimpleNamespace(data_ptr=lambda: 64, dtype=torch.float32),
        lambda: 64,
    ],
    ids=["empty", "meta", "subclass", "no tensor", "address"],
)
def test_tensors_that_are_not_plain_are_left_to_python(unusual):
    found = Case(X, codes="P")
    found.remember(torch.zeros(4))
    assert found.launch(unusual()) is NotImplemented
    assert found.remember(unusual()) is False


def test_a_call_without_tensors_is_left_to_python():
    found = Case(N, codes="i")
    assert found.remember(5) is False


def test_a_dispatch_mode_sees_launches():
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16)
    with Mode():
        assert found.launch(x, 5, BLOCK=16) is NotImplemented
    assert found.launch(x, 5, BLOCK=16) == "compiled"


def test_transforms_see_launches():
    found, seen = Case(X, codes="P"), []
    found.remember(torch.zeros(4))

    def body(x):
        seen.append(found.launch(x))
        return x * 2

    torch.func.vmap(body)(torch.zeros(3, 4))
    torch.func.grad(lambda x: body(x).sum())(torch.zeros(4))
    assert seen == [NotImplemented, NotImplemented]
    assert found.launch(torch.zeros(4)) == "compiled"


def test_a_value_outside_the_handle_is_left_to_python():
    """An annotated int8 has one key and a narrower range."""
    found, x = Case(X, N, codes="Pb"), torch.zeros(4)
    found.remember(x, 5)
    assert found.launch(x, 100) == "compiled"
    assert found.launch(x, 300) is NotImplemented


def test_a_handle_that_takes_other_arguments_is_refused():
    found, x = Case(X, N, codes="P"[:1] + "i"), torch.zeros(4)
    other = make_handle("cpu", found.echo.address, "P", name="kernel")
    assert found.dispatcher.remember((x, 5), {}, other, None, []) is False


# -- Grids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "sizes"), [((3,), (3, 1, 1)), ((3, 4), (3, 4, 1)), ((3, 4, 5), (3, 4, 5)), ([6, 2], (6, 2, 1))]
)
def test_a_grid_has_one_to_three_axes(grid, sizes):
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16)
    assert found(x, 5, BLOCK=16, grid=grid) == "compiled"
    assert found.echo.grid == sizes


def test_a_grid_function_gets_every_argument_by_name():
    found, x, seen = case(), torch.zeros(4), []
    found.remember(x, 5, BLOCK=16)
    assert found(x, n=5, BLOCK=16, grid=lambda a: seen.append(a) or (a["n"], a["BLOCK"])) == "compiled"
    assert seen == [{"x": x, "n": 5, "BLOCK": 16}]
    assert list(seen[0]) == ["x", "n", "BLOCK"]
    assert found.echo.grid == (5, 16, 1)


def test_a_grid_function_sees_what_python_puts_in_place_of_a_constant():
    found, x, seen = case(), torch.zeros(4), []
    found.remember(x, 5, BLOCK=torch.float32, substitutes={"BLOCK": "fp32"})
    found(x, 5, BLOCK=torch.float32, grid=lambda a: seen.append(a["BLOCK"]) or (1,))
    assert seen == ["fp32"]


@pytest.mark.parametrize(
    ("grid", "error", "message"),
    [
        ((), ValueError, "a grid has one to three axes, got 0"),
        ((1, 1, 1, 1), ValueError, "a grid has one to three axes, got 4"),
        ((-1,), ValueError, r"kernel: the grid \(-1, 1, 1\) has -1 programs along axis 0"),
        ((2**31,), ValueError, "programs along axis 0"),
        ((1.5,), TypeError, "axis 0 of the grid is 1.5 of type float"),
        (7, TypeError, r"write kernel\[\(7,\)\]"),
        (lambda a: 7, TypeError, "a grid is a tuple of one to three ints"),
    ],
)
def test_a_wrong_grid_is_refused_as_python_does(grid, error, message):
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16)
    with pytest.raises(error, match=message):
        found(x, 5, BLOCK=16, grid=grid)
    assert found.echo.calls == 0


def test_an_error_in_a_grid_function_comes_out():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16)
    with pytest.raises(ZeroDivisionError):
        found(x, 5, BLOCK=16, grid=lambda a: (1 // 0,))
    assert found.kernel.runs == []


# -- Watches -------------------------------------------------------------------------------------------------


def test_a_watched_entry_of_a_dictionary():
    value, scope = object(), {}
    found, x = case(), torch.zeros(4)
    scope["name"] = value
    found.remember(x, 5, BLOCK=16, watches=[(scope, "name", value), (scope, "absent", MISSING)])
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    scope["other"] = 1
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    scope["name"] = object()
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    scope["name"] = value
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    scope["absent"] = 1
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    del scope["absent"], scope["name"]
    assert found.launch(x, 5, BLOCK=16) is NotImplemented


def test_a_watched_attribute_of_an_object_and_of_a_class():
    class Owner:
        method = None

    owner, found, x = Owner(), case(), torch.zeros(4)
    owner.attribute = "as it was"
    watches = [(owner.__dict__, "attribute", owner.attribute), (Owner, "method", None), (Owner, "late", MISSING)]
    found.remember(x, 5, BLOCK=16, watches=watches)
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    owner.attribute = "other"
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    owner.attribute = "as it was"
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    Owner.method = 1
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    Owner.method = None
    Owner.late = 1
    assert found.launch(x, 5, BLOCK=16) is NotImplemented


def test_a_watched_list_must_be_empty():
    hooks, found, x = [], case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16, watches=[(hooks, None, None)])
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    hooks.append(1)
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    hooks.clear()
    assert found.launch(x, 5, BLOCK=16) == "compiled"


def test_a_watched_closure_variable():
    variable = "as it was"

    def change(value):
        nonlocal variable
        variable = value

    found, x = case(), torch.zeros(4)
    cell = change.__closure__[0]
    found.remember(x, 5, BLOCK=16, watches=[(cell, None, variable)])
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    change("other")
    assert found.launch(x, 5, BLOCK=16) is NotImplemented


def test_a_function_may_be_asked_whether_something_changed():
    changed, found, x = [False], case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16, watches=[(lambda: changed[0], None, None)])
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    changed[0] = True
    assert found.launch(x, 5, BLOCK=16) is NotImplemented

    def fails():
        raise ZeroDivisionError

    found.remember(x, 6, BLOCK=17, watches=[(fails, None, None)])
    with pytest.raises(ZeroDivisionError):
        found.launch(x, 6, BLOCK=17)


def test_a_watch_may_forget_the_launch_it_belongs_to():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16, watches=[(found.dispatcher.forget, None, None)])
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    assert len(found.dispatcher) == 0


def test_a_launch_is_remembered_again_after_a_change():
    scope, found, x = {"name": 1}, case(), torch.zeros(4)
    assert found.remember(x, 5, BLOCK=16, watches=[(scope, "name", 1)]) is True
    scope["name"] = 2
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    assert found.remember(x, 5, BLOCK=16, watches=[(scope, "name", 2)], result="newer") is False
    assert found.launch(x, 5, BLOCK=16) == "newer"
    assert len(found.dispatcher) == 1


def test_the_environment_is_watched_for_all():
    knobs, found, x = {"debug": False}, case(), torch.zeros(4)
    native.environment_set([(knobs, "debug", False)])
    found.remember(x, 5, BLOCK=16)
    assert native.environment_holds()
    assert found.launch(x, 5, BLOCK=16) == "compiled"
    knobs["debug"] = True
    assert not native.environment_holds()
    assert found.launch(x, 5, BLOCK=16) is NotImplemented
    assert found.remember(x, 7, BLOCK=17) is False


def test_what_was_remembered_in_another_environment_is_void():
    found, x = case(), torch.zeros(4)
    found.remember(x, 5, BLOCK=16)
    native.environment_set([])
    assert found.launch(x, 5, BLOCK=16) is NotImplemented


def test_a_wrong_watch_is_refused():
    found, x = case(), torch.zeros(4)
    with pytest.raises(TypeError):
        found.remember(x, 5, BLOCK=16, watches=["watch"])
    with pytest.raises(TypeError):
        found.remember(x, 5, BLOCK=16, watches=[({}, "name")])
    with pytest.raises(TypeError, match="without calling Python"):
        native.environment_set([(lambda: False, None, None)])


# -- Memory and threads --------------------------------------------------------------------------------------


def test_many_launches_are_remembered_and_the_number_is_bounded():
    found, x = case(), torch.zeros(4)
    for block in range(300):
        found.remember(x, 5, BLOCK=block, result=block)
    assert all(found.launch(x, 5, BLOCK=block) == block for block in range(300))
    for block in range(9000):
        found.remember(x, 5, BLOCK=block)
    assert len(found.dispatcher) <= 4096


def test_a_launch_leaves_no_reference_behind():
    found, x, grid = case(), torch.zeros(4), (2,)
    found.remember(x, 5, BLOCK=16)
    launcher = found.dispatcher.at(grid)
    objects = [x, grid, found.handle, found.dispatcher, found.kernel, launcher, None, True]

    def launch():
        launcher(x, 5, BLOCK=16)
        found(x, 5, BLOCK=16, grid=grid)
        found.launch(x, 5, BLOCK=16)
        found(x, 5, BLOCK=17)
        found(x, 5, BLOCK=16, grid=lambda a: (1,))
        found.kernel.runs.clear()

    for _ in range(3):
        launch()
    before = [sys.getrefcount(item) for item in objects]
    for _ in range(100):
        launch()
    after = [sys.getrefcount(item) for item in objects]
    assert [new - old for new, old in zip(after, before, strict=True)] == [0] * len(objects)


def test_a_kernel_with_its_dispatcher_is_collected():
    found, x = case(), torch.zeros(4)
    found.kernel.dispatcher = found.dispatcher
    found.remember(x, 5, BLOCK=16, watches=[(found.kernel.__dict__, "dispatcher", found.dispatcher)])
    gone = weakref.ref(found.kernel)
    launcher = found.dispatcher.at((1,))
    found.kernel.launcher = launcher
    del found, launcher
    gc.collect()
    assert gone() is None


def test_a_launcher_knows_its_kernel_and_grid():
    found = case()
    launcher = found.dispatcher.at((2, 3))
    assert launcher.kernel is found.kernel
    assert launcher.grid == (2, 3)
    assert repr(launcher) == "kernel[(2, 3)]"


def test_threads_may_launch_remember_and_forget_at_once():
    found, errors = Case(X, BLOCK, codes="Px"), []
    stop = threading.Event()

    def launch(seed):
        x = torch.zeros(4)
        try:
            for i in range(3000):
                block = (i * 7 + seed) % 40
                result = found.launch(x, BLOCK=block)
                if result is NotImplemented:
                    found.remember(x, BLOCK=block, result=block)
                elif result != block:
                    errors.append((result, block))
        except Exception as error:
            errors.append(error)

    def forget():
        while not stop.wait(0.001):
            found.dispatcher.forget()

    threads = [threading.Thread(target=launch, args=(seed,)) for seed in range(8)]
    eraser = threading.Thread(target=forget)
    eraser.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    eraser.join()
    assert errors == []


def test_a_signature_with_too_many_parameters_is_refused():
    with pytest.raises(ValueError, match="kernel: 300 parameters"):
        native.Dispatcher(Kernel(), "kernel", tuple(parameter(f"p{i}") for i in range(300)), 300)

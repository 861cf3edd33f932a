"""Private APIs of torch that the integration layer needs, each with how it was checked.

Checked by the tests in `tests/integration` on torch 2.13.0 (CPU) and 2.11.0 (CUDA). Where one is
missing, the function that needs it raises :class:`UnsupportedTorch` with what was looked for,
unless its docstring says what happens instead.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "Retired",
    "TorchDispatchMode",
    "UnsupportedTorch",
    "autotuner_timing",
    "decomposition_disabled",
    "fill_defaults",
    "is_functional",
    "register_identity",
    "settle_guards",
    "single_level_autograd_function",
    "single_level_function",
    "transforms_active",
    "triton_type_name",
    "views_with_bases",
]


class UnsupportedTorch(RuntimeError):
    """This version of torch lacks something private that opgraft builds on."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"opgraft needs {missing}, which torch {torch.__version__} does not have; "
            "use a torch release that this version of opgraft supports (2.11 or newer)"
        )


def single_level_function() -> type:
    """`torch.autograd.function._SingleLevelFunction`: an autograd function without functorch's dispatch."""
    try:
        from torch.autograd.function import _SingleLevelFunction
    except ImportError:
        raise UnsupportedTorch("torch.autograd.function._SingleLevelFunction") from None
    function: type = _SingleLevelFunction
    return function


def single_level_autograd_function() -> AbstractContextManager[Any]:
    """The context in which a single-level function may be applied under torch.func."""
    try:
        from torch._functorch.utils import enable_single_level_autograd_function
    except ImportError:
        raise UnsupportedTorch("torch._functorch.utils.enable_single_level_autograd_function") from None
    context: AbstractContextManager[Any] = enable_single_level_autograd_function()
    return context


def autotuner_timing() -> CodeType | None:
    """The code of `triton.runtime.autotuner.Autotuner._bench`, which times a launch; None where there is none.

    Then Triton's own autotuner is not refused while a graph is traced, and times launches of nothing.
    """
    from triton.runtime.autotuner import Autotuner

    found: CodeType | None = getattr(getattr(Autotuner, "_bench", None), "__code__", None)
    return found


def transforms_active() -> bool:
    """Whether a torch.func transform or forward-mode AD surrounds the call."""
    return bool(torch._C._are_functorch_transforms_active()) or torch.autograd.forward_ad._current_level >= 0


def decomposition_disabled() -> bool:
    """Whether export asks for ops to be kept whole; False where torch cannot say."""
    config = getattr(sys.modules.get("torch._functorch.config"), "decompose_custom_triton_ops", True)
    return not config


def fill_defaults(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arguments with the schema's defaults, which the dispatcher leaves out."""
    positional = list(args)
    keywords = dict(kwargs)
    for index, argument in enumerate(schema.arguments):
        if argument.kwarg_only:
            if argument.name not in keywords:
                keywords[argument.name] = argument.default_value
        elif index >= len(positional):
            positional.append(argument.default_value)
    return tuple(positional), keywords


def is_functional(value: Any) -> bool:
    """Whether a tensor stands for another one while a graph is functionalized."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(value, FunctionalTensor)


class _Forward:
    """A function that can be exchanged, with the hash of the first one: an overload's hash is that of its ``_op``."""

    def __init__(self, first: Any, target: Any) -> None:
        self._hash = hash(first)
        self.target = target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other


class Retired:
    """An ``OpOverload`` whose library is destroyed, for those who still hold it or its packet.

    What they hold of C++ would point to freed memory, in which another op may lie. Until :meth:`succeed` is called,
    a call raises. Sets ``_op`` and ``_op_dk`` of the two and drops the ``_handle`` that they may remember; where torch
    keeps these elsewhere, calls after the library is gone are not defined.
    """

    def __init__(self, overload: Any, library: torch.library.Library) -> None:
        name = overload.name()

        def gone(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"{name}: this op is not defined any more")

        self._gone = gone
        self._held = [(held, _Forward(held._op, gone)) for held in (overload, overload._overloadpacket)]
        self.retire()
        library._destroy()
        # When a library is collected, torch forgets whatever has the names of its ops: also what replaced them.
        self._library = library

    def retire(self) -> None:
        """Have calls raise."""
        for held, forward in self._held:
            forward.target = self._gone
            vars(held).pop("_handle", None)
            vars(held)["_op"] = forward
            if "_op_dk" in vars(held):
                vars(held)["_op_dk"] = self._gone

    def succeed(self, successor: Any) -> None:
        """Have them do what ``successor`` does."""
        for (held, forward), new in zip(self._held, (successor, successor._overloadpacket), strict=True):
            forward.target = new._op
            vars(held).clear()
            vars(held).update(vars(new), _op=forward)


def views_with_bases() -> AbstractContextManager[Any]:
    """The context in which a view that is made while a graph is functionalized knows its ``_base``.

    Below autograd it does not, and functionalization then takes the view that a launch writes for a whole buffer, which
    begins where the view's does. `torch._C._SetExcludeDispatchKeyGuard` lets the key through that notes the base.
    """
    try:
        guard = torch._C._SetExcludeDispatchKeyGuard
    except AttributeError:
        raise UnsupportedTorch("torch._C._SetExcludeDispatchKeyGuard") from None
    context: AbstractContextManager[Any] = guard(torch._C.DispatchKey.ADInplaceOrView, False)
    return context


def settle_guards(shape_env: Any) -> None:
    """Have the guards of a graph speak of the symbols that its sizes have now.

    A guard is noted on the symbol that a size has at the time. Where that is found to equal another later, torch's
    compile caches drop the guard from what they store (`ShapeEnv.get_pruned_guards`), and serve the graph for sizes
    for which a constant in it is wrong. Uses ``guards`` and ``replacements``; without them nothing is done.
    """
    guards, replacements = getattr(shape_env, "guards", None), getattr(shape_env, "replacements", None)
    if not guards or not replacements:
        return
    for index, guard in enumerate(guards):
        if not replacements.keys().isdisjoint(guard.expr.free_symbols):
            settled = guard.expr.xreplace(replacements)
            if settled.free_symbols:  # otherwise it is what made the symbols equal
                guards[index] = guard._replace(expr=settled)


def register_identity(op: str, identity: object | None) -> None:
    """Give AOTAutograd's cache what the result of ``op`` depends on.

    The cache adds the source of each object in `torch._library.triton.triton_ops_to_kernels[op]` to
    its key. Where the table is missing, ops must not be cached: the cache's own check refuses ops
    that it does not know only by name, so this raises.
    """
    try:
        from torch._library.triton import triton_ops_to_kernels
    except ImportError:
        raise UnsupportedTorch("torch._library.triton.triton_ops_to_kernels") from None
    if identity is None:
        triton_ops_to_kernels.pop(op, None)
    else:
        triton_ops_to_kernels[op] = [identity]


@functools.cache
def triton_type_name(name: str) -> str:
    """Triton's short name for a dtype name: ``fp32`` for ``float32``."""
    from triton._utils import type_canonicalisation_dict

    try:
        return str(type_canonicalisation_dict[name])
    except KeyError:
        raise TypeError(f"no Triton type for torch.{name}; pass a tensor of another dtype or a view of one") from None


def functional_mode() -> type:
    """The class of the dispatch mode that functionalizes graphs."""
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    mode: type = FunctionalTensorMode
    return mode


def register_dispatch_rule(library: Any, name: str, mode: type, rule: Callable[..., Any]) -> None:
    """`Library._register_torch_dispatch_rule`, public as `torch.library.register_torch_dispatch`."""
    torch.library.register_torch_dispatch(f"{library.ns}::{name}", mode, rule, lib=library)

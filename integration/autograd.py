"""The derivative of an op: a kernel for the Autograd key that holds under torch.func too.

:func:`autograd_kernel` makes it. The forward runs below autograd as one autograd function of a
single level, so that torch.func's transforms stack on it level by level; :class:`Formula` holds
what the user registered. Rule: ``torch.library``'s contract for ``setup_context`` and ``backward``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import _C
from torch.utils import _pytree as pytree

from . import compat
from .schema import argument_at
from .torch_writes import count_write

__all__ = ["Formula", "autograd_kernel"]


class Formula:
    """What the user registered: ``backward(ctx, *grads)`` and ``setup_context(ctx, inputs, output)``."""

    def __init__(self) -> None:
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None


def autograd_kernel(overload: Any, formula: Formula, written: tuple[int, ...]) -> Callable[..., Any]:
    """The Autograd kernel of ``overload``, to be registered with its keyset.

    ``written`` are the positions of the arguments that the op writes; their version counters move,
    so that a tensor saved for a backward and then written is noticed.
    """
    function = _function(overload, formula)
    keyword_only = tuple(a.name for a in overload._schema.arguments if a.kwarg_only)

    def below(keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool) -> Any:
        # An autograd function's forward runs with grad mode off; the next level of torch.func must see what was set.
        with torch.set_grad_enabled(grad), _C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & _C._after_autograd_keyset, *args, **kwargs)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        grad = _C.is_grad_enabled()
        tracked = _C._any_requires_grad(*args, *kwargs.values()) and grad
        if tracked or compat.transforms_active():
            if written and tracked:
                arguments = overload._schema.arguments
                given = {**{a.name: value for a, value in zip(arguments, args, strict=False)}, **kwargs}
                needing = [name for name, value in given.items() if _requires_grad(value)]
                raise RuntimeError(
                    f"{overload.name()}: writes {', '.join(arguments[i].name for i in written)}, and"
                    f" {', '.join(needing)} requires grad; opgraft has no derivative for in-place ops: call it under"
                    " torch.no_grad(), or with tensors that were detached or cloned"
                )
            # The dispatcher leaves out trailing arguments that equal their defaults.
            args, kwargs = compat.fill_defaults(overload._schema, args, kwargs)
            flat, spec = pytree.tree_flatten(args)
            with compat.single_level_autograd_function():
                result = function.apply(keyset, functools.partial(below, grad=grad), spec, kwargs, keyword_only, *flat)
        else:
            result = below(keyset, args, kwargs, grad)
        for position in written:
            count_write(argument_at(overload._schema, position, args, kwargs))
        return result

    return kernel


def _requires_grad(value: Any) -> bool:
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in pytree.tree_leaves(value))


_LEADING = 5  # what stands before the op's own arguments in `apply`: keyset, below, spec, kwargs, keyword_only


def _function(overload: Any, formula: Formula) -> Any:
    """The autograd function of an op over its flattened positional arguments."""
    base = compat.single_level_function()
    name = overload._schema.name

    def forward(
        ctx: Any, keyset: Any, below: Any, spec: Any, kwargs: dict[str, Any], keyword_only: Any, *flat: Any
    ) -> Any:
        args = tuple(pytree.tree_unflatten(list(flat), spec))
        result = below(keyset, args, kwargs)
        ctx.op_spec = spec
        if formula.setup_context is not None:
            more = {"keyword_only_inputs": kwargs} if keyword_only else {}
            formula.setup_context(ctx=ctx, inputs=args, output=result, **more)
        return tuple(result) if isinstance(result, list) else result

    def backward(ctx: Any, *grads: Any) -> Any:
        if formula.backward is None:
            raise RuntimeError(
                f"{name}: no derivative is registered, so backward cannot go through it; "
                f"call register_autograd on the op, or detach its inputs"
            )
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(pytree.tree_unflatten(list(needs[_LEADING:]), ctx.op_spec))
        try:
            gradients = formula.backward(ctx, *grads)
        finally:
            ctx.needs_input_grad = needs
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        return (*(None,) * _LEADING, *_spread(gradients, ctx.op_spec, name))

    return type(
        f"{overload._schema.name.replace('::', '_')}_autograd",
        (base,),
        {
            "forward": staticmethod(forward),
            "backward": staticmethod(backward),
        },
    )


def _spread(gradients: tuple[Any, ...], spec: Any, name: str) -> list[Any]:
    """One gradient for each leaf of the arguments; None for a whole list stands for each of its items."""
    children = spec.children() if hasattr(spec, "children") else spec.children_specs
    if len(gradients) > len(children) or any(g is not None for g in gradients[len(children) :]):
        raise RuntimeError(
            f"{name}: backward returned {len(gradients)} gradients for {len(children)} arguments; "
            "return one for each argument, None where there is none"
        )
    gradients = gradients + (None,) * (len(children) - len(gradients))
    spread: list[Any] = []
    for gradient, child in zip(gradients, children, strict=True):
        if child.num_leaves == 1 and not isinstance(gradient, (list, tuple)):
            spread.append(gradient)
        elif gradient is None:
            spread.extend([None] * child.num_leaves)
        else:
            spread.extend(gradient)
    return spread

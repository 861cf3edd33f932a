"""`opgraft.custom_op`: a function that launches kernels, as a PyTorch op.

The body is everything: its eager implementation on every device, its fake implementation (launches
on fake tensors launch nothing), and its decomposition under torch.compile, so that a compiler sees
the allocations and the launches inside. The op keeps its plain name and `.default` overload; what
its result depends on is told to the compile caches (:mod:`.identity`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree
from triton import knobs

from ..jit import interception
from ..jit.native import extension, ready
from . import compat, launching
from .autograd import Formula, autograd_kernel
from .body import UndeclaredWrite, check_result, checked, explain_stock_kernel
from .identity import OpIdentity
from .schema import argument_at, check_name, op_schema, written_positions
from .torch_writes import count_write, tensors_of

__all__ = ["CustomOp", "custom_op"]

P = ParamSpec("P")
R = TypeVar("R")

_DEVICES = ("CPU", "CUDA")
_defined: dict[str, CustomOp[Any, Any]] = {}
_retired: dict[str, list[compat.Retired]] = {}
"""What others may still hold of earlier ops, by name."""
_earlier: dict[str, weakref.WeakSet[CustomOp[Any, Any]]] = {}


@overload
def custom_op(
    name: str, fn: None = None, /, *, mutates_args: Iterable[str] = ...
) -> Callable[[Callable[P, R]], CustomOp[P, R]]: ...
@overload
def custom_op(name: str, fn: Callable[P, R], /, *, mutates_args: Iterable[str] = ...) -> CustomOp[P, R]: ...
def custom_op(
    name: str, fn: Callable[P, R] | None = None, /, *, mutates_args: Iterable[str] = ()
) -> CustomOp[P, R] | Callable[[Callable[P, R]], CustomOp[P, R]]:
    """Define a function whose body allocates tensors and launches kernels as a PyTorch op.

    Args:
        name: the op's name, ``"namespace::name"``.
        fn: the body; without it this is a decorator. Its annotations give the schema, by the rules
            of :func:`torch.library.infer_schema`: ``torch.Tensor``, ``int``, ``float``, ``bool``,
            ``str``, ``torch.dtype``, ``torch.device``, optionals and lists of these. It returns
            new tensors, never an argument or a view of one.
        mutates_args: names of the tensor arguments that the body writes. What a launch writes is
            read from the kernel, and a launch that writes an argument not named here raises at the
            first call, fake or real, with the ``mutates_args`` to add.

    Returns:
        A :class:`CustomOp`, called like the body.

    Raises:
        ValueError: for a name or annotations that make no schema, for a name that another library's op has, and
            for a name in ``mutates_args`` that is no parameter.

    Defining a name again replaces the op, for those who hold the earlier one, too. Compiled functions
    are compiled anew; one that holds only the overload or its packet (``torch.ops...`` in a variable), not
    the op, is so after ``torch.compiler.reset()``.
    """
    if callable(name):
        raise TypeError(f'custom_op takes the op\'s name, custom_op("namespace::name"), got {name!r}')
    if fn is None:
        return functools.partial(custom_op, name, mutates_args=mutates_args)  # type: ignore[return-value]
    return CustomOp(name, fn, mutates_args)


class CustomOp(Generic[P, R]):
    """An op made from a body; call it as the body, or as ``torch.ops.namespace.name``."""

    def __init__(self, name: str, fn: Callable[P, R], mutates_args: Iterable[str] = ()) -> None:
        if isinstance(mutates_args, str):
            mutates_args = (mutates_args,)
        namespace, op_name = check_name(name)
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._qualname = name
        self._signature = inspect.signature(fn)
        self._mutates = frozenset(mutates_args)
        self._formula = Formula()
        self._seen: set[Any] = set()
        self._eager = cast(Callable[..., Any], self._call_in_python)
        schema = op_schema(fn, namespace, op_name, tuple(mutates_args))
        launching.install()
        previous = _defined.pop(name, None)
        if previous is not None:
            previous._undefine()
        elif hasattr(getattr(torch.ops, namespace), op_name):
            raise ValueError(
                f"{name} is an op of torch or of another library already; give yours a namespace of its own"
            )
        self._lib = torch.library.Library(namespace, "FRAGMENT")
        self._lib.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        self._op = cast(Any, getattr(getattr(torch.ops, namespace), op_name).default)
        self._written = written_positions(self._op._schema)
        for key in _DEVICES:
            self._lib.impl(op_name, self._run, key)
        self._lib.impl(op_name, autograd_kernel(self._op, self._formula, self._written), "Autograd", with_keyset=True)
        torch.library.register_fake(name, self._run_checked, lib=self._lib)
        compat.register_dispatch_rule(self._lib, op_name, compat.functional_mode(), self._decompose)
        compat.register_identity(name, OpIdentity(op_name, self._depends_on))
        for retired in _retired.get(name, ()):
            retired.succeed(self._op)
        for earlier in _earlier.setdefault(name, weakref.WeakSet()):
            earlier._op = self._op  # which a compiled function that holds it has a guard on
        _earlier[name].add(self)
        _defined[name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the op.

        A plain eager call goes straight to the body; one that somebody wants to see (a derivative, a
        transform, a mode, a profiler, a tracer) goes through the dispatcher.
        """
        if kwargs or _tracing():
            return cast(R, self._op(*args, **kwargs))
        return cast(R, self._eager(*args))

    def _call_in_python(self, *args: Any) -> Any:
        """What `native.PlainCall` does, for as long as there is no extension."""
        # One screen of checks in the order of their cost, with nothing called that need not be.
        if _modes() or _function_modes() or _transforms() or _profiling() or forward_ad._current_level >= 0:
            return self._op(*args)
        grad = _grad_enabled()
        kinds: list[Any] = []
        for value in args:
            kind = type(value)
            if kind is _Tensor or kind is _Parameter:
                if (grad and value.requires_grad) or value.is_neg() or value.is_conj() or value._is_zerotensor():
                    return self._op(*args)
                kinds.append(value.dtype)
            elif kind in _SIMPLE:
                kinds.append(kind)
            else:
                return self._op(*args)
        if tuple(kinds) not in self._seen:
            return self._op(*args)
        self._use_extension()
        written = [args[position] for position in self._written if position < len(args)]  # others are left at defaults
        for value in written:
            self._check_write(value)
        result = self._fn(*args)  # type: ignore[call-arg]
        for value in written:
            count_write(value)
        return result

    def _use_extension(self) -> None:
        """Have plain calls made in C, once the extension is there."""
        native: Any = extension() if ready() else None
        if native is not None:
            self._eager = native.PlainCall(
                self._fn,
                self._op,
                self._seen,
                self._written,
                self._check_write,
                count_write,
                function_modes=_function_modes,
                profiling=_profiling,
                grad_enabled=_grad_enabled,
                forward_ad=vars(forward_ad),
                simple=_SIMPLE,
            )

    def __repr__(self) -> str:
        return f"<opgraft op {self._op._schema}>"

    def __copy__(self) -> CustomOp[P, R]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomOp[P, R]:
        """An op is shared by copies of what holds it, as Python functions are."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by the op's name and the module that defines it."""
        return _find, (self._fn.__module__, self._qualname)

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Give the op a derivative, with the contract of :func:`torch.library.register_autograd`.

        Args:
            backward: ``backward(ctx, *grads)``, one gradient for each output; returns one for each
                argument (None where there is none). It should call ops, differentiable ones for
                higher derivatives.
            setup_context: ``setup_context(ctx, inputs, output)`` saves what ``backward`` needs, with
                ``ctx.save_for_backward`` for tensors. With keyword-only arguments it takes
                ``keyword_only_inputs`` too.

        Raises:
            TypeError: when either is not callable.
            NotImplementedError: for an op with keyword-only tensors, as :mod:`torch.library` does.
        """
        tensors = [a.name for a in self._op._schema.arguments if a.kwarg_only and "Tensor" in str(a.type)]
        if tensors:
            raise NotImplementedError(
                f"{self._qualname}: a derivative can be given for positional tensors only, and {', '.join(tensors)} can"
                " be passed by keyword alone; move the tensors before the * of the body's parameters"
            )
        for function in (backward, setup_context):
            if function is not None and not callable(function):
                raise TypeError(f"{self._qualname}: register_autograd takes functions, got {function!r}")
        self._formula.backward = backward
        self._formula.setup_context = setup_context

    def _depends_on(self) -> tuple[Callable[..., Any] | None, ...]:
        return (self._fn, self._formula.backward, self._formula.setup_context)

    def _undefine(self) -> None:
        """Give way to an op of the same name: whoever still holds this one calls that."""
        self._eager = self._op
        retired = _retired.setdefault(self._qualname, [])
        for earlier in retired:
            earlier.retire()
        compat.register_identity(self._qualname, None)
        retired.append(compat.Retired(self._op, self._lib))

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """The eager implementation; the first call for each kind of arguments is checked."""
        kinds = _kinds(args, kwargs)
        if kinds in self._seen:
            for position in self._written:
                self._check_write(argument_at(self._op._schema, position, args, kwargs))
            return self._fn(*args, **kwargs)
        result = self._run_checked(*args, **kwargs)
        # The dispatcher leaves out trailing arguments that equal their defaults; a direct call has them.
        self._seen.add(kinds)
        self._seen.add(_kinds(*compat.fill_defaults(self._op._schema, args, kwargs)))
        return result

    def _check_write(self, value: Any) -> None:
        """Refuse to write a tensor several of whose elements are one: a kernel would run out of its memory."""
        for tensor in tensors_of(value):
            if any(
                isinstance(step, int) and step == 0 and _exceeds_one(size)
                for step, size in zip(tensor.stride(), tensor.shape, strict=True)
            ):
                raise RuntimeError(
                    f"{self._qualname}: writes a tensor of shape {list(tensor.shape)} and strides"
                    f" {list(tensor.stride())}, in which several elements share one memory location;"
                    " clone() it first"
                )

    def _run_checked(self, *args: Any, **kwargs: Any) -> Any:
        arguments = self._signature.bind(*args, **kwargs).arguments
        for name in self._mutates:
            self._check_write(arguments.get(name))
        with checked(self._qualname, self._mutates, arguments, lambda: self._run_on_fakes(args, kwargs)):
            try:
                result = self._fn(*args, **kwargs)
            except Exception as error:
                if not interception.plain(args, kwargs):
                    explain_stock_kernel(self._qualname, error)
                raise
        check_result(self._qualname, arguments, result, len(self._op._schema.returns))
        return result

    def _run_on_fakes(self, args: Any, kwargs: Any) -> None:
        """Run the body on fake tensors, where each operation that writes an argument is seen."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
                self._run_checked(*args, **kwargs)
        except UndeclaredWrite:
            raise
        except Exception:  # a body that cannot be traced confirms no suspicion
            return

    def _decompose(self, mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Open the op into its body while a graph is functionalized.

        Export may keep it whole, and the interpreter's launches are nothing that a graph could hold.
        """
        if compat.decomposition_disabled() or knobs.runtime.interpret:
            return mode.__torch_dispatch__(func, types, args, kwargs)
        with mode, compat.views_with_bases():
            return self._run_checked(*args, **(kwargs or {}))


def _find(module: str, name: str) -> CustomOp[Any, Any]:
    """The op of that name, which importing the module defines if it is not there yet."""
    if name not in _defined:
        importlib.import_module(module)
    try:
        return _defined[name]
    except KeyError:
        raise LookupError(f"no op {name} is defined, not even after importing {module}") from None


# What an eager call asks, looked up once.
_tracing = torch.compiler.is_dynamo_compiling
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_function_modes = torch._C._len_torch_function_stack
_profiling = torch.autograd._profiler_enabled
_grad_enabled = torch.is_grad_enabled
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_SIMPLE = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})


def _exceeds_one(size: int | torch.SymInt) -> bool:
    """Whether a size is known to be larger than 1; a symbolic one gets no guard from the question."""
    if isinstance(size, int):
        return size > 1
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(size > 1))


def _kinds(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The kinds of a call's arguments; those by keyword with their names."""
    return (*map(_kind, args), *((name, _kind(value)) for name, value in kwargs.items()))


def _kind(value: Any) -> Any:
    """What a body may branch on without our seeing it: dtypes and classes."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    return type(value)

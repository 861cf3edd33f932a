"""Private parts of torch and Triton that the launch extension uses: reading tensors, watching modes, compiling.

`torch_access()` returns the arguments of the extension's `configure`. What it needs of torch, none of it
promised:

| need | used for | when missing |
| --- | --- | --- |
| `aoti_torch_get_data_ptr`, `_get_dtype`, `_get_device_type`, `_get_device_index` (the stable C shim that AOTInductor's output links to) | reading a tensor in about 5 ns | the Python methods, about 60 ns |
| the offset of the `at::Tensor` in a `torch.Tensor` object, found by comparing with the pointer that `torch._C._aoti.unsafe_alloc_void_ptr_from_tensor` hands out, and checked on tensors of several kinds | calling that shim | the Python methods |
| `c10::impl::TorchDispatchModeTLS::stack_len()` and `tls_is_dispatch_key_included()` in libc10, checked against what `torch._C` says with and without a mode and a key | seeing torch dispatch modes and `torch.func` transforms before a launch | every launch goes through Python |
| `at::impl::PythonTorchFunctionTLS::stack_len()`, `torch::profiler::impl::profilerEnabled()`, `c10::GradMode::is_enabled()` and `c10::TensorImpl::requires_grad()`, checked likewise | whether an eager call of an op may pass by the dispatcher | the Python functions, about 50 ns each |
| `at::native::is_neg()`, `is_conj()` and `_is_zerotensor()` in libtorch_cpu, checked likewise | the same | the Python methods |
| `aoti_torch_get_current_cuda_stream` in libtorch_cuda | the stream of a launch on CUDA | these launches go through Python |
| `at::get_num_threads()` in libtorch_cpu, or `omp_get_max_threads()` | the threads of a CPU launch, as `torch.set_num_threads` set them for this thread | one thread |
| `triton.runtime.build._build` | compiling the extension | no extension: launches go through Python |

Looked at: torch 2.11.0, 2.13.0; Triton 3.6.0, 3.7.1, 3.8.0, 3.9.0.
"""  # noqa: E501 (a table)

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

_SHIM = ("get_data_ptr", "get_dtype", "get_device_type", "get_device_index")
_THREADS = ("_ZN2at15get_num_threadsEv", "omp_get_max_threads")
_COUNT_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"
_FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"
_PROFILER = "_ZN5torch8profiler4impl15profilerEnabledEv"
_GRAD_ENABLED = "_ZN3c108GradMode10is_enabledEv"
_REQUIRES_GRAD = "_ZNK3c1010TensorImpl13requires_gradEv"
_KEY_INCLUDED = "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE"


def build_shared_library(name: str, path: str, folder: str, libraries: list[str], flags: list[str]) -> str:
    """Compile the C file `path` as an extension module into `folder`, as Triton compiles its own; returns its path.

    Triton's public `compile_module_from_src` also loads what it built from its cache, so this uses the part of it that
    only compiles. It honours `CC` and `triton.knobs.build.impl`. Raises RuntimeError without a compiler, and
    subprocess.CalledProcessError when it fails.
    """
    from triton.runtime.build import _build

    built: str = _build(name, path, folder, [], [], libraries, flags)
    return built


def torch_library(name: str) -> ctypes.CDLL | None:
    """One of torch's own libraries, as `import torch` loaded it; None when it has another name here."""
    import torch

    path = os.path.join(os.path.dirname(torch.__file__), "lib", name)
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def symbol_address(library: ctypes.CDLL | None, name: str) -> int:
    """The address of a symbol, 0 when the library does not have it."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def torch_access() -> dict[str, Any]:
    """Keyword arguments for the extension's `configure`; an address or offset of 0 means "use the method"."""
    import torch

    library = torch_library("libtorch_cpu.so")
    addresses = {name: symbol_address(library, f"aoti_torch_{name}") for name in _SHIM}
    offset = _tensor_offset(library, addresses) if all(addresses.values()) else 0
    count_modes, key_included, functorch_key = _interception()
    return {
        "tensor_type": torch.Tensor,
        "parameter_type": torch.nn.Parameter,
        "tensor_offset": offset,
        "get_num_threads": _num_threads_address(library),
        "get_cuda_stream": symbol_address(torch_library("libtorch_cuda.so"), "aoti_torch_get_current_cuda_stream"),
        "count_modes": count_modes,
        "key_included": key_included,
        "functorch_key": functorch_key,
        **addresses,
        **_onlookers(library, offset),
        **_lazy_values(library, offset),
    }


def _num_threads_address(library: ctypes.CDLL | None) -> int:
    import torch

    for name in _THREADS:
        address = symbol_address(library, name)
        if address and ctypes.CFUNCTYPE(ctypes.c_int)(address)() == torch.get_num_threads():
            return address
    return 0


def _interception() -> tuple[int, int, int]:
    """Addresses of the functions that count dispatch modes and look up a dispatch key, and the key of functorch.

    All 0 when one of them is missing or says something else than torch's own Python functions.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    library = torch_library("libc10.so")
    modes, included = symbol_address(library, _COUNT_MODES), symbol_address(library, _KEY_INCLUDED)
    if not modes or not included:
        return 0, 0, 0
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(modes)
    is_included = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint16)(included)

    class Probe(TorchDispatchMode):  # type: ignore[misc]
        """A mode that does nothing."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    try:
        key = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
        number = int(key)

        def right() -> bool:
            """Whether both say now what Python says."""
            return bool(
                count() == torch._C._len_torch_dispatch_stack()
                and is_included(number) == torch._C._dispatch_tls_is_dispatch_key_included(key)
            )

        checks = [right()]
        with Probe():
            checks.append(right() and count() > 0)
        with torch._C._IncludeDispatchKeyGuard(key):
            checks.append(right() and is_included(number))
    except (AttributeError, TypeError):
        return 0, 0, 0
    return (modes, included, number) if all(checks) else (0, 0, 0)


def _onlookers(library: ctypes.CDLL | None, offset: int) -> dict[str, int]:
    """Addresses of the functions that say who wants to see a call; 0 for one that does not say what Python says."""
    import torch
    from torch.overrides import TorchFunctionMode

    core = torch_library("libc10.so")
    modes = symbol_address(library, _FUNCTION_MODES)
    profiling = symbol_address(library, _PROFILER)
    grad = symbol_address(core, _GRAD_ENABLED)
    requires_grad = symbol_address(core, _REQUIRES_GRAD)
    says = ctypes.CFUNCTYPE(ctypes.c_bool)

    def agree(address: int, prototype: Any, python: Callable[[], Any], *states: AbstractContextManager[Any]) -> int:
        """The address, when the function there says what `python` says, in each of the states, which differ."""
        if not address:
            return 0
        answers = []
        for state in states:
            with state:
                answers.append((int(prototype(address)()), int(python())))
        right = all(here == there for here, there in answers) and len(set(answers)) == len(states)
        return address if right else 0

    try:
        return {
            "count_function_modes": agree(
                modes,
                ctypes.CFUNCTYPE(ctypes.c_int64),
                torch._C._len_torch_function_stack,
                nullcontext(),
                TorchFunctionMode(),
            ),
            # That it sees a profiler is not tried: starting one here could disturb the user's.
            "profiler_enabled": agree(profiling, says, torch.autograd._profiler_enabled, nullcontext()),
            "grad_enabled": agree(grad, says, torch.is_grad_enabled, torch.enable_grad(), torch.no_grad()),
            "requires_grad": requires_grad if offset and _reads_requires_grad(requires_grad, offset) else 0,
        }
    except (AttributeError, TypeError):
        return dict.fromkeys(("count_function_modes", "profiler_enabled", "grad_enabled", "requires_grad"), 0)


def _lazy_values(library: ctypes.CDLL | None, offset: int) -> dict[str, int]:
    """Addresses of the functions that say whether a tensor's memory does not hold its values; 0 for one that errs."""
    import torch

    plain = torch.zeros(2)
    samples = {
        "is_neg": torch.zeros(2, dtype=torch.complex64).conj().imag,
        "is_conj": torch.zeros(2, dtype=torch.complex64).conj(),
        "is_zerotensor": torch._efficientzerotensor(2),
    }
    found = {}
    for name, sample in samples.items():
        symbol = f"_{name}" if name == "is_zerotensor" else name
        address = symbol_address(library, f"_ZN2at6native{len(symbol)}{symbol}ERKNS_6TensorE") if offset else 0
        says = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(address) if address else None
        right = says is not None and says(id(sample) + offset) and not says(id(plain) + offset)
        found[name] = address if right else 0
    return found


def _reads_requires_grad(address: int, offset: int) -> bool:
    """Whether the function says of a TensorImpl what the Python attribute says of its tensor."""
    import torch

    if not address:
        return False
    function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(address)
    leaf = torch.zeros(2, requires_grad=True)
    samples = [torch.zeros(3), leaf, leaf.detach(), torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(leaf, False)]
    return all(
        function(ctypes.c_void_p.from_address(id(sample) + offset).value) == sample.requires_grad for sample in samples
    )


def _tensor_offset(library: ctypes.CDLL | None, addresses: dict[str, int]) -> int:
    """The offset in bytes at which a `torch.Tensor` object holds its `at::Tensor`; 0 when any check fails."""
    import torch

    samples = [
        torch.zeros(3),
        torch.zeros(5, dtype=torch.int8)[1:],
        torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16)),
        torch.zeros(4, 6, dtype=torch.float64).t()[1:, 1:],
    ]
    found = {_find_implementation(library, sample) for sample in samples}
    if len(found) != 1:
        return 0
    offset = found.pop()
    return offset if offset and all(_reads_right(addresses, sample, offset) for sample in samples) else 0


def _find_implementation(library: ctypes.CDLL | None, tensor: Any) -> int:
    """Where in the object `tensor` the pointer to its implementation stands; 0 unless in exactly one place.

    torch copies the `at::Tensor` (a single pointer) to the heap and hands out its address; the same pointer
    is then searched in the object's own bytes, so that nothing unknown is ever dereferenced.
    """
    import torch

    allocate = getattr(getattr(torch._C, "_aoti", None), "unsafe_alloc_void_ptr_from_tensor", None)
    release = getattr(library, "aoti_torch_delete_tensor_object", None)
    if allocate is None or release is None:
        return 0
    unwrap = ctypes.pythonapi.PyCapsule_GetPointer
    unwrap.restype, unwrap.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    copy = unwrap(allocate(tensor), None)
    release.argtypes = [ctypes.c_void_p]
    try:
        wanted = ctypes.c_uint64.from_address(copy).value
        first, size = object.__basicsize__, type(tensor).__basicsize__
        places = [
            place
            for place in range(first, size - 7, 8)
            if ctypes.c_uint64.from_address(id(tensor) + place).value == wanted
        ]
    finally:
        release(copy)
    return places[0] if len(places) == 1 else 0


def _reads_right(addresses: dict[str, int], tensor: Any, offset: int) -> bool:
    """Whether the shim, called on `tensor`'s inner tensor, says what the Python attributes say."""
    import torch

    def ask(name: str, kind: Any) -> Any:
        value = kind()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        failed = prototype(addresses[name])(id(tensor) + offset, ctypes.addressof(value))
        return None if failed else value.value

    # The numbers of c10::ScalarType and c10::DeviceType, which are part of the shim's ABI.
    dtypes = {torch.int8: 1, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}
    return bool(
        ask("get_data_ptr", ctypes.c_void_p) == tensor.data_ptr()
        and ask("get_dtype", ctypes.c_int32) == dtypes[tensor.dtype]
        and ask("get_device_type", ctypes.c_int32) == 0
    )

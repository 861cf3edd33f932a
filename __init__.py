"""opgraft: kernels written once in the Triton language become real PyTorch ops.

    from opgraft.jit import jit          # the decorator of kernels

    @opgraft.custom_op("ns::name")       # the decorator of ops whose bodies launch them

Importing this package imports neither torch nor triton: the names below load on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import fx_passes, integration, jit, testing
    from .integration import custom_op

__version__ = "0.1.0"

# The runtime knows nothing of torch.compile; whoever imports either gets them joined. (A test runner also runs this
# file under the folder's name, which need not be a module's.)
if __name__ == "opgraft":
    from .jit.on_import import when_imported as _when_imported

    _when_imported(
        "opgraft.jit.interception", lambda module: module.providers.append("opgraft.integration.launching:install")
    )
    _when_imported("torch._dynamo.variables.builder", "opgraft.integration.dynamo:register")

__all__ = ["__version__", "custom_op", "fx_passes", "integration", "jit", "testing"]

_PARTS = frozenset({"fx_passes", "integration", "jit", "testing"})
_HOMES = {"custom_op": ".integration"}


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_HOMES[name], __name__), name)
    except ModuleNotFoundError as error:
        from .jit.requirements import explain

        raise explain(error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Importing opgraft loads neither torch nor triton; the first name that needs them does."""

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def loaded_after(statement: str) -> set[str]:
    """Which of the heavy packages a new process has loaded after the statement."""
    done = run_python(f"{statement}\nimport sys\nprint(*({{'torch', 'triton', 'numpy', 'sympy'}} & set(sys.modules)))")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import opgraft",
        "import opgraft; opgraft.__version__; dir(opgraft)",
        "import opgraft.jit",
        "import opgraft; opgraft.jit",
        "import opgraft.jit.backends.cpu",
    ],
)
def test_import_loads_neither_torch_nor_triton(statement: str) -> None:
    assert loaded_after(statement) == set()


def test_using_a_name_loads_what_it_needs() -> None:
    assert {"torch", "triton"} <= loaded_after("import opgraft; opgraft.custom_op")


def test_jit_is_the_subpackage_and_holds_the_decorator() -> None:
    done = run_python("import opgraft; from opgraft.jit import jit; assert opgraft.jit.jit is jit and callable(jit)")
    assert done.returncode == 0, done.stderr


def test_every_public_name_resolves_and_is_listed() -> None:
    done = run_python(
        "import opgraft\nfor name in opgraft.__all__:\n    getattr(opgraft, name)\n    assert name in dir(opgraft)\n"
    )
    assert done.returncode == 0, done.stderr


def test_unknown_name_is_an_attribute_error() -> None:
    import opgraft

    with pytest.raises(AttributeError, match="'opgraft' has no attribute 'custom_opp'"):
        opgraft.custom_opp  # noqa: B018


def test_the_root_loads_under_any_folder_name() -> None:
    """As test runners do with a folder that holds an __init__.py, whatever the clone is called."""
    run_path(str(ROOT / "__init__.py"), run_name="a-clone")


# None in sys.modules makes the import fail as it does where the package is not installed. torch is loaded before the
# system gets another name, since it looks for its libraries by that name.
WITHOUT_TRITON = """
import platform, sys, torch
sys.modules["triton"] = None
for system in ("Linux", "Darwin", "Windows"):
    platform.system = lambda: system
    try:
        {use}
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("use", ["import opgraft; opgraft.custom_op", "from opgraft.jit import jit"])
def test_first_use_without_triton_says_what_to_do(use: str) -> None:
    done = run_python(WITHOUT_TRITON.format(use=use))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "opgraft's kernels need Triton, which is not installed: pip install triton",
        "opgraft's kernels need Triton, which is not installed: Triton has no wheel for Darwin; use Linux",
        "opgraft's kernels need Triton, which is not installed: Triton has no wheel for Windows; use Linux, "
        "for example in WSL",
    ]


def test_import_without_triton_works_until_a_kernel_is_needed() -> None:
    done = run_python("import sys; sys.modules['triton'] = None; import opgraft, opgraft.jit, opgraft.jit.backends.cpu")
    assert done.returncode == 0, done.stderr

"""Importing opgraft loads neither torch nor triton; the first name that needs them does."""

import subprocess
import sys

import pytest


def run_python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def loaded_after(statement: str) -> set[str]:
    """Which of the heavy packages a new process has loaded after the statement."""
    done = run_python(
        f"{statement}\nimport sys\nprint(*({{'torch', 'triton', 'numpy', 'sympy'}} & set(sys.modules)))"
    )
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
    done = run_python(
        "import opgraft; from opgraft.jit import jit; assert opgraft.jit.jit is jit and callable(jit)"
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_resolves_and_is_listed() -> None:
    done = run_python(
        "import opgraft\n"
        "for name in opgraft.__all__:\n"
        "    getattr(opgraft, name)\n"
        "    assert name in dir(opgraft)\n"
    )
    assert done.returncode == 0, done.stderr


def test_unknown_name_is_an_attribute_error() -> None:
    import opgraft

    with pytest.raises(AttributeError, match="'opgraft' has no attribute 'custom_opp'"):
        opgraft.custom_opp  # noqa: B018


# None in sys.modules makes the import fail as it does where the package is not installed.
HIDE_TRITON = "import platform, sys; sys.modules['triton'] = None; platform.system = lambda: {system!r}\n"


@pytest.mark.parametrize(
    ("system", "cure"),
    [
        ("Linux", "pip install triton"),
        ("Darwin", "there is no Triton wheel for Darwin; use Linux"),
        ("Windows", "there is no Triton wheel for Windows; use Linux (on Windows: WSL)"),
    ],
)
@pytest.mark.parametrize("use", ["import opgraft; opgraft.custom_op", "from opgraft.jit import jit"])
def test_first_use_without_triton_says_what_to_do(system: str, cure: str, use: str) -> None:
    done = run_python(HIDE_TRITON.format(system=system) + use)
    assert done.returncode != 0
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line == f"ImportError: opgraft's kernels need Triton, which is not installed: {cure}"


def test_import_without_triton_works_until_a_kernel_is_needed() -> None:
    done = run_python(
        HIDE_TRITON.format(system="Darwin") + "import opgraft, opgraft.jit; print(opgraft.__version__)"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0.1.0")

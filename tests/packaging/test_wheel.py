"""What a user installs: the wheel holds the package, its C sources and its type marker, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def source_files(pattern: str) -> set[str]:
    """The package's own files in the repository that match, as the wheel names them."""
    parts = ("jit", "integration", "fx_passes")
    found = [*ROOT.glob(pattern), *(path for part in parts for path in (ROOT / part).rglob(pattern))]
    return {f"opgraft/{path.relative_to(ROOT).as_posix()}" for path in found}


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The file names of a wheel built from a copy of the repository in a folder with a hyphen in its name."""
    work = tmp_path_factory.mktemp("wheel")
    copy = work / "a-clone-of-opgraft"
    skip = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=skip)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        str(copy),
    ]
    done = subprocess.run([*command, "--wheel-dir", str(work)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = work.glob("opgraft-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_wheel_holds_every_module_of_the_package(wheel_names: set[str]) -> None:
    modules = source_files("*.py")
    assert "opgraft/__init__.py" in modules and "opgraft/jit/__init__.py" in modules
    assert modules - wheel_names == set()


def test_wheel_holds_the_c_sources_and_the_type_marker(wheel_names: set[str]) -> None:
    sources = source_files("*.c") | source_files("*.h") | source_files("*.cpp")
    assert any(name.startswith("opgraft/jit/native/") for name in sources)
    assert (sources | {"opgraft/py.typed"}) - wheel_names == set()


def test_wheel_holds_nothing_but_the_package_and_its_metadata(wheel_names: set[str]) -> None:
    package = source_files("*.py") | source_files("*.c") | source_files("*.h") | source_files("*.cpp")
    others = {name for name in wheel_names - package if ".dist-info/" not in name}
    assert others == {"opgraft/py.typed"}


def test_wheel_registers_the_triton_plugin_and_the_compile_backend(wheel_names: set[str]) -> None:
    from importlib.metadata import entry_points

    assert any(name.endswith(".dist-info/entry_points.txt") for name in wheel_names)
    triton_backends = {point.name: point.value for point in entry_points(group="triton.backends")}
    assert triton_backends["cpu"] == "opgraft.jit.backends.cpu"
    compile_backends = {point.name: point.value for point in entry_points(group="torch_dynamo_backends")}
    assert compile_backends["opgraft"].startswith("opgraft.fx_passes")

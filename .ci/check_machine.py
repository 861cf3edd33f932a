"""Says what is missing on this machine before anything is installed; the Makefile runs it first."""

import os
import platform
import shutil
import sys
import sysconfig


def missing() -> "list[str]":
    """One line for each thing that is not there, with what to do about it."""
    found = []
    if sys.version_info < (3, 10):
        found.append("Python 3.10 or newer, got %s: make PYTHON=python3.12 ..." % platform.python_version())
    if not sys.platform.startswith("linux"):
        found.append("Linux, got %s: Triton has no wheel for it (README, Other systems)" % platform.system())
    if not any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name):
        found.append("a C++ compiler: install g++ or clang, or set CXX")
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        found.append("Python's headers (%s): on Debian or Ubuntu, install python3-dev" % header)
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        found.append("ensurepip, which makes virtual environments: on Debian or Ubuntu, install python3-venv")
    return found


if __name__ == "__main__":
    lines = missing()
    if lines:
        sys.exit("opgraft needs, and did not find:\n" + "\n".join("  - " + line for line in lines))

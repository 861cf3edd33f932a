"""The host's C++ compiler: where it is, what the CPU can do, how a kernel becomes a shared object.

Entry point: :func:`build`, C++ text in, bytes of a shared object out. :func:`host_arch` names the CPU for targets and
cache keys, :func:`vector_bytes` says how wide its vectors are, and :func:`fingerprint` identifies all that a compiled
kernel depends on besides its source.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

INCLUDE = Path(__file__).parent / "include"
_GPU_ARCH = re.compile(r"^(sm|gfx)\w+$")


class ToolchainError(RuntimeError):
    """There is no usable C++ compiler, or it refused the generated source."""


def host_arch() -> str:
    """The CPU of this machine as a short name: machine, vector extension, hash of all its feature flags.

    >>> host_arch()  # doctest: +SKIP
    'x86_64-avx512-3f9a12cc'
    """
    return _host_arch()


@functools.lru_cache(None)
def _host_arch() -> str:
    flags = _host_flags()
    level = {64: "avx512", 32: "avx2", 16: "v128"}[_vector_bytes_of_flags(flags)]
    digest = hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest()[:8]
    return f"{platform.machine()}-{level}-{digest}"


@functools.lru_cache(None)
def _host_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset([platform.processor() or platform.machine()])
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return frozenset(match.group(1).split()) if match else frozenset([platform.machine()])


def _vector_bytes_of_flags(flags: frozenset[str]) -> int:
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return 64
    return 32 if {"avx2", "fma"} <= flags else 16


def selected_arch(override: str | None) -> str:
    """The ``-march`` value: ``native``, or Triton's ``TRITON_OVERRIDE_ARCH`` when it names a CPU."""
    return "native" if not override or _GPU_ARCH.match(override) else override


@functools.lru_cache(None)
def vector_bytes(arch: str) -> int:
    """Bytes in the widest vector of ``arch`` (a ``-march`` value) that generated code may use: 64, 32 or 16."""
    if arch == "native":
        return _vector_bytes_of_flags(_host_flags())
    macros = _run([*compiler(), *_march(arch), "-dM", "-E", "-x", "c++", os.devnull], None)
    defined = {line.split()[1] for line in macros.decode().splitlines() if line.startswith("#define")}
    if {"__AVX512F__", "__AVX512BW__", "__AVX512DQ__", "__AVX512VL__"} <= defined:
        return 64
    return 32 if {"__AVX2__", "__FMA__"} <= defined else 16


def _march(arch: str) -> list[str]:
    # ARM compilers spell "this machine" -mcpu; everything else takes -march.
    if arch == "native" and platform.machine() in ("aarch64", "arm64"):
        return ["-mcpu=native"]
    return [f"-march={arch}"]


def compiler() -> list[str]:
    """The compiler's command: ``CXX``, then ``CC``, then ``g++``, ``clang++``, ``c++`` on the path.

    Raises :class:`ToolchainError` when there is none.
    """
    return list(_compiler(os.environ.get("CXX"), os.environ.get("CC"), os.environ.get("PATH")))


@functools.lru_cache(8)
def _compiler(cxx: str | None, cc: str | None, path: str | None) -> tuple[str, ...]:
    tried = []
    for words in (cxx, cc, "g++", "clang++", "c++"):
        command = shlex.split(words) if words else []
        if not command:
            continue
        found = shutil.which(command[0], path=path)
        if found:
            return (found, *command[1:])
        tried.append(command[0])
    raise ToolchainError(
        f"the CPU backend needs a C++ compiler and found none (tried {', '.join(tried)}). "
        "Install g++ or clang++, or set the environment variable CXX to a compiler."
    )


@functools.lru_cache(8)
def _is_clang(command: tuple[str, ...]) -> bool:
    name = os.path.basename(command[0])
    if "clang" in name:
        return True
    return "g++" not in name and b"clang" in _run([*command, "--version"], None)


def flags(arch: str, *, fp_fusion: bool) -> list[str]:
    """The compiler's options for a kernel, include folder not among them.

    No library is linked: what kernels use of libc and libm is in the process, and `library` provides OpenMP. Looking
    through the usual libraries would take the linker longer than all the rest. -O2: kernels compiled with -O1 take up
    to a half longer, with -O3 as long (softmax, LayerNorm, GELU, dropout; GCC 12). -fno-thread-jumps: loops have few
    jumps to thread, and looking for them is a twentieth of the compilation.
    """
    command = tuple(compiler())
    common = [
        "-x", "c++", "-std=c++17", "-O2", *_march(arch), "-fPIC", "-shared", "-nostdlib", "-fvisibility=hidden",
        "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fno-strict-aliasing",
        "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-Wno-psabi",
        f"-ffp-contract={'fast' if fp_fusion else 'off'}",
    ]  # fmt: skip
    if _is_clang(command):
        return common
    return [
        *common, "-fno-use-linker-plugin", "-fno-tree-loop-distribute-patterns", "-fno-semantic-interposition",
        "-fno-thread-jumps",
    ]  # fmt: skip


def build(source: str, arch: str = "native", *, fp_fusion: bool = True, name: str = "kernel") -> bytes:
    """Compile C++ text to the bytes of a shared object.

    Raises :class:`ToolchainError` with the compiler's first errors when it refuses the source.
    """
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="opgraft-") as folder:
        output = os.path.join(folder, "kernel.so")
        arguments = [*command, *flags(arch, fp_fusion=fp_fusion), f"-I{INCLUDE}", "-o", output, "-", "-lgcc"]
        try:
            _run(arguments, source, name=name)
        except ToolchainError as error:
            # GCC 12 sometimes gives up vectorizing a scalar loop around masks that are vectors already.
            if "internal compiler error" not in str(error):
                raise
            _run([*arguments, "-fno-tree-vectorize"], source, name=name)
        return Path(output).read_bytes()


def _run(arguments: list[str], source: str | None, name: str = "") -> bytes:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            arguments, input=source.encode() if source is not None else None, capture_output=True, env=environment
        )
    except OSError as error:
        raise ToolchainError(f"cannot run the C++ compiler {arguments[0]!r}: {error}") from error
    if done.returncode != 0:
        errors = [line for line in done.stderr.decode(errors="replace").splitlines() if "error" in line][:5]
        detail = "\n".join(errors) or done.stderr.decode(errors="replace")[:2000]
        kernel = f" of kernel {name!r}" if name else ""
        raise ToolchainError(
            f"{os.path.basename(arguments[0])} refused the generated code{kernel} (exit status {done.returncode}):\n"
            f"{detail}"
        )
    return done.stdout


@functools.lru_cache(8)
def _compiler_identity(command: tuple[str, ...]) -> str:
    try:
        status = os.stat(os.path.realpath(command[0]))
    except OSError:
        return " ".join(command)
    return f"{' '.join(command)}:{status.st_size}:{status.st_mtime_ns}"


@functools.lru_cache(None)
def _generator_digest() -> str:
    """A hash of every source file that decides what code is generated."""
    from ...store.digests import tree_digest
    from ...store_key import digest_folder

    jit = Path(__file__).parents[2]
    return tree_digest(str(jit), ("backends/cpu", "ir"), (".py", ".h"), digest_folder())[:16]


def fingerprint() -> str:
    """What compiled kernels depend on besides source and options: generator, headers, compiler, CPU."""
    try:
        identity = _compiler_identity(tuple(compiler()))
    except ToolchainError:
        identity = "no compiler"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"{_generator_digest()}-{digest}-{host_arch()}"

"""`compile`: kernels from functions, files and text; Triton's settings; what listeners see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError

from opgraft.jit.compile import compile
from opgraft.jit.compiled import CompiledKernel
from opgraft.jit.sources import ModuleSource


@pytest.fixture(autouse=True)
def own_settings(cache):
    """Changes of Triton's settings last for one test."""
    with knobs.compilation.scope(), knobs.runtime.scope(), knobs.cache.scope():
        yield


def test_every_stage_can_be_read(kernels):
    kernel = compile(kernels.add_source(), kernels.CUDA)
    assert list(kernel.asm) == ["source", "ttir", "ttgir", "llir", "ptx", "cubin"]
    assert "tt.func public @add" in kernel.asm["ttir"]
    assert ".visible .entry add" in kernel.asm["ptx"]
    assert kernel.asm["cubin"].startswith(b"\x7fELF")


def test_a_compiled_kernel_has_what_tools_read(kernels):
    import triton

    kernel = compile(kernels.add_source(), kernels.CUDA, {"num_warps": 2})
    assert isinstance(kernel, CompiledKernel) and isinstance(kernel, triton.compiler.CompiledKernel)
    assert kernel.name == kernel.metadata.name == "add"
    assert kernel.metadata.target == kernels.CUDA
    assert kernel.metadata.num_warps == kernel.packed_metadata[0] == 2
    assert kernel.metadata.hash == kernel.hash
    assert kernel.kernel == kernel.asm["cubin"]
    assert kernel.function is None and kernel.module is None
    for name, path in kernel.metadata_group.items():
        assert Path(path).name == name and Path(path).exists()


def test_it_equals_what_triton_compiles(kernels):
    import triton

    ours = compile(kernels.add_source(), kernels.CUDA)
    stock = triton.compile(kernels.add_source(), kernels.CUDA)
    assert list(ours.asm) == list(stock.asm)
    assert ours.asm["ttgir"] == stock.asm["ttgir"]
    assert ours.kernel == stock.kernel
    different = {
        name
        for name in set(ours.metadata._fields) | set(stock.metadata._fields)
        if getattr(ours.metadata, name, None) != getattr(stock.metadata, name, None)
    }
    assert different == {"hash"}


def test_a_second_compile_is_read_from_the_store(kernels, events):
    first = compile(kernels.add_source(), kernels.CUDA)
    second = compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    assert second is not first
    assert dict(second.asm) == dict(first.asm) and second.metadata == first.metadata


def test_an_ir_file_is_compiled_from_its_stage_on(kernels, tmp_path):
    whole = compile(kernels.add_source(), kernels.CUDA)
    for stage, stages in {
        "ttir": ["ttir", "ttgir", "llir", "ptx", "cubin"],
        "ttgir": ["ttgir", "llir", "ptx", "cubin"],
    }.items():
        path = tmp_path / f"add.{stage}"
        path.write_text(whole.asm[stage])
        kernel = compile(str(path), kernels.CUDA)
        assert list(kernel.asm) == stages
        assert kernel.name == "add"


def test_ir_text_is_compiled_without_a_file(kernels):
    whole = compile(kernels.add_source(), kernels.CUDA)
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    kernel = compile(ModuleSource(whole.asm["ttir"], signature, name="add"), kernels.CUDA)
    assert kernel.kernel == whole.kernel
    assert kernel.written.written == (2,)


def test_a_gluon_kernel_starts_from_its_own_stage(kernels, tmp_path):
    gluon = pytest.importorskip("triton.experimental.gluon")
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    @gluon.jit
    def double(x, out, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
        index = gl.arange(0, BLOCK, layout=LAYOUT)
        gl.store(out + index, gl.load(x + index) * 2)

    signature = {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr", "LAYOUT": "constexpr"}
    layout = gl.BlockedLayout([1], [32], [4], [0])
    source = GluonASTSource(double, signature, {(2,): 128, (3,): layout}, {})
    kernel = compile(source, kernels.CUDA)
    assert "ttir" not in kernel.asm and "ttgir" in kernel.asm
    assert kernel.written_paths == {(1,)}


def test_an_edited_ir_file_is_compiled_anew(kernels, tmp_path):
    path = tmp_path / "add.ttir"
    text = compile(kernels.add_source(), kernels.CUDA).asm["ttir"]
    path.write_text(text)
    before = compile(str(path), kernels.CUDA)
    path.write_text(text.replace("arith.addf", "arith.mulf"))
    after = compile(str(path), kernels.CUDA)
    assert "mulf" in after.asm["ttir"] and after.kernel != before.kernel


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        (3, TypeError, "source must be either AST or a filepath"),
        ("/nowhere.ttir", FileNotFoundError, "/nowhere.ttir"),
        ("kernel.ptx", ValueError, "override"),
    ],
)
def test_what_cannot_be_compiled_is_refused(kernels, source, error, says):
    with pytest.raises(error, match=says):
        compile(source, kernels.CUDA)


def test_a_target_of_another_type_is_refused(kernels):
    with pytest.raises(TypeError, match="target must be of GPUTarget type"):
        compile(kernels.add_source(), "cuda")


def test_a_target_without_backend_is_refused(kernels):
    with pytest.raises(RuntimeError, match="0 compatible backends for target"):
        compile(kernels.add_source(), GPUTarget("abacus", 1, 1))


def test_a_stage_that_the_backend_lacks_is_refused(kernels):
    text = compile(kernels.add_source(), kernels.CUDA).asm["ttir"]
    with pytest.raises(ValueError, match="no stage 'tosa'"):
        compile(ModuleSource(text, {}, name="add", ext="tosa"), kernels.CUDA)


def test_an_error_of_the_kernel_comes_without_frames_of_the_compiler(kernels):
    with pytest.raises(CompilationError, match="undefined_name") as caught:
        compile(kernels.broken_source(), kernels.CUDA)
    files = [frame.path.name for frame in caught.traceback if hasattr(frame.path, "name")]
    assert "code_generator.py" not in files


def test_an_error_leaves_no_entry(kernels, cache):
    with pytest.raises(CompilationError):
        compile(kernels.broken_source(), kernels.CUDA)
    assert [path.name for path in cache.iterdir() if not path.name.startswith(".opgraft-")] == []


# ---- Triton's settings ----


def test_the_listener_sees_compiles_and_hits(kernels):
    calls = []
    knobs.compilation.listener = lambda **kwargs: calls.append(kwargs)
    kernel = compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    miss, hit = calls
    assert (miss["cache_hit"], hit["cache_hit"]) == (False, True)
    assert set(miss) == set(hit) == {"src", "metadata", "metadata_group", "times", "cache_hit"}
    assert [stage for stage, _ in miss["times"].lowering_stages] == ["ttir", "ttgir", "llir", "ptx", "cubin"]
    assert miss["times"].total > 0 and miss["times"].ir_initialization > 0
    assert hit["times"].lowering_stages == [] and hit["times"].store_results == 0
    assert miss["metadata"]["hash"] == hit["metadata"]["hash"] == kernel.hash
    assert miss["metadata_group"] == hit["metadata_group"] == kernel.metadata_group


def test_always_compile_compiles(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    knobs.compilation.always_compile = True
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "compiled"]


def test_store_binary_only(kernels):
    knobs.compilation.store_binary_only = True
    kernel = compile(kernels.add_source(), kernels.CUDA)
    assert list(kernel.asm) == ["source", "cubin"]
    again = compile(kernels.add_source(), kernels.CUDA)
    assert again.kernel == kernel.kernel
    # Found while it was compiled.
    assert again.written.written == (2,)


def test_dump_writes_every_stage(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "dump"))
    knobs.compilation.dump_ir = True
    kernel = compile(kernels.add_source(), kernels.CUDA)
    (folder,) = (tmp_path / "dump").iterdir()
    for stage in ("ttir", "ttgir", "llir", "ptx"):
        assert (folder / f"add.{stage}").read_text() == kernel.asm[stage]
    assert (folder / "add.cubin").read_bytes() == kernel.kernel
    assert (folder / "add.sass").exists()


def test_a_file_in_the_override_folder_replaces_a_stage(kernels, tmp_path, monkeypatch, capsys):
    plain = compile(kernels.add_source(), kernels.CUDA)
    monkeypatch.setenv("TRITON_OVERRIDE_DIR", str(tmp_path / "override"))
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "override"))
    knobs.compilation.dump_ir = True
    compile(kernels.fill_source(), kernels.CUDA)
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        compile(kernels.add_source(), kernels.CUDA)
    knobs.compilation.dump_ir = False
    (file,) = (tmp_path / "override").glob("*/add.ttgir")
    knobs.compilation.override = True

    # No `always_compile`: what overrides is part of the key, and so is every edit of it.
    file.write_text(plain.asm["ttgir"].replace("arith.addf", "arith.mulf"))
    for other in file.parent.iterdir():
        if other != file:
            other.unlink()
    product = compile(kernels.add_source(), kernels.CUDA)
    assert "Overriding kernel with file" in capsys.readouterr().out
    assert "mul" in product.asm["ptx"] and product.kernel != plain.kernel
    file.write_text(plain.asm["ttgir"].replace("arith.addf", "arith.subf"))
    difference = compile(kernels.add_source(), kernels.CUDA)
    assert "sub" in difference.asm["ptx"] and difference.kernel != product.kernel
    knobs.compilation.override = False
    assert compile(kernels.add_source(), kernels.CUDA).kernel == plain.kernel


def test_an_ir_override_among_the_options_replaces_a_stage_and_is_keyed_by_its_content(kernels, tmp_path):
    plain = compile(kernels.add_source(), kernels.CUDA)
    path = tmp_path / "add.ttgir"
    path.write_text(plain.asm["ttgir"].replace("arith.addf", "arith.mulf"))
    product = compile(kernels.add_source(), kernels.CUDA, {"ir_override": str(path)})
    assert "mul" in product.asm["ptx"]
    path.write_text(plain.asm["ttgir"].replace("arith.addf", "arith.subf"))
    difference = compile(kernels.add_source(), kernels.CUDA, {"ir_override": str(path)})
    assert "sub" in difference.asm["ptx"]


@pytest.mark.skipif(
    not hasattr(knobs.runtime, "add_stages_inspection_hook"), reason="this Triton has no add_stages_inspection_hook"
)
def test_the_key_of_a_stages_hook_is_part_of_the_key(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    name = ["one"]

    def hook(self=None, stages=None, options=None, language=None, capability=None):
        return name[0], name[0]

    knobs.runtime.add_stages_inspection_hook = hook
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(), kernels.CUDA)
    name[0] = "two"
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "compiled", "stored", "compiled"]
    assert "pass pipeline" in events[1].reason


def test_a_custom_cache_manager_is_used(kernels, events, tmp_path):
    from triton.runtime.cache import FileCacheManager

    calls = []

    class Counting(FileCacheManager):
        def put(self, data, filename, binary=True):
            calls.append(("put", filename))
            return super().put(data, filename, binary)

        def get_file(self, filename):
            calls.append(("get_file", filename))
            return super().get_file(filename)

    knobs.cache.manager_class = Counting
    first = compile(kernels.add_source(), kernels.CUDA)
    second = compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    assert second.kernel == first.kernel
    put = [name for call, name in calls if call == "put"]
    assert put[-1] == "__entry__add.json", "the record is written last"
    assert {"add.cubin", "add.ttir", "add.json"} <= set(put)


class MemoryBackend:
    """A remote cache in this process."""

    stored: ClassVar[dict] = {}
    fails = False

    def __init__(self, key):
        self.key = key

    def get(self, filenames):
        if MemoryBackend.fails:
            raise ConnectionError("the remote cache is down")
        return {name: data for name in filenames if (data := self.stored.get((self.key, name))) is not None}

    def put(self, filename, data):
        if MemoryBackend.fails:
            raise ConnectionError("the remote cache is down")
        self.stored[self.key, filename] = data


@pytest.fixture
def remote(monkeypatch):
    from triton.runtime.cache import RemoteCacheManager

    monkeypatch.setattr(MemoryBackend, "stored", {})
    monkeypatch.setattr(MemoryBackend, "fails", False)
    knobs.cache.manager_class = RemoteCacheManager
    knobs.cache.remote_manager_class = MemoryBackend
    return MemoryBackend


def test_a_remote_cache_serves_another_machine(kernels, events, remote, tmp_path, monkeypatch):
    first = compile(kernels.add_source(), kernels.CUDA)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "other machine"))
    second = compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "stored"]
    assert second.kernel == first.kernel


def test_an_entry_that_the_remote_cache_lost_in_part_is_compiled_anew(kernels, events, remote, store_warnings):
    compile(kernels.add_source(), kernels.CUDA)
    for key in [key for key in remote.stored if key[1] == "add.cubin"]:
        del remote.stored[key]
    compile(kernels.add_source(), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "compiled"]
    (message,) = store_warnings()
    assert "is missing" in message


def test_a_remote_cache_that_is_down_costs_a_warning(kernels, events, remote, store_warnings):
    remote.fails = True
    kernel = compile(kernels.add_source(), kernels.CUDA)
    assert kernel.asm["cubin"]
    assert [event.outcome for event in events] == ["compiled"]
    messages = store_warnings()
    assert len(messages) == 2 and all("the remote cache is down" in message for message in messages)


def test_metadata_names_no_folder_of_this_installation(kernels, entry_folder):
    import triton

    kernel = compile(kernels.add_source(), kernels.CUDA)
    installed = str(Path(triton.__file__).parent)
    assert dict(kernel.metadata.extern_libs)["libdevice"].startswith(installed)
    assert installed not in (entry_folder() / "add.json").read_text()
    assert json.loads((entry_folder() / "add.json").read_text())["name"] == "add"

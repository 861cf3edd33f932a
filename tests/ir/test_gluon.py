"""Gluon kernels start as TTGIR: the same reader, and the accesses of NVIDIA's copy engines."""

import pytest

gluon = pytest.importorskip("triton.experimental.gluon")

from triton._C.libtriton import ir  # noqa: E402
from triton.compiler import make_backend  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon._runtime import GluonASTSource  # noqa: E402
from triton.experimental.gluon.language.nvidia.ampere import async_copy  # noqa: E402
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma  # noqa: E402

from opgraft.jit.ir import generic_text, parse, print_module, written_arguments  # noqa: E402

from .frontend import TARGET, triton_parse  # noqa: E402

# Triton 3.9 renamed them
copy_to_shared = getattr(async_copy, "async_load", async_copy.async_copy_global_to_shared)
tma_to_shared = getattr(tma, "async_load", tma.async_copy_global_to_shared)
tma_to_global = getattr(tma, "async_store", tma.async_copy_shared_to_global)

FLAT = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
SHARED = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
NVMMA = gl.NVMMASharedLayout(swizzle_byte_width=32, element_bitwidth=16, rank=2)


def _module(kernel, signature):
    source = GluonASTSource(kernel, signature, {}, {})
    backend = make_backend(TARGET)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    code = backend.get_codegen_implementation(options)
    return source.make_ir(TARGET, options, code, backend.get_module_map(), context), context


@gluon.jit
def direct(x, out):
    i = gl.arange(0, 128, layout=FLAT)
    gl.store(out + i, gl.convert_layout(gl.load(x + i), FLAT))


@gluon.jit
def copied(x, out):
    i = gl.arange(0, 128, layout=FLAT)
    buffer = gl.allocate_shared_memory(gl.float32, [128], SHARED)
    copy_to_shared(buffer, x + i)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + i, buffer.load(FLAT))


@gluon.jit
def through_descriptors(source, target):
    buffer = gl.allocate_shared_memory(gl.float16, [16, 16], source.layout)
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    mbarrier.expect(barrier, source.block_type.nbytes)
    tma_to_shared(source, [0, 0], barrier, buffer)
    mbarrier.wait(barrier, 0)
    tma_to_global(target, [0, 0], buffer)
    tma.store_wait(0)


@gluon.jit
def read_one(x, y):
    gl.load(y)
    gl.load(x)


@gluon.jit
def write_one(out, value):
    gl.store(out, value)


@gluon.jit
def specialized(x, y, out, n):
    gl.warp_specialize([(read_one, (x, y)), (write_one, (out, n)), (read_one, (y, x))], [4, 4], [24, 24])


DESCRIPTOR = f"tensordesc<fp16[16, 16],{NVMMA!r}>"
CASES = [
    (direct, {"x": "*fp32", "out": "*fp32"}, (1,), (0,)),
    (copied, {"x": "*fp32", "out": "*fp32"}, (1,), (0,)),
    (through_descriptors, {"source": DESCRIPTOR, "target": DESCRIPTOR}, (5,), (0,)),
    (specialized, {"x": "*fp32", "y": "*fp32", "out": "*i32", "n": "i32"}, (2,), (0, 1)),
]
each_kernel = pytest.mark.parametrize(
    ("kernel", "signature", "written", "read"), CASES, ids=[case[0].fn.__name__ for case in CASES]
)


@each_kernel
def test_triton_reads_back_the_same_module(kernel, signature, written, read, tmp_path):
    module, context = _module(kernel, signature)
    again = triton_parse(print_module(parse(generic_text(module, context))), tmp_path)
    assert str(again) == str(module)


@each_kernel
def test_written_and_read_arguments(kernel, signature, written, read):
    answer = written_arguments(parse(generic_text(*_module(kernel, signature))))
    assert answer.exact, answer.reasons
    assert (answer.written, answer.read) == (written, read)

"""What each operation does to memory and to pointers: tables for the analyses.

Source of the rules: the operation definitions of Triton 3.6 to 3.9 (TritonOps) and of MLIR's arith, math, ub,
scf and cf dialects."""

from __future__ import annotations

from typing import NamedTuple

from .structure import Operation
from .types import DescriptorType, OpaqueType, PointerType, Type, element_type


class Access(NamedTuple):
    """An access to memory through operand `pointer`."""

    pointer: int
    reads: bool = False
    writes: bool = False


ACCESSES = {
    "tt.load": Access(0, reads=True),
    "tt.store": Access(0, writes=True),
    "tt.atomic_rmw": Access(0, reads=True, writes=True),
    "tt.atomic_cas": Access(0, reads=True, writes=True),
    "tt.atomic_load": Access(0, reads=True),
    "tt.atomic_store": Access(0, writes=True),
    "tt.atomic_poll": Access(0, reads=True),
    "tt.descriptor_load": Access(0, reads=True),
    "tt.descriptor_gather": Access(0, reads=True),
    "tt.descriptor_store": Access(0, writes=True),
    "tt.descriptor_scatter": Access(0, writes=True),
    "tt.descriptor_reduce": Access(0, reads=True, writes=True),
    # Gluon for NVIDIA GPUs
    "ttg.async_copy_global_to_local": Access(0, reads=True),
    "ttng.async_tma_copy_global_to_local": Access(0, reads=True),
    "ttng.async_tma_gather": Access(0, reads=True),
    "ttng.async_tma_copy_local_to_global": Access(0, writes=True),
    "ttng.async_tma_scatter": Access(0, writes=True),
    "ttng.async_tma_reduce": Access(0, reads=True, writes=True),
}

# Operations whose result points where these operands point; the others are conditions, offsets, shapes or
# strides.
POINTER_OPERANDS = {
    "tt.addptr": (0,),
    "tt.advance": (0,),
    "tt.make_tensor_ptr": (0,),
    "tt.make_tensor_descriptor": (0,),
    "tt.gather": (0,),
    "arith.select": (1, 2),
}

# Results of these are numbers that say nothing of an address.
NO_ADDRESS = frozenset({"arith.cmpi", "arith.cmpf", "tt.histogram", "tt.dot", "tt.dot_scaled", "tt.print", "tt.assert"})

# Types of Gluon that are no pointers to global memory
_NO_POINTER = ("!ttg.memdesc", "!ttg.async.token", "vector<", "none")

_PURE_DIALECTS = frozenset({"arith", "math", "ub", "scf", "cf"})
_PURE_NAMES = """
    addptr advance approx_divf assert bitcast broadcast call cat clampf dot dot_scaled expand_dims
    fp_to_fp gather get_num_programs get_program_id histogram int_to_ptr join make_range
    make_tensor_descriptor make_tensor_ptr map_elementwise map_elementwise.return mulhiui precise_divf
    precise_sqrt print ptr_to_int reduce reduce.return reshape return scan scan.return splat split trans
    unsplat
"""
_PURE = frozenset(f"tt.{name}" for name in _PURE_NAMES.split())
_OTHERS = frozenset(
    {
        "builtin.module",
        "llvm.intr.assume",
        "tt.func",
        "ttg.convert_layout",
        "ttg.warp_specialize",
        "ttg.warp_specialize.partitions",
        "ttg.warp_yield",
    }
)
_FOREIGN = ("tt.elementwise_inline_asm", "tt.extern_elementwise")


def is_pointer(type: Type) -> bool:
    """Whether values of the type may address the memory of an argument."""
    type = element_type(type)
    if isinstance(type, OpaqueType):
        return not type.text.startswith(_NO_POINTER)
    return isinstance(type, PointerType | DescriptorType)


def touches_no_memory(op: Operation) -> bool:
    """Whether the operation itself, its regions aside, is known not to access the memory of an argument."""
    name = op.name
    if name in _PURE or name in _OTHERS:
        return True
    return name.partition(".")[0] in _PURE_DIALECTS


def is_pure_foreign_code(op: Operation) -> bool:
    """Inline assembly or an external function that is declared free of side effects."""
    return op.name in _FOREIGN and op.attributes.get("pure") is True

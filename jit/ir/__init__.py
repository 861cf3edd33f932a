"""Triton IR as plain Python data: read, analyse, rewrite, print.

    module = parse(generic_text(triton_module, context))
    print_module(module)

`types` has the types, `attributes` the attribute values, `structure` operations and rewriting.
"""

from ..written_arguments import WrittenArguments
from .attributes import UNIT, DenseArray, DenseElements, Float, Integer, Opaque, SymbolRef, Unit
from .errors import IRError
from .generic import generic_text
from .locations import UNKNOWN, Frame, Location
from .printer import print_module, print_operation
from .reader import parse
from .structure import Block, Module, Operation, Region, Value
from .types import (
    DescriptorType,
    FunctionType,
    OpaqueType,
    PointerType,
    ScalarType,
    TensorType,
    Type,
    element_type,
)
from .written import read_arguments, written_arguments

__all__ = [
    "UNIT",
    "UNKNOWN",
    "Block",
    "DenseArray",
    "DenseElements",
    "DescriptorType",
    "Float",
    "Frame",
    "FunctionType",
    "IRError",
    "Integer",
    "Location",
    "Module",
    "Opaque",
    "OpaqueType",
    "Operation",
    "PointerType",
    "Region",
    "ScalarType",
    "SymbolRef",
    "TensorType",
    "Type",
    "Unit",
    "Value",
    "WrittenArguments",
    "element_type",
    "generic_text",
    "parse",
    "print_module",
    "print_operation",
    "read_arguments",
    "written_arguments",
]

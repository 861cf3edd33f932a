"""Rewrites keep the structure true, and Triton accepts what they make."""

import pytest

from opgraft.jit.ir import (
    Block,
    FunctionType,
    Integer,
    IRError,
    Module,
    Operation,
    PointerType,
    TensorType,
    generic_text,
    parse,
    print_module,
    print_operation,
    written_arguments,
)
from opgraft.jit.ir.types import F32, I1, I32, I64

from .frontend import read, triton_compile, triton_module, triton_parse
from .kernels import add, everything

SIGNATURE = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


@pytest.fixture
def module():
    return read(add, SIGNATURE, {"BLOCK": 64}, passes=True)


def _only(module, name):
    (op,) = [op for op in module.walk() if op.name == name]
    return op


def _consistent(module):
    """Every use is listed once by the value, and nothing else is."""
    seen = {}
    for op in module.walk():
        for index, value in enumerate(op.operands):
            seen.setdefault(value, []).append((op, index))
    for op in module.walk():
        values = list(op.results)
        for region in op.regions:
            for block in region.blocks:
                values += block.arguments
        for value in values:
            assert sorted(map(repr, value.uses)) == sorted(map(repr, seen.pop(value, [])))
    assert not seen, "a value is used that is defined nowhere"


def test_insert_before_and_after(module, tmp_path):
    store = _only(module, "tt.store")
    total = _only(module, "arith.addf")
    double = store.insert_before(Operation("arith.addf", [total.result, total.result], [total.result.type]))
    store.set_operand(1, double.result)
    copy = store.insert_after(store.clone())
    block = store.parent
    assert block.operations[block.index_of(store) - 1] is double
    assert block.operations[block.index_of(store) + 1] is copy
    _consistent(module)
    again = triton_parse(print_module(module), tmp_path)
    assert str(again).count("tt.store") == 2


def test_replace_all_uses(module, tmp_path):
    total = _only(module, "arith.addf")
    product = total.insert_after(
        Operation("arith.mulf", [total.result, total.result], [total.result.type], location=total.location)
    )
    total.result.replace_all_uses_with(product.result, except_for=[product])
    assert total.result.users == [product]
    assert _only(module, "tt.store").operands[1] is product.result
    _consistent(module)
    triton_parse(print_module(module), tmp_path)


def test_a_value_is_not_replaced_by_one_of_another_type(module):
    total = _only(module, "arith.addf").result
    with pytest.raises(IRError, match=r"tensor<64xf32> by one of type i32"):
        total.replace_all_uses_with(module.entry.regions[0].blocks[0].arguments[3])


def test_erase(module):
    store = _only(module, "tt.store")
    store.erase()
    assert store.parent is None and store.operands == ()
    _consistent(module)
    assert written_arguments(module).written == ()


def test_an_operation_that_is_used_is_not_erased(module):
    before = print_module(module)
    with pytest.raises(IRError, match=r"cannot erase arith.addf at .*kernels.py.*tt.store.*replace that use first"):
        _only(module, "arith.addf").erase()
    assert print_module(module) == before


def test_an_operation_is_erased_with_its_regions():
    module = read(everything, SIGNATURE | {"flag": "i32"}, {"BLOCK": 64})
    loop = _only(module, "scf.while")
    with pytest.raises(IRError, match=r"cannot erase scf\.while"):
        loop.erase()
    for result, carried in zip(loop.results, list(loop.operands), strict=True):
        result.replace_all_uses_with(carried)
    loop.erase()
    _consistent(module)
    assert not [op for op in module.walk() if op.name in ("scf.while", "scf.condition")]


def test_clone_of_a_module_is_apart_from_it():
    module = read(everything, SIGNATURE | {"flag": "i32"}, {"BLOCK": 64})
    text = print_module(module)
    copy = module.clone()
    _consistent(copy)
    assert print_module(copy) == text
    assert not set(copy.walk()) & set(module.walk())
    for op in list(copy.walk()):
        op.attributes.clear()
    assert print_module(module) == text


def test_clone_with_other_operands(module):
    total = _only(module, "arith.addf")
    left, right = total.operands
    mapping = {left: right}
    copy = total.clone(mapping)
    assert copy.operands == (right, right) and mapping[total.result] is copy.result
    total.insert_after(copy)
    assert copy.result.name == total.result.name
    _consistent(module)


def test_a_batch_axis(module, tmp_path):
    """Every pointer moves by program_id(2) times a new stride argument: what vmap needs. Compiles to a cubin."""
    entry = module.entry
    block = entry.regions[0].blocks[0]
    pointers = [argument for argument in block.arguments if isinstance(argument.type, PointerType)]
    first = block.operations[0]
    program = first.insert_before(Operation("tt.get_program_id", [], [I32], {"axis": 2}))
    wide = first.insert_before(Operation("arith.extsi", [program.result], [I64]))
    for pointer in pointers:
        stride = module.add_argument(entry, I64, attributes={"tt.divisibility": 4})
        offset = first.insert_before(Operation("arith.muli", [wide.result, stride], [I64]))
        moved = first.insert_before(Operation("tt.addptr", [pointer, offset.result], [pointer.type]))
        pointer.replace_all_uses_with(moved.result, except_for=[moved])
    assert entry.attributes["function_type"] is FunctionType(
        (*[PointerType(F32)] * 3, I32, *[I64] * 3),
    )
    assert len(entry.attributes["arg_attrs"]) == 7
    assert written_arguments(module).written == (2,)
    compiled = triton_compile(print_module(module), tmp_path)
    assert "%ctaid.z" in compiled.asm["ptx"]


def test_an_argument_in_the_middle(module, tmp_path):
    entry = module.entry
    value = module.add_argument(entry, I32, index=1)
    arguments = entry.regions[0].blocks[0].arguments
    assert arguments[1] is value and [argument.index for argument in arguments] == list(range(5))
    assert written_arguments(module).written == (3,)
    triton_parse(print_module(module), tmp_path)


def test_attributes_of_new_operations_have_the_types_that_triton_expects(module, tmp_path):
    """Plain numbers are 32 bits wide; others say so."""
    store = _only(module, "tt.store")
    constant = store.insert_before(Operation("arith.constant", [], [I64], {"value": Integer(7, I64)}))
    less = {"predicate": Integer(2, I64)}
    store.insert_before(Operation("arith.cmpi", [constant.result] * 2, [I1], less))
    store.insert_before(Operation("tt.make_range", [], [TensorType((8,), I32)], {"start": 0, "end": 8}))
    text = print_operation(module.entry)
    assert "value = 7 : i64" in text and "predicate = 2 : i64" in text and "start = 0 : i32" in text
    assert triton_parse(print_module(module), tmp_path).verify()


def test_an_operation_stands_in_one_place(module):
    store = _only(module, "tt.store")
    with pytest.raises(IRError, match="already stands in a block"):
        store.parent.append(store)
    with pytest.raises(IRError, match="stands in no block"):
        Operation("x.y").insert_before(Operation("x.y"))
    with pytest.raises(IRError, match="already belongs"):
        Operation("x.y", regions=[module.op.regions[0]])
    with pytest.raises(IRError, match="does not stand in this block"):
        Block().index_of(store)
    block = store.parent
    block.append(store.detach())
    assert block.operations[-1] is store
    _consistent(module)


def test_a_module_is_made_of_a_module():
    with pytest.raises(IRError, match=r"expected a builtin\.module"):
        Module(Operation("tt.func"))
    with pytest.raises(IRError, match="has 0 results, not one"):
        _ = Operation("tt.func").result


def test_generic_text_needs_a_function():
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    with pytest.raises(IRError, match=r"no tt\.func"):
        generic_text(ir.builder(context).create_module(), context)


def test_generic_text_says_when_triton_prints_another_form(monkeypatch):
    """As it would if a new version printed modules that do not verify in some other way."""
    module, context = triton_module(add, SIGNATURE, {"BLOCK": 64})

    class Pretty:
        def walk(self, visit):
            module.walk(visit)

        def __str__(self):
            return 'module {\n  tt.func public @add() {\n    "builtin.module"()\n  }\n}\n'

    with pytest.raises(IRError, match=r"did not print the generic form.*'module \{'"):
        generic_text(Pretty(), context)
    assert parse(generic_text(module, context)).entry

"""What `parse` makes of the text, and what it refuses."""

import inspect
import re
import subprocess
import sys

import pytest
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraft.jit.ir import (
    UNIT,
    Block,
    DenseElements,
    DescriptorType,
    IRError,
    Opaque,
    SymbolRef,
    generic_text,
    parse,
    print_module,
    written_arguments,
)
from opgraft.jit.ir.types import F32, I1, I32, I64, FunctionType, PointerType, TensorType

from .frontend import read, triton_module, triton_parse
from .kernels import CASES, everything

SIGNATURE = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "flag": "i32"}


@pytest.fixture(scope="module")
def module():
    return read(everything, SIGNATURE, {"BLOCK": 64}, aligned=("x",), debug=True)


def _named(module, name):
    return [op for op in module.walk() if op.name == name]


# -- structure -----------------------------------------------------------------------------------------------


def test_the_entry_is_the_public_function(module):
    assert module.entry.attributes["sym_name"] == "everything"
    assert module.entry is module.functions["everything"]
    assert len(module.functions) > 5
    pointer = PointerType(F32)
    assert module.entry.attributes["function_type"] is FunctionType((pointer, pointer, pointer, I32, I32))
    assert module.entry.attributes["arg_attrs"] == [{"tt.divisibility": 16}, {}, {}, {}, {}]
    assert module.entry.attributes["noinline"] is False


def test_arguments_have_the_names_of_the_source(module):
    assert [argument.name for argument in module.entry.regions[0].blocks[0].arguments] == list(SIGNATURE)


def test_uses_and_owners(module):
    x = module.entry.regions[0].blocks[0].arguments[0]
    ((splat, index),) = x.uses
    assert (splat.name, index) == ("tt.splat", 0) and splat.operands[0] is x
    assert isinstance(x.owner, Block) and x.defining_op is None
    assert splat.result.owner is splat and splat.result.type is TensorType((64,), PointerType(F32))
    for op in module.walk():
        for position, value in enumerate(op.operands):
            assert (op, position) in value.uses
        for region in op.regions:
            for block in region.blocks:
                assert region.parent is op and block.parent is region
                assert all(inner.parent is block for inner in block.operations)


def test_attributes_are_python_values(module):
    load = _named(module, "tt.load")[0]
    assert load.operand_groups()[1] and load.attributes["operandSegmentSizes"] == [1, 1, 1]
    infinity = next(op for op in _named(module, "arith.constant") if op.result.type is TensorType((64,), F32))
    assert isinstance(infinity.attributes["value"], DenseElements)
    assert infinity.attributes["value"].splat == -float("inf")
    assert _named(module, "tt.make_range")[0].attributes == {"end": 64, "start": 0}
    assert _named(module, "arith.cmpi")[0].attributes["predicate"].type is I64
    assert _named(module, "arith.addf")[0].attributes["fastmath"] == Opaque("#arith.fastmath<none>")
    assert isinstance(_named(module, "tt.call")[0].attributes["callee"], SymbolRef)
    assert _named(module, "tt.call")[0].attributes["callee"] in module.functions
    assert any(op.attributes["message"] == 'no "good" value: \\ é' for op in _named(module, "tt.assert"))
    assert _named(module, "tt.print")[0].attributes["isSigned"] == [0, 0, 1]


def test_branches_know_their_blocks_and_what_they_pass(module):
    (branch,) = _named(module, "cf.cond_br")
    (taken, nothing), (other, _) = branch.successors
    assert nothing == [] and taken.operations[-1].name == "tt.return"
    assert taken is not other and branch in other.predecessors


def test_successor_operands():
    text = """
"builtin.module"() ({
  "tt.func"() <{function_type = (i32, i1) -> (), sym_name = "k", sym_visibility = "public"}> ({
  ^bb0(%a: i32, %c: i1):
    "cf.cond_br"(%c, %a, %a, %a)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 2, 1>}> : (i1, i32, i32, i32) -> ()
  ^bb1(%x: i32, %y: i32):  // pred: ^bb0
    "cf.br"(%y)[^bb2] : (i32) -> ()
  ^bb2(%z: i32):  // 2 preds: ^bb0, ^bb1
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
    module = parse(text)
    first, second, third = module.entry.regions[0].blocks
    a = first.arguments[0]
    assert first.terminator.successors == [(second, [a, a]), (third, [a])]
    assert second.terminator.successors == [(third, [second.arguments[1]])]
    assert len(third.predecessors) == 2


def test_regions_of_loops(module):
    loop = _named(module, "scf.for")[0]
    induction, *carried = loop.regions[0].blocks[0].arguments
    assert induction.type is I32 and induction.name == "i"
    assert [value.type for value in carried] == [value.type for value in loop.results]
    (loop,) = _named(module, "scf.while")
    before, after = (region.blocks[0] for region in loop.regions)
    assert before.terminator.name == "scf.condition" and after.terminator.name == "scf.yield"
    assert {value.name for value in loop.results} == {"ordered", "count"}


def test_descriptor_types_of_every_version():
    block = TensorType((16, 32), F32)
    old, new = DescriptorType(block, True), DescriptorType(block, False)
    assert (str(old), str(new)) == ("!tt.tensordesc<tensor<16x32xf32>>", "!tt.tensordesc<16x32xf32>")
    text = '"builtin.module"() ({\n  %a:2 = "x.y"() : () -> (T, U)\n}) : () -> ()\n'
    results = parse(text.replace("T", str(old)).replace("U", str(new))).body.operations[0].results
    assert [value.type for value in results] == [old, new]


def test_a_value_may_be_used_before_its_definition_in_the_text():
    text = """
"builtin.module"() ({
  "tt.func"() <{function_type = () -> (), sym_name = "k", sym_visibility = "public"}> ({
    "cf.br"()[^bb2] : () -> ()
  ^bb1:
    %r = "scf.if"(%c) ({
      "scf.yield"(%a) : (i32) -> ()
    }, {
      "scf.yield"(%a) : (i32) -> ()
    }) : (i1) -> i32
    "tt.return"() : () -> ()
  ^bb2:
    %a = "arith.constant"() <{value = 1 : i32}> : () -> i32
    %c = "arith.constant"() <{value = true}> : () -> i1
    "cf.br"()[^bb1] : () -> ()
  }) : () -> ()
}) : () -> ()
"""
    module = parse(text)
    ((conditional, _),) = _named(module, "arith.constant")[1].result.uses
    assert conditional.name == "scf.if"
    assert len(_named(module, "arith.constant")[0].result.uses) == 2
    copy = module.clone()
    constants = _named(copy, "arith.constant")
    assert len(constants[0].result.uses) == 2 and constants[0] not in _named(module, "arith.constant")
    assert print_module(copy) == print_module(module)


def test_what_was_put_in_to_get_the_generic_form_is_left_out():
    stray = '    "scf.yield"() : () -> () loc(#loc)\n'
    text = generic_text(*triton_module(everything, SIGNATURE, {"BLOCK": 64}))
    clean = print_module(parse(text))
    first_block = text.index("\n", text.index("  ^bb0(")) + 1
    assert print_module(parse(text[:first_block] + stray + text[first_block:])) == clean
    assert not any(not block.operations for f in parse(text).functions.values() for block in f.regions[0].blocks)


def test_attributes_are_not_shared_between_operations(module):
    """Also of operations that are written alike, whose text is read once."""
    line = '  "x.y"() <{list = [1], array = array<i32: 1>, dict = {a = [1]}, number = 1 : i32}> : () -> ()\n'
    first, second = parse('"builtin.module"() ({\n' + 2 * line + "}) : () -> ()\n").body.operations
    first.attributes["list"].append(2)
    first.attributes["array"].append(2)
    first.attributes["dict"]["a"].append(2)
    first.attributes["number"] = 2
    assert second.attributes == {"list": [1], "array": [1], "dict": {"a": [1]}, "number": 1}
    line = '  %a = "x.y"() <{number = 1 : i32}> : () -> i32\n'
    first, second = parse(
        '"builtin.module"() ({\n' + line + line.replace("%a", "%b") + "}) : () -> ()\n"
    ).body.operations
    first.attributes["number"] = 2
    assert second.attributes == {"number": 1}
    copies = parse(print_module(module))
    branch = _named(copies, "cf.cond_br")[0]
    again = branch.clone()
    again.attributes["operandSegmentSizes"].append(1)
    assert branch.attributes["operandSegmentSizes"] == [1, 0, 0]


# -- locations -----------------------------------------------------------------------------------------------


@triton.jit
def scale(v, factor):
    doubled = v * factor
    return doubled


@triton.jit
def located(x, out, n):
    i = tl.arange(0, 64)
    value = tl.load(x + i)
    result = scale(value, 2.0)
    total = tl.sum(result, 0)
    for step in range(n):
        total += step
    tl.store(out, total)


def _line(function, text):
    """The line of this file where the source of a kernel holds `text`."""
    lines, first = inspect.getsourcelines(function.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("passes", [False, True], ids=["frontend", "ttir"])
def test_lines_are_those_of_the_source(passes):
    module = read(located, {"x": "*fp32", "out": "*fp32", "n": "i32"}, passes=passes)
    load, store = _named(module, "tt.load")[0], _named(module, "tt.store")[0]
    assert load.location.file == store.location.file == __file__
    assert load.location.line == _line(located, "value = tl.load")
    assert store.location.line == _line(located, "tl.store")
    assert load.result.name == "value"


def test_an_inlined_function_has_its_own_line_and_its_callers():
    module = read(located, {"x": "*fp32", "out": "*fp32", "n": "i32"}, passes=True)
    (product,) = [op for op in _named(module, "arith.mulf") if op.location.file == __file__]
    assert product.location.line == _line(scale, "doubled = v")
    assert [frame.line for frame in product.location.frames] == [
        _line(scale, "doubled = v"),
        _line(located, "result = scale"),
    ]
    assert product.result.name == "doubled"


def test_code_of_the_library_is_placed_where_the_user_calls_it():
    module = read(located, {"x": "*fp32", "out": "*fp32", "n": "i32"}, passes=True)
    (reduction,) = _named(module, "tt.reduce")
    assert reduction.location.frames[0].in_triton
    assert (reduction.location.file, reduction.location.line) == (__file__, _line(located, "tl.sum"))


def test_every_result_of_the_source_has_its_name():
    module = read(located, {"x": "*fp32", "out": "*fp32", "n": "i32"})
    (loop,) = _named(module, "scf.for")
    assert [value.name for value in loop.regions[0].blocks[0].arguments] == ["step", "total"]
    assert loop.result.name == "total"


# -- refusals ------------------------------------------------------------------------------------------------

SMALL = """
#loc = loc("k.py":1:0)
"builtin.module"() ({
  "tt.func"() <{function_type = (i32, !tt.ptr<f32>) -> (), sym_name = "k", sym_visibility = "public"}> ({
  ^bb0(%n: i32 loc("n"(#loc)), %p: !tt.ptr<f32> loc("p"(#loc))):
    %c = "arith.constant"() <{value = 2 : i32}> : () -> i32 loc(#loc1)
    %s:2 = "x.two"(%c, %n) <{flag, list = [1, 2 : i8], dense = dense<[[1, 2]]> : tensor<1x2xi8>}> : (i32, i32) -> (i32, f32) loc(#loc1)
    "tt.store"(%p, %s#1) {x.y = "z"} : (!tt.ptr<f32>, f32) -> () loc(#loc1)
    "tt.return"() : () -> () loc(#loc)
  }) : () -> () loc(#loc)
}) : () -> () loc(#loc)
#loc1 = loc("k.py":2:4)
"""  # noqa: E501


def test_the_text_of_the_refusals_is_fine_itself():
    two = parse(SMALL).entry.regions[0].blocks[0].operations[1]
    assert two.attributes["flag"] is UNIT
    assert two.attributes["list"] == [1, 2]
    assert two.attributes["dense"].values == (1, 2)


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ('"builtin.module"() ({', "module {", 3, "generic form"),
        ("(%c, %n) <{flag", "(%c, %m) <{flag", 7, "a definition of %m"),
        ("(%p, %s#1)", "(%p, %s#2)", 8, "a definition of %s#2"),
        ("(%p, %s#1)", "(%p, %s)", 8, "a definition of %s in"),
        ("(%p, %s#1)", "(%p, %c)", 8, "%c to be used with its type i32, not f32"),
        ("(%p, %s#1)", "(%p)", 8, "1 operands, 2 types"),
        ('"tt.return"() : () -> ()', '"tt.return"(%later) : () -> ()', 9, "1 operands, 0 types"),
        ("%s:2 =", "%s:3 =", 7, "3 names, 2 types"),
        ("%s:2 =", "%s =", 7, "1 names, 2 types"),
        ("%s:2 =", "%s:99999999999 =", 7, "3 names, 2 types"),
        ("%s:2 = ", "", 7, "0 names, 2 types"),
        ("%s:2 =", "%c:2, %c =", 7, "3 names, 2 types"),
        ("%c = ", "%n = ", 6, "%n is already defined"),
        ('"tt.store"(%p, %s#1) {x.y = "z"}', '"tt.store"(%p, %s#1) {x.y = }', 8, "an attribute"),
        ('{x.y = "z"}', "{x.y = #alias}", 8, "alias is not defined"),
        ('{x.y = "z"}', "{x.y = 0.5 : i32}", 8, "an integer of type i32"),
        ('{x.y = "z"}', "{x.y = sparse<0, 1>}", 8, "a type"),
        ('{x.y = "z"}', '{x.y = "z}', 8, "a string"),
        ('{x.y = "z"}', '{x.y = "z", x.y = 1}', 8, "'x.y' comes twice"),
        ('{x.y = "z"}', "{x.y = 3 : f8E9M9}", 8, "a type"),
        ('{x.y = "z"}', "{x.y = 3 : tf32, z = 0x7FC0 : tf32}", 8, "tf32"),
        ("value = 2 : i32", "value = 2 : tensor<2xi32>", 6, "an integer or float type"),
        ("dense<[[1, 2]]>", "dense<[[1, 2, 3]]>", 7, "2 elements here"),
        ("dense<[[1, 2]]>", "dense<[1, 2]>", 7, "'[' in a constant"),
        ("dense<[[1, 2]]>", "dense<[[1, 2.5]]>", 7, "a number of type i8"),
        ("dense<[[1, 2]]>", 'dense<"0x0102ZZ">', 7, "raw elements in hex"),
        ("dense<[[1, 2]]>", 'dense<"0x010203">', 7, "2 bytes"),
        ("tensor<1x2xi8>", "tensor<?x2xi8>", 7, "static dimension"),
        ("-> (i32, f32) loc(#loc1)", "-> (i32, f32) loc(#loc1", 7, "')' at the end of the location"),
        ("-> (i32, f32) loc(#loc1)", "-> (i32, f32) loc(#loc9)", 7, "loc9 is not defined"),
        ("-> (i32, f32) loc(#loc1)", "-> (i32, f32) trailing", 7, "the end of the line"),
        ("-> (i32, f32) loc(#loc1)", "-> i32, f32", 7, "the end of the line"),
        ('#loc1 = loc("k.py":2:4)', "#loc1 = loc(#loc1)", 12, "does not use itself"),
        ('#loc1 = loc("k.py":2:4)', '#loc1 = loc("k.py":2:4) and more', 12, "the end of the definition"),
        ('#loc1 = loc("k.py":2:4)', '#loc1 = loc("k.py":2:4)\n#loc1 = loc("k.py":3:4)', 13, "one definition of #loc1"),
        ('#loc1 = loc("k.py":2:4)', '#loc1 = loc("k.py":2:4)\nrubbish', 13, "the end of the text"),
        ('    "tt.return"() : () -> () loc(#loc)\n', "", 9, "a terminator"),
        ('"tt.return"() : () -> () loc(#loc)', '"cf.br"()[^bb7] : () -> ()', 10, "a definition of the block ^bb7"),
        ("^bb0(%n: i32", "^bb0(%n i32", 5, "a block argument"),
        ('loc("p"(#loc))):', 'loc("p"(#loc)))', 5, "':'"),
        ("(i32, !tt.ptr<f32>) -> (), sym", "(i64, !tt.ptr<f32>) -> (), sym", 4, "arguments of k as in its type"),
        ("  }) : () -> () loc(#loc)\n", "  } : () -> () loc(#loc)\n", 10, "at the end of a region"),
        ('"x.two"(%c, %n) <{flag', '"scf.for"(%c, %n) <{flag', 7, "1 region(s) of scf.for"),
        ("<{flag,", "<{operandSegmentSizes = array<i32: 2, 1>,", 7, "operandSegmentSizes of x.two"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(old, new, line, expected):
    assert SMALL.count(old) >= 1
    with pytest.raises(IRError, match=re.escape(expected)) as caught:
        parse(SMALL.replace(old, new, 1))
    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")


def test_endless_nesting_is_refused():
    with pytest.raises(IRError, match="fewer brackets"):
        parse(SMALL.replace('{x.y = "z"}', "{x.y = " + "[" * 5000))


def test_aliases_are_written_out():
    """Also inside text that is kept as it is, which has to stand for itself."""
    text = """
#blocked = #ttg.blocked<{order = [1, 0]}>
#slice = #ttg.slice<{dim = 1, parent = #blocked, note = "#blocked"}>
!block = tensor<4x4xf32, #blocked>
"builtin.module"() ({
  %a:2 = "x.y"() <{layout = #slice}> : () -> (tensor<4xf32, #slice>, !block)
}) {"ttg.num-warps" = 4 : i32} : () -> ()
"""
    module = parse(text)
    (op,) = module.body.operations
    blocked = "#ttg.blocked<{order = [1, 0]}>"
    sliced = '#ttg.slice<{dim = 1, parent = #ttg.blocked<{order = [1, 0]}>, note = "#blocked"}>'
    assert op.attributes["layout"] == Opaque(sliced)
    assert [value.type for value in op.results] == [TensorType((4,), F32, sliced), TensorType((4, 4), F32, blocked)]
    assert module.op.attributes == {"ttg.num-warps": 4}
    assert print_module(parse(print_module(module))) == print_module(module)


def test_reading_imports_neither_triton_nor_torch():
    code = """
import sys, opgraft.jit
before = set(sys.modules)
import opgraft.jit.ir
opgraft.jit.ir.parse(sys.stdin.read())
print({"triton", "torch"} & (set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], input=SMALL, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_pretty_form_is_refused():
    compiled, _ = triton_module(everything, SIGNATURE, {"BLOCK": 64})
    with pytest.raises(IRError, match="generic form"):
        parse(str(compiled))


def test_text_that_is_cut_off_is_refused():
    """At every place but before the location of the module itself, which is whole without it."""
    text = print_module(parse(SMALL)).rstrip("\n")
    whole = text[: text.rindex(" loc(")]
    for end in range(len(text)):
        if text[:end].rstrip() == whole:
            continue
        with pytest.raises(IRError):
            parse(text[:end])


_TEXTS = [print_module(read(case.kernel, case.signature, case.constants)) for case in CASES[:1]]
_TOKEN = re.compile(r'%\w+(?:#\d+)?|"[^"\n]*"|[\w.]+|[^\w\s]')


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_triton_reads_of_a_damaged_text_is_read_alike(data, tmp_path_factory):
    """Damage one token of a kernel's text: IRError, or the structure that MLIR reads as well."""
    text = data.draw(st.sampled_from(_TEXTS))
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    start, end = data.draw(st.sampled_from(tokens))
    other, other_end = data.draw(st.sampled_from(tokens))
    new = data.draw(st.sampled_from(["", text[start:end] * 2, text[other:other_end], "0", "%", '"', "(", "}"]))
    damaged = text[:start] + new + text[end:]
    folder = tmp_path_factory.mktemp("damaged")
    try:
        reference = triton_parse(damaged, folder)
    except RuntimeError:
        reference = None
    try:
        ours = parse(damaged)
    except IRError:
        assert reference is None, "Triton accepts this text"
        return
    written = print_module(ours)
    assert print_module(parse(written)) == written
    if reference is not None:
        assert str(triton_parse(written, folder)) == str(reference)


def test_a_module_without_a_kernel():
    module = parse(SMALL.replace('"public"', '"private"'))
    with pytest.raises(IRError, match="one public"):
        written_arguments(module)


def test_one_bit_constants():
    text = '"builtin.module"() ({\n  %a = "arith.constant"() <{value = dense<[true, false]> : tensor<2xi1>}> : () -> tensor<2xi1>\n}) : () -> ()\n'  # noqa: E501
    (constant,) = parse(text).body.operations
    assert constant.attributes["value"].values == (True, False)
    assert constant.result.type.element is I1

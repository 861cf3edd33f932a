"""Which arguments a kernel writes and reads, from its IR."""

import pytest
import triton
import triton.language as tl

from opgraft.jit.ir import generic_text, parse, read_arguments, written_arguments

from .frontend import triton_module
from .kernels import CASES, HAS_ATOMIC_LOAD, HAS_BLOCK_POINTER_OPS


def _access(kernel, signature, constants=None, **how):
    """Names of the written and of the read arguments, and the answer itself; the same before and after Triton's
    passes."""
    answers = []
    for passes in (False, True):
        module = parse(generic_text(*triton_module(kernel, signature, constants, passes=passes, **how)))
        answers.append(written_arguments(module))
        assert read_arguments(module) == answers[-1].read
    first, last = answers
    assert (first.written, first.read, first.exact) == (last.written, last.read, last.exact)
    names = dict(enumerate(first.names))
    return {names[i] for i in first.written}, {names[i] for i in first.read}, first


def _is(kernel, types, *, written, read, exact=True, constants=None):
    """`types` are one character an argument: p pointer to fp32, i int32, l int64, q pointer to int64."""
    kinds = {"p": "*fp32", "i": "i32", "l": "i64", "q": "*i64", "b": "i1"}
    constants = constants or {}
    names = [name for name in kernel.arg_names if name not in constants]
    found_written, found_read, answer = _access(kernel, dict(zip(names, map(kinds.get, types), strict=True)), constants)
    assert found_written == set(written.split())
    assert found_read == set(read.split())
    assert answer.exact is exact, answer.reasons
    return answer


# -- direct accesses -----------------------------------------------------------------------------------------


def test_a_store_writes_and_a_load_reads():
    @triton.jit
    def kernel(x, y, out, n):
        i = tl.program_id(0) * 64 + tl.arange(0, 64)
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i), mask=i < n)

    answer = _is(kernel, "pppi", written="out", read="x y")
    assert 2 in answer and 0 not in answer
    assert "tt.store at " in answer.where[2] and "test_written_arguments.py" in answer.where[2]


def test_an_argument_that_is_not_used_is_neither():
    @triton.jit
    def kernel(x, unused, out):
        tl.store(out, tl.load(x))

    _is(kernel, "ppp", written="out", read="x")


def test_in_place():
    @triton.jit
    def kernel(x):
        i = tl.arange(0, 64)
        tl.store(x + i, tl.load(x + i) * 2)

    _is(kernel, "p", written="x", read="x")


@pytest.mark.parametrize("name", ["add", "max", "min", "and", "or", "xor", "xchg", "cas"])
def test_atomics_read_and_write(name):
    @triton.jit
    def kernel(x, other, KIND: tl.constexpr):
        p = x + tl.load(other).to(tl.int32)
        if KIND == "add":
            tl.atomic_add(p, 1)
        elif KIND == "max":
            tl.atomic_max(p, 1)
        elif KIND == "min":
            tl.atomic_min(p, 1)
        elif KIND == "and":
            tl.atomic_and(p, 1)
        elif KIND == "or":
            tl.atomic_or(p, 1)
        elif KIND == "xor":
            tl.atomic_xor(p, 1)
        elif KIND == "xchg":
            tl.atomic_xchg(p, 1)
        else:
            tl.atomic_cas(p, tl.full((), 0, tl.int64), tl.full((), 1, tl.int64))

    _is(kernel, "qq", written="x", read="x other", constants={"KIND": name})


@pytest.mark.skipif(not HAS_ATOMIC_LOAD, reason="atomic loads and stores came with Triton 3.9")
def test_an_atomic_load_only_reads_and_an_atomic_store_only_writes():
    @triton.jit
    def kernel(x, out):
        tl.atomic_store(out, tl.atomic_load(x))

    _is(kernel, "qq", written="out", read="x")


# -- pointer arithmetic and choice ---------------------------------------------------------------------------


def test_offsets_that_were_loaded_do_not_matter():
    @triton.jit
    def scatter(x, index, out):
        i = tl.arange(0, 64)
        tl.store(out + tl.load(index + i), tl.load(x + i))

    _is(scatter, "pqp", written="out", read="x index")


def test_shapes_of_pointer_tensors():
    @triton.jit
    def kernel(x, out):
        i = tl.arange(0, 16)
        block = tl.broadcast_to((out + i)[:, None] + i[None, :] * 16, (16, 16))
        turned = tl.trans(tl.reshape(block, (16, 16)))
        tl.store(turned, tl.load(x + i[:, None] * 16 + i[None, :]))

    _is(kernel, "pp", written="out", read="x")


def test_a_choice_between_pointers_that_are_only_read():
    @triton.jit
    def kernel(x, y, out, n):
        i = tl.arange(0, 64)
        source = tl.where(i < n, x + i, y + i)
        tl.store(out + i, tl.load(source))

    _is(kernel, "pppi", written="out", read="x y")


def test_a_choice_that_is_written_writes_both_and_the_condition_does_not_count():
    @triton.jit
    def kernel(flags, a, b, c):
        i = tl.arange(0, 64)
        target = tl.where(tl.load(flags + i) > 0, a + i, b + i)
        tl.store(target, tl.load(c + i))

    _is(kernel, "pppp", written="a b", read="flags c")


def test_a_pointer_that_becomes_a_number_and_a_pointer_again():
    @triton.jit
    def kernel(x, out, n):
        address = (out.to(tl.int64) + 15) // 16 * 16 + tl.load(x).to(tl.int64) * 4 + n
        tl.store(tl.cast(address, tl.pointer_type(tl.float32)), 1.0)

    _is(kernel, "ppi", written="out", read="x")


def test_another_view_of_a_pointer():
    @triton.jit
    def kernel(x, out):
        bits = out.to(tl.pointer_type(tl.int32), bitcast=True)
        tl.store(bits + 1, tl.load(x.to(tl.pointer_type(tl.int32), bitcast=True)))

    _is(kernel, "pp", written="out", read="x")


# -- control flow --------------------------------------------------------------------------------------------


def test_pointers_that_move_in_a_loop():
    @triton.jit
    def kernel(x, out, n):
        source, target = x, out
        for _ in range(n):
            tl.store(target, tl.load(source))
            source += 1
            target += 1

    _is(kernel, "ppi", written="out", read="x")


def test_pointers_that_change_places_in_a_loop():
    @triton.jit
    def kernel(x, y, z, n):
        a, b = x, y
        for _ in range(n):
            tl.store(a, tl.load(z))
            a, b = b, a

    _is(kernel, "pppi", written="x y", read="z")


def test_pointers_that_only_come_round_at_the_third_turn():
    @triton.jit
    def kernel(w, x, y, z, n):
        a, b, c, d = w, x, y, z
        i = 0
        while i < n:
            tl.store(a, 1.0)
            a, b, c = b, c, c
            i += 1
        tl.load(d)
        tl.store(d + 1, tl.load(d))

    _is(kernel, "ppppi", written="w x y z", read="z")


def test_a_pointer_that_is_only_read_in_a_loop_is_not_written():
    @triton.jit
    def kernel(x, out, n):
        total = 0.0
        p = x
        while n > 0:
            total += tl.load(p)
            p += n
            n -= 1
        tl.store(out, total)

    _is(kernel, "ppi", written="out", read="x")


def test_the_branches_of_an_if():
    @triton.jit
    def kernel(x, y, z, out, n):
        target = x
        if n > 3:  # noqa: SIM108
            target = out
        else:
            target = y + 4
        tl.store(target, tl.load(z))

    _is(kernel, "ppppi", written="y out", read="z")


def test_an_early_return():
    @triton.jit
    def kernel(x, out, n):
        if n > 3:
            return
        tl.store(out, tl.load(x))

    _is(kernel, "ppi", written="out", read="x")


def test_pointers_that_branches_pass_to_blocks():
    text = """
"builtin.module"() ({
  "tt.func"() <{function_type = (PTR, PTR, PTR, i1) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%a: PTR, %b: PTR, %c: PTR, %flag: i1):
    "cf.cond_br"(%flag, %a, %b, %c)[^bb1, ^bb2] <{SIZES}> : (i1, PTR, PTR, PTR) -> ()
  ^bb1(%p: PTR, %q: PTR):
    %v = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (PTR) -> f32
    "tt.store"(%q, %v) : (PTR, f32) -> ()
    "cf.cond_br"(%flag, %q, %p, %p)[^bb1, ^bb2] <{SIZES}> : (i1, PTR, PTR, PTR) -> ()
  ^bb2(%r: PTR):
    %w = "tt.load"(%r) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (PTR) -> f32
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
""".replace("PTR", "!tt.ptr<f32>").replace("SIZES", "operandSegmentSizes = array<i32: 1, 2, 1>")
    answer = written_arguments(parse(text))
    assert answer.written == (0, 1) and answer.read == (0, 1, 2) and answer.exact


def test_regions_of_a_reduction_do_not_disturb():
    @triton.jit
    def combine(a, b):
        return a + b

    @triton.jit
    def kernel(x, out, inner):
        i = tl.arange(0, 64)
        v = tl.load(x + i)
        tl.store(out + tl.sum((v > 0).to(tl.int32)), tl.reduce(tl.sort(v), 0, combine))
        tl.store(out + i, tl.associative_scan(v, 0, combine))
        tl.load(inner)

    module = parse(generic_text(*triton_module(kernel, {"x": "*fp32", "out": "*fp32", "inner": "*fp32"})))
    answer = written_arguments(module)
    assert answer.written == (1,) and answer.exact


# -- calls ---------------------------------------------------------------------------------------------------


@triton.jit(noinline=True)
def copy_one(source, target):
    tl.store(target, tl.load(source))


@triton.jit(noinline=True)
def write_if(p, value, WRITE: tl.constexpr):
    if WRITE:
        tl.store(p, value)
    return tl.load(p)


@triton.jit(noinline=True)
def same(p):
    return p + 1


@triton.jit(noinline=True)
def chosen(p, q, n):
    r = p
    if n > 0:
        r = q
    return r, q


@triton.jit(noinline=True)
def last(p, n):
    while n > 0:
        p += 1
        n -= 1
    return p


def test_calls_are_told_apart():
    @triton.jit
    def kernel(a, b, c, d):
        copy_one(a, b)
        copy_one(c, d)

    _is(kernel, "pppp", written="b d", read="a c")


def test_a_function_writes_only_where_its_constant_says_so():
    @triton.jit
    def kernel(a, b):
        tl.store(b, write_if(a, 1.0, False) + write_if(b, 2.0, True))

    _is(kernel, "pp", written="b", read="a b")


def test_pointers_that_functions_return():
    @triton.jit
    def kernel(a, b, c, d, n):
        tl.store(same(a), 1.0)
        p, q = chosen(b, c, n)
        tl.store(q, tl.load(p))
        tl.load(last(d, n))

    module = parse(
        generic_text(*triton_module(kernel, {"a": "*fp32", "b": "*fp32", "c": "*fp32", "d": "*fp32", "n": "i32"}))
    )
    answer = written_arguments(module)
    assert [answer.names[i] for i in answer.written] == ["a", "c"]
    assert [answer.names[i] for i in answer.read] == ["b", "c", "d"]


RECURSIVE = """
"builtin.module"() ({
  "tt.func"() <{function_type = (PTR, PTR, PTR) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%a: PTR, %b: PTR, %c: PTR):
    "tt.call"(%a, %b, %c) <{callee = @swap}> : (PTR, PTR, PTR) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
  "tt.func"() <{function_type = (PTR, PTR, PTR) -> (), sym_name = "swap", sym_visibility = "private"}> ({
  ^bb0(%p: PTR, %q: PTR, %r: PTR):
    %v = "tt.load"(%r) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (PTR) -> f32
    "tt.store"(%p, %v) : (PTR, f32) -> ()
    "tt.call"(%q, %p, %r) <{callee = @swap}> : (PTR, PTR, PTR) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
""".replace("PTR", "!tt.ptr<f32>")


def test_recursion():
    answer = written_arguments(parse(RECURSIVE))
    assert answer.written == (0, 1) and answer.read == (2,) and answer.exact


RETURNED = """
"builtin.module"() ({
  "tt.func"() <{function_type = (PTR) -> PTR, sym_name = "next", sym_visibility = "private"}> ({
  ^bb0(%p: PTR):
    %q = "tt.call"(%p) <{callee = @CALLEE}> : (PTR) -> PTR
    %one = "arith.constant"() <{value = true}> : () -> i1
    %r = "arith.select"(%one, %p, %q) : (i1, PTR, PTR) -> PTR
    "tt.return"(%r) : (PTR) -> ()
  }) : () -> ()
  "tt.func"() <{function_type = (PTR, PTR) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%a: PTR, %b: PTR):
    %v = "tt.load"(%b) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (PTR) -> f32
    %p = "tt.call"(%a) <{callee = @next}> : (PTR) -> PTR
    %number = "tt.ptr_to_int"(%p) : (PTR) -> i64
    %q = "tt.int_to_ptr"(%number) : (i64) -> PTR
    "tt.store"(%q, %v) : (PTR, f32) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
""".replace("PTR", "!tt.ptr<f32>")


def test_a_pointer_that_comes_late_out_of_recursion_is_no_unknown_number():
    answer = written_arguments(parse(RETURNED.replace("CALLEE", "next")))
    assert answer.written == (0,) and answer.read == (1,) and answer.exact


def test_a_pointer_out_of_a_function_without_a_body_may_be_any():
    answer = written_arguments(parse(RETURNED.replace("CALLEE", "elsewhere")))
    assert answer.written == (0, 1) and not answer.exact


def test_a_function_without_a_body_may_do_anything_to_its_pointers():
    text = RECURSIVE.replace("(%a, %b, %c) <{callee = @swap}>", "(%a, %b, %c) <{callee = @other}>")
    declaration = """
  "tt.func"() <{function_type = (PTR, PTR, PTR) -> (), sym_name = "other", sym_visibility = "private"}> ({
  }) : () -> ()
"""
    for declared in ("", declaration.replace("PTR", "!tt.ptr<f32>")):
        _assert_anything_goes(parse(text.removesuffix("}) : () -> ()\n") + declared + "}) : () -> ()\n"))


def _assert_anything_goes(module):
    answer = written_arguments(module)
    assert answer.written == (0, 1, 2) and answer.read == (0, 1, 2)
    assert not answer.exact and "tt.call" in answer.reasons[0]


# -- descriptors and block pointers --------------------------------------------------------------------------


def test_descriptors_made_in_the_kernel():
    @triton.jit
    def kernel(x, y, z, out, n):
        source = tl.make_tensor_descriptor(x, shape=[n, n], strides=[n, 1], block_shape=[16, 32])
        target = tl.make_tensor_descriptor(out, shape=[n, n], strides=[n, 1], block_shape=[16, 32])
        total = tl.make_tensor_descriptor(y, shape=[n, n], strides=[n, 1], block_shape=[16, 32])
        rows = tl.make_tensor_descriptor(z, shape=[n, n], strides=[n, 1], block_shape=[1, 32])
        block = source.load([0, 0])
        target.store([0, 0], block)
        total.atomic_add([0, 0], block)
        rows.scatter(block, tl.arange(0, 16), 0)

    _is(kernel, "ppppi", written="y z out", read="x y")


def test_host_descriptors():
    @triton.jit
    def kernel(source, target):
        target.store([0, 0], source.load([0, 0]))

    signature = {"source": "tensordesc<fp16[16,32]>", "target": "tensordesc<fp16[16,32]>"}
    _, _, answer = _access(kernel, signature)
    assert [answer.names[i] for i in answer.written] == ["target"]
    assert [answer.names[i] for i in answer.read] == ["source"]
    assert answer.exact


@pytest.mark.skipif(not HAS_BLOCK_POINTER_OPS, reason="Triton 3.9 has no block pointers in its IR")
def test_block_pointers():
    @triton.jit
    def kernel(x, out, n):
        source = tl.make_block_ptr(x, (n, n), (n, 1), (0, 0), (16, 32), (1, 0))
        target = tl.make_block_ptr(out, (n, n), (n, 1), (0, 0), (16, 32), (1, 0))
        for _ in range(4):
            tl.store(target, tl.load(source))
            source = tl.advance(source, (0, 32))
            target = tl.advance(target, (0, 32))

    _is(kernel, "ppl", written="out", read="x")


# -- what cannot be known ------------------------------------------------------------------------------------


def test_a_write_through_a_pointer_from_memory_may_go_anywhere():
    @triton.jit
    def kernel(table, x, n):
        p = tl.cast(tl.load(table), tl.pointer_type(tl.float32))
        tl.store(p, 1.0)

    answer = _is(kernel, "qpi", written="table x", read="table", exact=False)
    assert any("loaded from memory by tt.load" in reason for reason in answer.reasons)


def test_a_read_through_a_pointer_from_memory_writes_nothing():
    @triton.jit
    def kernel(table, x, out):
        p = tl.cast(tl.load(table), tl.pointer_type(tl.float32))
        tl.store(out, tl.load(p))

    _is(kernel, "qpp", written="out", read="table x out", exact=False)


def test_an_integer_argument_as_a_pointer():
    @triton.jit
    def kernel(address, x):
        tl.store(tl.cast(address, tl.pointer_type(tl.float32)), 1.0)

    answer = _is(kernel, "lp", written="x", read="", exact=False)
    assert "the integer 'address' is used as a pointer" in answer.reasons[0]


def test_a_number_as_a_pointer():
    @triton.jit
    def kernel(x):
        address = tl.program_id(0).to(tl.int64) * 4096
        tl.store(tl.cast(address, tl.pointer_type(tl.float32)), 1.0)

    answer = _is(kernel, "p", written="x", read="", exact=False)
    assert "made from a number" in answer.reasons[0]


def test_assembly_that_is_given_a_pointer():
    @triton.jit
    def kernel(x, y, out):
        p = x + tl.arange(0, 64)
        tl.inline_asm_elementwise("st $1, $0;", "=r,l", [p], dtype=tl.int32, is_pure=False, pack=1)
        tl.store(out, tl.load(y))

    answer = _is(kernel, "ppp", written="x out", read="x y", exact=False)
    assert "tt.elementwise_inline_asm" in answer.reasons[0]


def test_pure_assembly_may_read_what_it_is_given():
    @triton.jit
    def kernel(x, out):
        i = tl.arange(0, 64)
        v = tl.inline_asm_elementwise("ld $0, $1;", "=r,l", [x + i], dtype=tl.int32, is_pure=True, pack=1)
        tl.store(out + i, v)

    _is(kernel, "pp", written="out", read="x", exact=False)


@triton.jit(noinline=True)
def assembly_on(value):
    return tl.inline_asm_elementwise("mov $0, $1;", "=l,l", [value], dtype=tl.int64, is_pure=False, pack=1)


def test_assembly_on_numbers_touches_no_argument():
    @triton.jit
    def kernel(x, out):
        v = tl.load(x)
        w = tl.inline_asm_elementwise("mov $0, $1;", "=l,l", [v], dtype=tl.int64, is_pure=False, pack=1)
        tl.store(out, w + assembly_on(v))

    _is(kernel, "qq", written="out", read="x")


def test_assembly_in_a_function_that_is_given_an_address_as_a_number():
    @triton.jit
    def kernel(x, out):
        tl.store(out, assembly_on(x.to(tl.int64)))

    _is(kernel, "qq", written="x out", read="x", exact=False)


def test_a_pointer_that_assembly_returns():
    @triton.jit
    def kernel(x, out):
        i = tl.program_id(0)
        p = tl.inline_asm_elementwise("mov $0, 0;", "=l,r", [i], dtype=tl.int64, is_pure=True, pack=1)
        tl.store(tl.cast(p, tl.pointer_type(tl.float32)), 1.0)
        tl.store(out, tl.load(x))

    answer = _is(kernel, "pp", written="x out", read="x", exact=False)
    assert "tt.elementwise_inline_asm" in answer.reasons[0]


def test_external_functions_on_values_touch_no_argument():
    @triton.jit
    def kernel(x, out):
        tl.store(out, tl.extra.cuda.libdevice.tanh(tl.load(x)))

    _is(kernel, "pp", written="out", read="x")


def test_an_operation_that_is_not_known_may_do_anything_to_its_pointers():
    text = RECURSIVE.replace('"tt.call"(%a, %b, %c) <{callee = @swap}>', '"new.operation"(%a, %b, %c)')
    answer = written_arguments(parse(text))
    assert answer.written == (0, 1, 2) and "new.operation" in answer.reasons[0]


# -- the corpus ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_passes_of_triton_do_not_change_the_answer(case):
    """Inlining, canonicalization and loop-invariant code motion move accesses; what is accessed stays."""
    written, read, answer = _access(case.kernel, case.signature, case.constants)
    assert written <= set(case.signature) and read <= set(case.signature)
    assert answer.exact is (str(case) != "pointers"), answer.reasons

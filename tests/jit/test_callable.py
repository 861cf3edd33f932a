"""What a kernel function knows about itself: source, line, names, scope, signature."""

import copy
import functools
import inspect
import pickle

import pytest
import triton
import triton.language as tl

from opgraft.jit import ConstexprFunction, JITCallable, JITFunction, constexpr_function, get_jit_fn_file_line, jit

OFFSET = tl.constexpr(3)


def decorated(fn):
    return fn


@jit
def documented(x, N: tl.constexpr):
    """Adds."""
    tl.store(x, N)


@jit(
    do_not_specialize=["n"],
    debug=True,
)
@decorated
# a comment between decorators and the definition
def with_options(x, n, BLOCK: tl.constexpr = 4):
    # fmt: off
    tl.store( x,n+BLOCK )
    # fmt: on


def make_local(value):
    constant = tl.constexpr(value)

    @jit
    def local(x):
        tl.store(x, constant)

    return local


def test_a_kernel_is_a_kernel_of_triton():
    assert isinstance(documented, triton.runtime.jit.JITFunction)
    assert isinstance(documented, triton.JITFunction)
    assert isinstance(documented, triton.runtime.jit.JITCallable)
    assert isinstance(documented, triton.runtime.KernelInterface)
    assert isinstance(documented, JITCallable)
    assert type(documented) is JITFunction


def test_it_carries_what_the_python_function_carries():
    assert documented.__name__ == "documented"
    assert documented.__qualname__ == "documented"
    assert documented.__doc__ == "Adds."
    assert documented.__module__ == __name__ == documented.module
    assert documented.__globals__ is globals()
    assert documented.signature == inspect.signature(documented.fn)
    assert documented.arg_names == ["x", "N"]
    assert documented.constexprs == [1]
    assert repr(documented) == f"JITFunction({__name__}:documented)"


def test_source_starts_at_the_definition_and_keeps_the_text_as_written():
    assert with_options.src.startswith("def with_options(x, n, BLOCK: tl.constexpr = 4):\n")
    assert "tl.store( x,n+BLOCK )" in with_options.src
    assert with_options.raw_src[0] == "@jit(\n"
    assert with_options.starting_line_number == with_options.fn.__code__.co_firstlineno


def test_file_and_line_are_those_of_the_definition():
    file, line = get_jit_fn_file_line(with_options)
    assert file == __file__
    assert inspect.getsource(inspect.getmodule(with_options.fn)).splitlines()[line - 1].startswith("def with_options")
    assert (with_options.file_name, with_options.def_file_line_number) == (file, line)
    assert with_options.def_file_col_number == 1
    assert get_jit_fn_file_line(triton.autotune([triton.Config({})], [])(with_options)) == (file, line)
    if hasattr(triton.runtime.jit, "get_jit_fn_file_line"):  # gone in Triton 3.9
        assert triton.runtime.jit.get_jit_fn_file_line(with_options) == (file, line)


def test_file_and_line_of_something_else_are_refused():
    with pytest.raises(TypeError, match="expected a kernel"):
        get_jit_fn_file_line(42)


def test_an_indented_definition_is_dedented():
    local = make_local(1)
    assert local.src == "def local(x):\n    tl.store(x, constant)\n"
    assert local.def_file_col_number == 5
    assert local.__qualname__ == "make_local.<locals>.local"


def test_options_are_kept_under_tritons_names():
    assert with_options.debug is True
    assert with_options.noinline is None
    assert with_options.do_not_specialize == ["n"]
    assert with_options.do_not_specialize_on_alignment == []
    assert with_options.version is None
    assert with_options.launch_metadata is None
    assert [param.name for param in with_options.params] == ["x", "n", "BLOCK"]


def test_parse_gives_the_definition():
    tree = documented.parse()
    assert [type(node).__name__ for node in tree.body] == ["FunctionDef"]
    assert tree.body[0].name == "documented"


def test_the_source_cannot_be_set_but_replaced():
    kernel = make_local(1)
    before = kernel.cache_key
    with pytest.raises(AttributeError, match="_unsafe_update_src"):
        kernel.src = "def local(x): pass"
    kernel._unsafe_update_src(kernel.src.replace("constant", "constant + 1"))
    assert "constant + 1" in kernel.src
    assert kernel.hash is None
    assert kernel.cache_key != before
    assert kernel.parse().body[0].body[0].value.args[1].op.__class__.__name__ == "Add"


def test_the_source_can_be_replaced_before_first_use():
    kernel = make_local(1)
    kernel._unsafe_update_src(kernel.src.replace("constant", "constant + 1"))
    other = make_local(1)
    other.cache_key  # noqa: B018
    other._unsafe_update_src(other.src.replace("constant", "constant + 1"))
    assert kernel.cache_key == other.cache_key


def test_replacing_a_source_by_something_else_is_refused_at_parse():
    kernel = make_local(1)
    kernel._unsafe_update_src("x = 1")
    with pytest.raises(ValueError, match="expected the source of one function"):
        kernel.parse()


def test_the_scope_is_the_globals_and_before_them_the_closure():
    assert documented.get_capture_scope() is globals()
    scope = make_local(7).get_capture_scope()
    assert scope["constant"].value == 7
    assert scope["OFFSET"] is OFFSET


def test_an_empty_closure_cell_is_no_name_in_the_scope():
    def build():
        @jit
        def kernel(x):
            tl.store(x, later)

        found = kernel.get_capture_scope()
        later = tl.constexpr(1)
        return found, kernel.get_capture_scope(), later

    before, after, later = build()
    assert "later" not in before
    assert after["later"] is later


def test_its_type_in_a_kernel_is_a_constant():
    assert documented.type == tl.constexpr_type(documented)


def test_the_cache_key_is_an_attribute_once_it_is_known():
    kernel = make_local(2)
    assert kernel.hash is None
    key = kernel.cache_key
    assert kernel.__dict__["cache_key"] is key
    assert kernel.hash is key
    assert len(key) == 64 and int(key, 16) >= 0
    kernel.hash = None
    assert "cache_key" not in kernel.__dict__
    assert kernel.cache_key == key


def test_hash_is_by_content_and_equality_by_identity():
    first, second = make_local(2), make_local(2)
    assert hash(first) == hash(second)
    assert first != second
    assert {first: 1}[first] == 1


def test_no_source_file_is_a_clear_error():
    namespace = {"tl": tl, "jit": jit}
    exec("def kernel(x):\n    tl.store(x, 1)\n", namespace)
    with pytest.raises(ValueError, match=r"@jit functions should be defined in a Python file.*\.kernel.*<string>"):
        jit(namespace["kernel"])


def test_a_lambda_is_refused():
    with pytest.raises(ValueError, match="written with def"):
        jit(lambda x: x)


@pytest.mark.parametrize("thing", [42, "kernel", print, int, functools.partial(print)])
def test_something_that_is_no_python_function_is_refused(thing):
    with pytest.raises(TypeError, match="expected a Python function made by def"):
        jit(thing)


def test_calling_a_kernel_from_python_is_refused():
    with pytest.raises(
        RuntimeError, match=r"Cannot call @triton.jit'd outside of the scope of a kernel.*documented\[grid\]"
    ):
        documented(1, 2)


def test_a_copy_is_the_kernel_itself():
    assert copy.copy(documented) is documented
    assert copy.deepcopy({"kernel": documented})["kernel"] is documented


def test_a_pickle_is_a_reference():
    assert pickle.loads(pickle.dumps(documented)) is documented
    assert pickle.loads(pickle.dumps(double)) is double


@constexpr_function
def double(value):
    """Twice."""
    return 2 * value


def test_a_constexpr_function_is_a_callable_of_triton():
    assert isinstance(double, ConstexprFunction)
    assert isinstance(double, triton.runtime.jit.ConstexprFunction)
    assert isinstance(double, JITCallable)
    assert not isinstance(double, triton.JITFunction)
    assert double.__doc__ == "Twice."
    assert repr(double) == f"ConstexprFunction({__name__}:double)"


def test_a_constexpr_function_unwraps_constants_and_wraps_for_the_compiler_only():
    assert double(3) == 6
    assert double(tl.constexpr(3)) == 6
    assert double(value=tl.constexpr(3)) == 6
    wrapped = double(3, _semantic=object())
    assert isinstance(wrapped, tl.constexpr) and wrapped.value == 6


def test_a_constexpr_function_binds_as_a_method():
    class Holder:
        factor = 5

        @constexpr_function
        def scaled(self, value):
            return self.factor * value

    holder = Holder()
    assert holder.scaled(2) == 10
    assert isinstance(holder.scaled, triton.runtime.jit.BoundConstexprFunction)
    assert holder.scaled.__self__ is holder
    assert holder.scaled.cache_key == Holder.scaled.cache_key
    assert hash(holder.scaled) == hash(Holder.scaled)


def test_the_classes_may_be_subscribed_in_annotations():
    assert JITFunction[int].__origin__ is JITFunction
    assert ConstexprFunction[int].__origin__ is ConstexprFunction

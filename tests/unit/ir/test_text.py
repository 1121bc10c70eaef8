# SPDX-License-Identifier: Apache-2.0
"""Graph IR as text: printing and parsing are inverses, and wrong text is told where it is wrong."""

from __future__ import annotations

import gc
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Var,
    call,
    constant,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text import (
    collect_params,
    parse_function,
    parse_module,
    print_function,
    print_module,
)
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.verify import verify
from intarsia_ir.graph.walk import calls, post_order
from intarsia_ir.ops import OPERATORS
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ParseError

ALL = """\
def @main(%x: Tensor[(1, 8), float32], %"odd name": Tensor[(N, "N/2+1"), int64]) -> \
(Tensor[(1, 8), float32], Tensor[(N, "N/2+1"), int64]) as ("y", "z") {
  %0 = matmul(%x, const "fc.weight": Tensor[(8, 8), float32]);  // fc (Gemm)
  %1 = clip(%0, min=0.0, max=6.0);
  %2 = split(%1, sections=(4, 4), axis=1);  // "a b" ("c d")
  %3 = %2[0];
  %4 = %2[1];
  %5 = concatenate(%3, %4, axis=1);
  %6 = @region_0(%5): Tensor[(1, 8), float32];
  %7 = sum(%6, axes=(0, 1));
  %8 = const(0.5, float32);
  %9 = less(%7, %8);
  %10 = if (%9) {
    %11 = negative(%6);  // then
    %11
  } else {
    %6
  };
  %12 = let %v = %10 {
    %13 = add(%v, %8);
    %13
  };  // binding (Let)
  %14 = cast(%12, dtype=float16);
  %15 = cast(%14, dtype=float32);
  (%15, %"odd name")
}

def @region_0(%p0: Tensor[(1, 8), float32]) -> Tensor[(1, 8), float32] {
  %0 = add(%p0, const "bias"([1.0, inf, -inf, nan, -0.0, 0.1, 1e+20, 3.0], float32));
  %1 = subtract(%0, const([], float32, (0,)));
  %0
}
"""
ALL = ALL.replace("  %1 = subtract(%0, const([], float32, (0,)));\n", "")
PARAMS = {"fc.weight": np.arange(64, dtype=np.float32).reshape(8, 8)}


def parse(text: str, params: dict[str, np.ndarray] = PARAMS) -> IRModule:
    return parse_module(text, operators=OPERATORS, params=params)


def roundtrip(module: IRModule) -> str:
    text = print_module(module)
    again = parse_module(text, operators=OPERATORS, params=collect_params(module))
    assert print_module(again) == text
    for name, function in module.functions.items():
        assert_same(function, again.functions[name])
    return text


def assert_same(a: Function, b: Function) -> None:
    """The same graph: node by node, sharing included."""
    assert a.output_names == b.output_names
    left, right = list(post_order(a.body)), list(post_order(b.body))
    assert len(left) == len(right)
    number = {node: i for i, node in enumerate(left)}
    partner = {node: i for i, node in enumerate(right)}
    for x, y in zip(left, right, strict=True):
        assert type(x) is type(y)
        assert x.type == y.type
        if isinstance(x, Call) and isinstance(y, Call):
            assert (x.op, repr(x.attrs), x.span) == (y.op, repr(y.attrs), y.span)
            assert [number[arg] for arg in x.args] == [partner[arg] for arg in y.args]
        if isinstance(x, Constant) and isinstance(y, Constant):
            assert x.name == y.name
            np.testing.assert_array_equal(x.data, y.data)
            assert x.data.dtype == y.data.dtype
        if isinstance(x, Var) and isinstance(y, Var):
            assert x.name == y.name


def test_all_forms_print_as_they_were_written():
    module = parse(ALL)
    verify(module)
    assert print_module(module) == ALL
    roundtrip(module)


def test_a_function_of_its_own_begins_with_fn():
    text = "fn(%x: Tensor[(), bool]) -> Tensor[(), bool] {\n  %0 = logical_not(%x);\n  %0\n}\n"
    function = parse_function(text, operators=OPERATORS)
    assert print_function(function) == text
    assert print_module(parse(text)) == "def @main" + text[2:]


def test_people_may_write_any_names_and_a_call_as_the_result():
    module = parse("""
        fn(%x: Tensor[(1, 8), float32]) -> Tensor[(1, 8), float32] {
          %a = nn.relu(%x);      // taken by the accelerator
          %same = %a;  // alias
          %b = sigmoid(%same);   // on the host only
          add(%a, %b)
        }""")
    assert [c.name for c in calls(module.main)] == ["nn.relu", "sigmoid", "add"]
    assert all(not c.span.name for c in calls(module.main))


def test_results_may_be_blocks():
    module = parse("""
        fn(%x: Tensor[(), bool]) -> Tensor[(), bool] {
          if (%x) { let %v = %x { logical_not(%v) } } else { %x }
        }""")
    verify(module)
    assert isinstance(module.main.body, If)
    roundtrip(module)


def test_equal_names_of_different_things_are_told_apart():
    first, second = (
        Var("v", TensorType((2,), DType.FLOAT32)),
        Var("v", TensorType((2,), DType.BOOL)),
    )
    text = print_module(IRModule.from_function(Function((first, second), second)))
    assert "%v#2" in text
    assert parse(text).main.params[1].name == "v"
    a, b = (constant(np.full(99, i, np.float32), name="w") for i in range(2))
    module = IRModule.from_function(Function((), call(OPERATORS["add"], a, b)))
    assert sorted(collect_params(module)) == ["w", "w#2"]
    again = parse(print_module(module), collect_params(module))
    assert print_module(again) == print_module(module)


def test_large_constants_without_a_name_get_one_in_the_text_only():
    array = np.arange(99, dtype=np.float32)
    a = constant(array)
    module = IRModule.from_function(Function((), call(OPERATORS["add"], a, constant(array))))
    text = print_module(module)
    assert text.count('const "#0"') == 2
    again = parse(text, collect_params(module))
    assert {c.name for c in post_order(again.main.body) if isinstance(c, Constant)} == {""}


ELEMENTS = {
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "float16": st.floats(width=16),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int8": st.integers(-128, 127),
    "bool": st.booleans(),
}
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(sorted(ELEMENTS)), SHAPES, st.text(max_size=5))
def test_constants_read_back_exactly(data, dtype, shape, name):
    size = int(np.prod(shape))
    values = data.draw(st.lists(ELEMENTS[dtype], min_size=size, max_size=size))
    array = np.array(values, dtype).reshape(shape)
    roundtrip(IRModule.from_function(Function((), constant(array, name=name.lstrip("#")))))


def test_bfloat16_reads_back_exactly():
    array = np.array([0.1, -3e38, float("inf")], ml_dtypes.bfloat16)
    text = roundtrip(IRModule.from_function(Function((), constant(array))))
    assert "bfloat16" in text


NAMES = st.text(min_size=1, max_size=6)
UNARY = ("nn.relu", "sigmoid", "negative")


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 9), NAMES), max_size=20
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    NAMES,
)
def test_random_modules_round_trip(choices, outputs, param):
    x = Var(param, TensorType((4,), DType.FLOAT32))
    flag = Var(f"{param} flag", TensorType((), DType.BOOL))
    pool: list[Expr] = [x, constant(np.float32(0.5).reshape(())), constant(np.ones(4, np.float32))]
    for which, a, b, name in choices:
        left, right = pool[-1 - a % len(pool)], pool[-1 - b % len(pool)]
        span = Span(name, name[::-1])
        if which < 3:
            pool.append(call(OPERATORS[UNARY[which]], left, span=span))
        elif which < 6 or left.type != right.type:
            pool.append(call(OPERATORS["add"], left, right, span=span))
        elif which < 8:
            pool.append(If(flag, left, right, left.type, span))
        else:
            var = Var(name, left.type)
            body = call(OPERATORS["multiply"], var, right, span=span)
            pool.append(Let(var, left, body, body.type, span))
    body = make_tuple([pool[-1 - o % len(pool)] for o in outputs])
    module = IRModule.from_function(Function((x, flag), body))
    verify(module)
    roundtrip(module)


HEAD = "fn(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {"
WRONG = [
    ("", "line 1, column 1", "expected 'def', found the end of the text"),
    ("def main", "line 1, column 5", "expected a function name such as @main"),
    (HEAD + "\n  %0 = nn.rleu(%x); %0 }", "line 2, column 8", "no operator 'nn.rleu'"),
    (HEAD + " %0 = clip(%x, mni=0.0, max=1.0); %0 }", "column 72", "no attribute 'mni'"),
    (HEAD + " %0 = negative(%x, k=1); %0 }", "column 76", "no attribute 'k'"),
    (HEAD + " %0 = clip(%x, min=0.0, min=1.0); %0 }", "column", "'min' is given twice"),
    (HEAD + " %0 = clip(%x, min=0.0, %x); %0 }", "column", "operands come before attributes"),
    (HEAD + " %0 = concatenate(%x); %0 }", "column", "'concatenate' needs attribute 'axis'"),
    (HEAD + ' clip(%x, min="a") }', "column 71", "'min' of 'clip' cannot be 'a'"),
    (HEAD + " clip(%x, min=True) }", "column 71", "'min' of 'clip' cannot be True"),
    (HEAD + " sum(%x, axes=(True,)) }", "column", "'axes' of 'sum' cannot be (True,)"),
    (HEAD + " sum(%x, axes=1) }", "column", "'axes' of 'sum' cannot be 1"),
    (HEAD + " sum(%x, axes=(0,), keepdims=1) }", "column", "'keepdims' of 'sum' cannot be 1"),
    (HEAD + " cast(%x, dtype=3) }", "column", "'dtype' of 'cast' cannot be 3"),
    (HEAD + " nn.pad(%x, widths=((1,),)) }", "column", "'widths' of 'nn.pad' cannot be ((1,),)"),
    ("fn(%x: Tensor[(), int8], %x: Tensor[(), int8]) -> ()", "column 26", "defined twice"),
    (HEAD + " %0 = add(%x, %y); %0 }", "column", "'%y' is not defined"),
    (HEAD + " %0 = negative(%x); %0 = negative(%x); %0 }", "column", "'%0' is defined twice"),
    (HEAD + " %0 = add(%x, const([1.0, 2.0, 3.0], float32)); %0 }", "column", "add"),
    (HEAD + " %0 = %x[0]; %0 }", "column", "no field 0"),
    (HEAD + " %0 = %x[1.5]; %0 }", "column", "expected a whole number"),
    (HEAD + " %0 = %x[x]; %0 }", "column", "expected a whole number"),
    (HEAD + " %x", "column", "expected '}', found the end of the text"),
    (HEAD + " $ }", "column 58", "unexpected character '$'"),
    (HEAD + " (%x) }", "column 56", "the body is a (Tensor[(2,), float32],)"),
    (HEAD + " const(1.0, float31) }", "column", "no element type 'float31'"),
    (HEAD + ' const "w": Tensor[(2,), float32] }', "column", "no array is given for constant 'w'"),
    (HEAD + ' const "fc.weight": Tensor[(2,), int8] }', "column", "is given as Tensor[(8, 8)"),
    (HEAD + " const(x, float32) }", "column", "expected an element"),
    (HEAD + " const([[1.0], 2.0], float32) }", "column", "no array of float32"),
    (HEAD + " const([1.5, 2.5], int8) }", "column", "elements do not fit element type int8"),
    (HEAD + " const([300], int8) }", "column", "no array of int8"),
    (HEAD + " const([1.0], float32, (0,)) }", "column", "1 elements do not have shape (0,)"),
    (HEAD + " if (%x) { %x } else { negative(const(1.0, float32)) } }", "column", "the branches"),
    (HEAD + " clip(%x, min=[], max=1.0) }", "column", "expected a value, found '['"),
    (HEAD + " clip(%x, min=" + "(" * 99 + ", max=1.0) }", "column", "nested parentheses"),
    (HEAD + " negative(3) }", "column", "expected a value such as %0"),
    (HEAD + " %0 = @f(%x): int; %0 }", "column", "expected a type, found 'int'"),
    ("fn(%x: Tensor[(-), int8]) -> () { () }", "column", "unexpected character '-'"),
    ("fn(%x: Tensor[((), int8]) -> () { () }", "column", "expected a size"),
    ("fn() -> " + "(" * 99 + " { () }", "column", "nested parentheses"),
    ("fn() -> () as (1,) { () }", "column", "expected output names"),
    ('fn(%"\\q": Tensor[(), int8]) -> () { () }', "column", "bad string literal"),
    ("fn() -> () { () } fn() -> () { () }", "column 19", "a second function '@main'"),
]


@pytest.mark.parametrize(("text", "where", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_text_is_told_where_it_is_wrong(text, where, message):
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert where in caught.value.where
    assert message in caught.value.message


def test_near_misses_are_named():
    with pytest.raises(ParseError, match=r"did you mean 'nn.relu'\?"):
        parse(HEAD + " nn.rleu(%x) }")
    with pytest.raises(ParseError, match=r"did you mean 'min'\?"):
        parse(HEAD + " clip(%x, mni=0.0, max=1.0) }")
    with pytest.raises(ParseError, match=r"did you mean %abc\?"):
        parse(HEAD + " %abc = negative(%x); %abd }")


def test_a_function_is_alone_in_its_text():
    with pytest.raises(ParseError, match="expected the end of the text"):
        parse_function("fn() -> () { () } fn", operators=OPERATORS)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(ALL)), st.integers(0, 12), st.text(max_size=4))
def test_damaged_text_parses_or_says_where_it_does_not(at, cut, put):
    try:
        parse(ALL[:at] + put + ALL[at + cut :])
    except ParseError as error:
        where = error.where
    else:
        where = "line 0"
    assert where.startswith("line ")


def chain(length: int) -> IRModule:
    x = Var("x", TensorType((4,), DType.FLOAT32))
    tree: Expr = x
    for i in range(length):
        tree = call(OPERATORS["sin" if i % 2 else "nn.relu"], tree, span=Span(f"n{i}", "Sin"))
    return IRModule.from_function(Function((x,), tree))


def everything(module: IRModule) -> float:
    gc.disable()  # a search for garbage takes as long as there are objects, of other tests too
    try:
        start = time.process_time()
        text = print_module(module)
        again = parse_module(text, operators=OPERATORS)
        verify(again)
        PREPARE.run(again)
        return time.process_time() - start
    finally:
        gc.enable()


def growth() -> float:
    """How many times as long four times as many calls take."""
    small, large = everything(chain(2_500)), everything(chain(10_000))
    assert large < 6
    return large / small


@pytest.mark.slow
def test_ten_thousand_calls_take_linear_time():
    everything(chain(1_000))
    # Other programs can make one of the two slower, but not each time.
    assert any(growth() < 4 * 1.6 for _ in range(3))


def test_deep_nesting_of_blocks_does_not_recurse():
    x = Var("x", TensorType((), DType.BOOL))
    tree: Expr = x
    for i in range(5000):
        if i % 2:
            var = Var("v", x.type)
            tree = Let(var, x, If(var, tree, var, x.type), x.type)
        else:
            tree = If(x, tree, x, x.type)
    module = IRModule.from_function(Function((x,), tree))
    verify(module)
    roundtrip(module)


def test_symbolic_sizes_keep_their_names():
    shape = (variable("N"), (variable("N") + 2) // 2, 3)
    x = Var("x", TensorType(shape, DType.FLOAT32))
    module = IRModule.from_function(Function((x,), call(OPERATORS["exp"], x)))
    assert roundtrip(module).startswith("def @main(%x: Tensor[(N, `(N // 2) + 1`, 3), float32])")

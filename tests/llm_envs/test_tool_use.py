"""Guards parallel tool calls: how calls are read, BFCL's rules for them, what joint answers earn, and the reference's formulas."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llm_envs
from llm_envs.env import TaskEnv
from llm_envs.tasks.tool_use import bfcl
from llm_envs.tasks.tool_use.bfcl_parallel import evenness, judge_official, task
from llm_envs.tasks.tool_use.calls import Call, Parsed, parse_calls, render_call
from llm_envs.tasks.tool_use.matching import arguments_right, call_fits, call_key, compare, f1, gold_call, standard, value_fits
from llm_envs.tasks.tool_use.parallel_rows import parallel_row
from llm_envs.tasks.tool_use.reference_scoring import similarity
from llm_envs.testing import audit_rewards

LAMP = {
    "name": "light.set",
    "parameters": {
        "type": "dict",
        "properties": {"room": {"type": "string"}, "level": {"type": "integer"}, "colour": {"type": "string"}},
        "required": ["room", "level"],
    },
}
WAIT = {"name": "wait", "parameters": {"type": "dict", "properties": {"minutes": {"type": "float"}}, "required": ["minutes"]}}
LAMPS = {
    "name": "light.set",
    "parameters": {"properties": {"room": {"type": "string"}, "level": {"type": "array", "items": {"type": "dict"}}}},
}
HALL = {"light.set": {"room": ["hall", "the hall"], "level": [40], "colour": ["", "white"]}}
ATTIC = {"light.set": {"room": ["attic"], "level": [0], "colour": ["red"]}}
PAUSE = {"wait": {"minutes": [1.5]}}
ROW = {"id": "r", "category": "own", "prompt": "Light.", "function": [LAMP, WAIT], "ground_truth": [HALL, ATTIC, PAUSE]}
CALLS = ["light.set(room='hall', level=40)", "light.set(room='attic', level=0, colour='red')", "wait(minutes=1.5)"]
ORDER = {"light.set": ["room", "level", "colour"], "wait": ["minutes"]}


# ---- reading calls ----


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("f(a=1)", [Call("f", {"a": 1})]),
        ("f()", [Call("f", {})]),
        (" a.b_c.d(x='y') ", [Call("a.b_c.d", {"x": "y"})]),
        ("[f(a=-1.5), g(b=[True, None], c=(1, 'x'))]", [Call("f", {"a": -1.5}), Call("g", {"b": [True, None], "c": (1, "x")})]),
        ("f(a={'k': [+2]})\ng(b=1)", [Call("f", {"a": {"k": [2]}}), Call("g", {"b": 1})]),
        ("f(\n  a=1,\n  b=2,\n)", [Call("f", {"a": 1, "b": 2})]),
        ("f(a=red)", [Call("f", {"a": "red"})]),  # a bare word is its own text
        ("```python\nf(a=1)\n```", [Call("f", {"a": 1})]),
        ('Sure:\n```json\n[{"name": "f", "arguments": {"a": 1}}]\n```\nDone.', [Call("f", {"a": 1})]),
        ("```f(a=1)``` or ```g()```", [Call("f", {"a": 1}), Call("g", {})]),
        ('{"name": "f", "parameters": {"a": true}}', [Call("f", {"a": True})]),
        ('{"f": {"a": null}}\n{"g": {}}', [Call("f", {"a": None}), Call("g", {})]),
        ("wait(2)", [Call("wait", {"minutes": 2})]),
        ("light.set('hall', 3, colour='red')", [Call("light.set", {"room": "hall", "level": 3, "colour": "red"})]),
        ("unknown(1, 2)", [Call("unknown", {}, (1, 2))]),
        (r"f(a='\d+\n\\')", [Call("f", {"a": "\\d+\n\\"})]),  # an unknown escape is a backslash, without a warning
        (r"f(a=r'\d')", [Call("f", {"a": "\\d"})]),
        ("f(a='x' 'y')", [Call("f", {"a": "xy"})]),
        ("", []),
        ("[]", []),
        ("None", []),
        ("```\n```", []),
        ("- wait(1)", [Call("wait", {"minutes": 1})]),
        ("1. wait(1)\n2) wait(2)\n3: wait(3)", [Call("wait", {"minutes": minutes}) for minutes in (1, 2, 3)]),
        ('* {"wait": {"minutes": 2}}\n- 2. wait(3)', [Call("wait", {"minutes": 2}), Call("wait", {"minutes": 3})]),
        ("So:\n```python\nwait(1)\n", [Call("wait", {"minutes": 1})]),  # not closed: to the end
        ("```\nwait(1)\n```\nand\n```\nwait(2)", [Call("wait", {"minutes": 1}), Call("wait", {"minutes": 2})]),
        ("f(a='```')", [Call("f", {"a": "```"})]),
    ],
)
def test_texts_that_are_calls(text, calls):
    assert parse_calls(text, ORDER) == Parsed(tuple(calls))


@pytest.mark.parametrize(
    "text",
    [
        "I would call f(a=1)",
        "f(a=1) please",
        "f",
        "f(a=1",
        "f(a=g(1))",  # nothing is evaluated
        "f(a=1 + 1)",
        "f(a=__import__('os').system('true'))",
        "f(a=[x for x in (1,)])",
        "f(a=lambda: 1)",
        "f(a=f'{1}')",
        "f(a=b'x')",
        "f(a=1j)",
        "f(a=...)",
        "f(a=1e999)",
        "f(a=-'x')",
        "f(**{'a': 1})",
        "f(*[1])",
        "f(a={**b})",
        "f(a=1, a=2)",
        "f()()",
        "f[0]()",
        "x = f()",
        "import os",
        "wait(1, 2)",  # one parameter
        "wait(1, minutes=2)",
        '{"name": "f"}',
        '{"name": "f", "description": "d", "parameters": {}}',  # a function's description is no call
        '{"name": 1, "arguments": {}}',
        '{"f": 1}',
        '{"f": {"a": NaN}}',
        "5",
        '"f()"',
        "f(a='\x00')",
        "f(a='\ud800')",
        "(" * 500 + ")" * 500,
        "f(a=" + "[" * 500 + "]" * 500 + ")",
        "[" * 100_000,
        "f(a=" + "9" * 5000 + "x)",
    ],
)
def test_texts_that_are_no_calls(text):
    found = parse_calls(text, ORDER)
    assert found.calls == () and len(found.rejected) == 1


def test_lines_are_read_one_by_one_where_one_is_no_call():
    found = parse_calls('I think:\nwait(1)\n- light.set(room=\'a\', level=1)\n{"wait": {"minutes": 2}}\n- see above', ORDER)
    assert found.calls == (Call("wait", {"minutes": 1}), Call("light.set", {"room": "a", "level": 1}), Call("wait", {"minutes": 2}))
    assert found.rejected == ("I think:", "- see above")


SIMPLE = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e9, 1e9) | st.text(max_size=6)
VALUES = SIMPLE | st.lists(SIMPLE, max_size=2) | st.dictionaries(st.text(max_size=3), SIMPLE, max_size=2)
NAMES = st.sampled_from(["f", "a.b", "class", "get-it", "lambda.x", "ünder"])


RANGED = [TaskEnv(task(scoring=scoring)) for scoring in ("official", "reference")]


@settings(max_examples=25)
@given(st.lists(st.tuples(NAMES, st.dictionaries(st.sampled_from(["a", "from", "b c"]), VALUES, max_size=2)), max_size=3))
def test_written_calls_are_read_back(pairs):
    """Whatever names and values are, also those that Python's grammar has no place for."""
    calls = tuple(Call(name, arguments) for name, arguments in pairs)
    assert parse_calls("\n".join(map(render_call, calls))) == Parsed(calls)


@given(st.text(max_size=60) | st.text(alphabet="f(a=1,)[]{}'\":\n`\\", max_size=40))
def test_any_text_can_be_read(text):
    found = parse_calls(text, ORDER)
    assert all(isinstance(call.name, str) for call in found.calls)


# ---- the benchmark's rules ----


def kind(name, items=None):
    return {"type": name, **({"items": {"type": items}} if items else {})}


@pytest.mark.parametrize(
    ("value", "allowed", "schema", "fits"),
    [
        ("New York", ["new-york", "NYC"], kind("string"), True),
        ("April 1, 2024", ["april 1 2024"], kind("string"), True),
        ("it's", ['it"s'], kind("string"), True),
        ("New York City", ["new york"], kind("string"), False),
        ("", ["x", ""], kind("string"), True),
        (5, [5], kind("integer"), True),
        (5.0, [5], kind("integer"), False),  # a float is no whole number
        (True, [1], kind("integer"), False),
        ("5", [5], kind("integer"), False),
        (5, [5.0], kind("float"), True),  # but a whole number is a float
        (5, [5.5], kind("float"), False),
        (1, [True], kind("boolean"), False),
        (True, [True], kind("boolean"), True),
        ("n", ["n"], kind("integer"), True),  # a variable's name, where the gold has one
        ("N", ["n"], kind("integer"), False),
        (3, ["n"], kind("integer"), False),
        (["A b", "c"], [["ab", "C"]], kind("array", "string"), True),
        (["c", "ab"], [["ab", "c"]], kind("array", "string"), False),  # lists keep their order
        ([1, 2], [[1, 2]], kind("array", "integer"), True),
        ([1, 2], [[1.0, 2.0]], kind("array", "float"), False),  # inside of lists nothing is converted
        ([1, 2], [[1, 2]], kind("array", "float"), True),  # as the gold has it
        ((1, 2), [[1, 2]], kind("array", "integer"), False),
        ((1.5, 2.5), [[1.5, 2.5]], kind("tuple", "float"), True),
        ([], [["a"], ""], kind("array", "string"), True),
        ({"a": "X"}, [{"a": ["x", "y"]}], kind("dict"), True),
        ({"a": "z"}, [{"a": ["x", "y"]}], kind("dict"), False),
        ({}, [{"a": ["x", ""]}], kind("dict"), True),
        ({}, [{"a": ["x"]}], kind("dict"), False),
        ({"a": "x", "b": 1}, [{"a": ["x"]}], kind("dict"), False),
        ([{"a": 1}], [[{"a": [1, 2]}]], kind("array", "dict"), True),
        ([{"a": 1}, {"a": 1}], [[{"a": [1, 2]}]], kind("array", "dict"), False),
        (None, ["", None], kind("integer"), True),
        ("f", ["f"], kind("any"), True),
    ],
)
def test_values(value, allowed, schema, fits):
    assert value_fits(value, allowed, schema) is fits


@pytest.mark.parametrize(
    ("arguments", "fits", "share"),
    [
        ({"room": "The Hall", "level": 40}, True, 1.0),
        ({"room": "hall", "level": 40, "colour": "white"}, True, 1.0),
        ({"room": "hall", "level": 40, "colour": "red"}, False, 2 / 3),  # optional, but not this
        ({"room": "hall"}, False, 2 / 3),
        ({"room": "hall", "level": 40, "dim": 1}, False, 3 / 4),  # room, level and the omission of four
        ({}, False, 1 / 3),
    ],
)
def test_arguments(arguments, fits, share):
    call = Call("light.set", arguments)
    assert call_fits(call, HALL, LAMP) is fits
    assert arguments_right(call, HALL, LAMP) == pytest.approx(share)


def test_a_call_of_another_function_or_with_a_value_too_many_does_not_fit():
    assert arguments_right(Call("wait", {"room": "hall", "level": 40}), HALL, LAMP) == 0.0
    assert not call_fits(Call("light.set", {"room": "hall", "level": 40}, (1,)), HALL, LAMP)
    nothing = {"name": "f", "parameters": {"type": "dict", "properties": {}}}
    assert arguments_right(Call("f", {}), {"f": {}}, nothing) == 1.0 and call_fits(Call("f", {}), {"f": {}}, nothing)


def test_the_gold_may_need_what_the_schema_does_not():
    """An argument that is neither required nor may be left out must be given, as in the benchmark."""
    assert not call_fits(Call("light.set", {"room": "attic", "level": 0}), ATTIC, LAMP)


def calls_of(*texts):
    return [call for text in texts for call in parse_calls(text, ORDER).calls]


def test_calls_are_compared_in_any_order():
    for order in itertools.permutations(CALLS):
        found = compare(calls_of(*order), ROW["ground_truth"], ROW["function"])
        assert (found.names, found.arguments, found.exact, found.first_fit) == (1.0, 1.0, True, True)


def test_a_perfect_matching_is_found_where_the_benchmarks_misses_it():
    """The first gold call takes the call that is the second one's only choice."""
    gold = [{"wait": {"minutes": [1.0, 2.0]}}, {"wait": {"minutes": [1.0]}}]
    found = compare(calls_of("wait(1)", "wait(2)"), gold, [WAIT])
    assert found.exact and not found.first_fit
    assert compare(calls_of("wait(2)", "wait(1)"), gold, [WAIT]).first_fit


def test_partial_credit_by_hand():
    """Two of three gold calls, one with a wrong argument of three: F1 2·2/(2+3), arguments (1 + 2/3)/3."""
    found = compare(calls_of(CALLS[2], "light.set(room='attic', level=9, colour='red')"), ROW["ground_truth"], ROW["function"])
    assert found.names == pytest.approx(0.8) and found.arguments == pytest.approx(5 / 9) and not found.exact


def test_calls_too_many_dilute():
    found = compare(calls_of(*CALLS, "wait(1.5)"), ROW["ground_truth"], ROW["function"])
    assert found.names == pytest.approx(6 / 7) and found.arguments == pytest.approx(3 / 4) and not found.exact


def test_small_pieces():
    assert standard("A_b-c/d.e,f*g^h 'i'") == 'abcdefgh"i"'
    assert f1([], []) == 1.0 and f1(["a"], []) == 0.0 and f1(["a", "a"], ["a"]) == pytest.approx(2 / 3)
    assert call_key(Call("f", {"a": "X-y", "b": (1.0,)})) == call_key(Call("f", {"b": [1], "a": "xy"}))
    assert gold_call(HALL, LAMP) == Call("light.set", {"room": "hall", "level": 40})
    required = {**LAMP, "parameters": {**LAMP["parameters"], "required": ["colour"]}}
    assert gold_call(HALL, required).arguments["colour"] == "white"
    assert [evenness(counts) for counts in ([2, 2], [2, 1], [3, 0], [1, 0], [4], [2, 1, 1], [4, 0, 0])] == [1, 1, 0, 1, 1, 1, 0]
    assert evenness([3, 1]) == 0.5  # between [2, 2] and [4, 0]


# ---- what joint answers earn ----


def earned(texts, row=ROW, **options):
    env = TaskEnv(task(agents=len(texts), **options))
    (transition,) = env.branch(env.initial(row, (0,)), [dict(zip(env.possible_agents, texts, strict=True))])
    (reward,) = set(transition.rewards.values())
    return reward, {key.removeprefix("reward/"): value for key, value in transition.infos["caller_0"].items()}


@pytest.mark.parametrize(
    ("texts", "reward"),
    [
        (["\n".join(CALLS[:2]), CALLS[2]], 1.0),
        (["\n".join(CALLS), "[]"], 1.0),  # nobody has to share
        ([CALLS[2], CALLS[0], CALLS[1]], 1.0),
        ([CALLS[0], CALLS[2]], 0.15 * 0.8 + 0.35 * 2 / 3),
        (["\n".join(CALLS)] * 2, 0.15 * 2 / 3 + 0.35 / 2),  # everything twice
        (["\n".join(CALLS), "That is all."], 0.5),  # text that is no call: not solved
        (["", ""], 0.0),
        (["light.set(room='cellar', level=1)", "[]"], 0.15 * 0.5 + 0.35 * (1 / 3) / 3),  # the colour rightly left out
        (["play()", "play()"], 0.0),
    ],
)
def test_official_scoring_by_hand(texts, reward):
    assert earned(texts)[0] == pytest.approx(reward)


def test_the_terms_are_logged():
    _, terms = earned([f"{CALLS[0]}\nwait(9)", "hello\nwait(minutes=9.0)", "[]"])
    assert (
        terms["format"] == pytest.approx(2 / 3)
        and terms["overlap"] == pytest.approx(1 / 3)
        and terms["idle"] == pytest.approx(1 / 3)
    )
    assert (terms["solved"], terms["even_split"], terms["first_fit"]) == (0, 0, 0)


def test_even_splits_pay_only_when_right():
    row = {**ROW, "ground_truth": [HALL, ATTIC, PAUSE, PAUSE]}
    even, uneven = ["\n".join(CALLS[:2]), f"{CALLS[2]}\n" * 2], ["\n".join(CALLS), CALLS[2]]
    assert earned(even, row, even_split=0.2)[0] == 1.0
    assert earned(uneven, row, even_split=0.2)[0] == pytest.approx(0.9)  # evenness ½
    assert earned(["\n".join([*CALLS, CALLS[2]]), "[]"], row, even_split=0.2)[0] == pytest.approx(0.8)
    wrong = [even[0], "wait(9)\nwait(9)"]
    assert earned(wrong, row, even_split=0.2)[0] == earned(wrong, row)[0] < 0.5


@given(
    st.lists(st.sampled_from([*CALLS, "wait(9)", "light.set(room='attic', level=1)", "oops", "[]"]), max_size=6), st.integers(0, 6)
)
def test_rewards_lie_in_the_declared_range(lines, cut):
    for env in RANGED:
        texts = {"caller_0": "\n".join(lines[:cut]), "caller_1": "\n".join(lines[cut:])}
        (transition,) = env.branch(env.initial(ROW, (0,)), [texts])
        low, high = env.reward_range
        assert low <= transition.rewards["caller_0"] <= high


def test_dividing_differently_does_not_matter():
    for assignment in itertools.product(range(3), repeat=3):
        texts = ["\n".join(call for call, agent in zip(CALLS, assignment, strict=True) if agent == k) for k in range(3)]
        assert earned(texts)[0] == 1.0


# ---- the reference's formulas ----


def test_reference_native_by_hand():
    """Two agents, three gold calls (ideal 2 and 1), one argument that may be left out and is: 2/3 of the hall's similarity.

    0.05 + 0.25 + 0.35·(2/3 + 1 + 1)/3 + 0.10 + 0.15, no exact match.
    """
    reward, terms = earned(["\n".join(CALLS[:2]), CALLS[2]], scoring="reference")
    assert reward == pytest.approx(0.55 + 0.35 * 8 / 9) and terms["solved"] == 1.0
    full = "light.set(room='hall', level=40, colour='white')"
    assert earned([f"{full}\n{CALLS[1]}", CALLS[2]], scoring="reference")[0] == pytest.approx(1.10)
    # An even split of wrong calls is paid: 0.05 + 0.10 count + 0.15 balance.
    assert earned(["play(a=1)\nplay(a=2)", "play(a=3)"], scoring="reference")[0] == pytest.approx(0.30)
    assert earned(["", ""], scoring="reference")[0] == pytest.approx(-0.15)


def test_reference_native_penalties_by_hand():
    """Both write all three calls: overlap 3/3, doubles 3/3; counts 3 and 3 are 1 + 2 from the ideal 2 and 1."""
    every = "\n".join(["light.set(room='hall', level=40, colour='white')", *CALLS[1:]])
    reward, terms = earned([every, every], scoring="reference")
    assert terms["overlap"] == terms["duplicate"] == 1.0 and terms["balance"] == 0.0 and terms["exact"] == 1.0
    assert reward == pytest.approx(0.05 + 0.25 + 0.35 + 0.10 + 0.20 - 0.20 - 0.05)


def test_the_reference_formulas_declare_what_can_be_earned(tmp_path):
    """So the audit misses nothing on the bundled rows, whose gold calls earn it."""
    env = llm_envs.make("bfcl-parallel-v0", scoring="reference")
    assert env.reward_range == (-0.4, pytest.approx(1.10))
    audit = audit_rewards(env, episodes_per_row=1)
    assert audit["reference"].min == pytest.approx(1.10) and not [one for one in audit.warnings if "declared" in one]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(FLAT))
    flat = llm_envs.make("bfcl-parallel-v0", scoring="reference", source="path", path=str(path))
    assert flat.reward_range == (-0.4, pytest.approx(1.20))


FLAT = [{**ROW, "id": f"r{i}", "ordered": True} for i in range(2)]


def test_reference_flat_by_hand(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(FLAT))
    full = "light.set(room='hall', level=40, colour='white')"
    options = {"scoring": "reference", "source": "path", "path": str(path)}
    assert earned([f"{full}\n{CALLS[1]}", CALLS[2]], FLAT[0], **options)[0] == pytest.approx(1.20)
    # The last first: 1 of 3 places in order and right, the first place wrong at once, not exact.
    reward, terms = earned([CALLS[2], f"{full}\n{CALLS[1]}"], FLAT[0], **options)
    assert (terms["order"], terms["prefix"], terms["exact"]) == (pytest.approx(2 / 3), 0.0, 0.0)
    assert terms["balance"] == pytest.approx(1 / 3)  # counts 1 and 2, ideal 2 and 1
    assert reward == pytest.approx(0.05 + 0.15 + 0.20 + 0.25 * 2 / 3 + 0.10 + 0.15 / 3)


def test_reference_values():
    assert similarity(Call("f", {"a": " Two  words"}), {"f": {"a": ["two words"]}}) == 1.0
    assert similarity(Call("f", {"a": "two-words"}), {"f": {"a": ["two words"]}}) == 0.0  # the benchmark ignores "-"
    assert similarity(Call("f", {"a": 1.0000001}), {"f": {"a": [1]}}) == 1.0
    assert similarity(Call("f", {"a": 1}), {"f": {}}) == 0.7
    assert similarity(Call("f", {"a": 1, "b": 1}), {"f": {"a": [1]}}) == 0.5
    assert similarity(Call("f", {"a": {"k": 1}}), {"f": {"a": [{"k": [1, 2]}]}}) == 1.0


# ---- rows and options ----


def test_gold_calls_of_every_bundled_row_earn_the_most():
    for agents, even in ((1, 0.0), (2, 0.5), (3, 0.2), (7, 0.0)):
        made = task(agents=agents, even_split=even)
        env = TaskEnv(made)
        for row in (*made.items, *made.eval_items):
            (transition,) = env.branch(env.initial(row, (0,)), [dict(zip(env.possible_agents, made.reference(row), strict=True))])
            assert transition.rewards["caller_0"] == 1.0 and transition.infos["caller_0"]["reward/solved"] == 1.0


def test_rows_in_every_form_are_one():
    official = {"id": "r", "question": [[{"role": "user", "content": "Light."}]], "function": [LAMP, WAIT], "ground_truth": [HALL]}
    hub = {
        "official_category": "parallel",
        "user_prompt": "Light.",
        "function": json.dumps([LAMP, WAIT]),
        "ground_truth": [json.dumps(HALL)],
        "turn_index": None,
    }
    filled = {**official, "ground_truth": [{"light.set": {**HALL["light.set"], "minutes": None}, "wait": None}]}
    one, two, three = parallel_row(official), parallel_row(hub), parallel_row(filled)
    assert one == {"id": "r", "category": "own", "prompt": "Light.", "function": [LAMP, WAIT], "ground_truth": [HALL]} == three
    assert two == {**one, "id": two["id"], "category": "parallel"} and len(two["id"]) == 16
    system = {**official, "question": [[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]]}
    assert parallel_row(system)["prompt"] == "system: s\nuser: u"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ground_truth": [{"play": {}}]}, "must name one of the functions light.set, wait"),
        ({"ground_truth": []}, "at least one gold call"),
        ({"ground_truth": [{"wait": {"minutes": 2}}]}, "'minutes' must list allowed values, got 2"),
        ({"function": [{**WAIT, "parameters": {"properties": {"m": {"type": "complex"}}}}]}, "must name one of"),
        ({"question": [[]], "prompt": None}, "needs a message"),
        ({"ground_truth": [{"wait": {"minutes": [2.0], "why": ["x"]}}]}, "gold call of wait has 'why'; .* parameters are minutes"),
        ({"ground_truth": [{"wait": {}}]}, "gold call of wait has no 'minutes', which the function requires"),
        ({"ground_truth": [{"light.set": {"room": ["hall"], "level": [[4]]}}], "function": [LAMPS]}, "'level' that is of its type"),
        ({"ground_truth": [{"wait": 3}]}, "'ground_truth' must give wait allowed values by parameter"),
        ({"ground_truth": [{"wait": {"minutes": [{"a": 1}]}}]}, "'minutes', 'a' must list allowed values, got 1"),
        ({"function": None}, "'function' must be a list of functions' descriptions, got None"),
        ({"function": [7]}, "'function' must be a list of functions' descriptions"),
        ({"function": [{"name": "wait"}]}, "a 'function' must have a name and parameters with properties"),
        ({"ground_truth": 7}, "'ground_truth' must be a list of gold calls, .* got 7"),
        ({"prompt": None}, "needs 'prompt' .* or 'question', .* neither"),
        ({"prompt": 7}, "'prompt' must be a text, got 7"),
        ({"prompt": None, "question": "x"}, "'question' must be a list of messages for each turn, got 'x'"),
    ],
)
def test_rows_that_do_not_fit(change, message):
    with pytest.raises(ValueError, match=message):
        parallel_row({**ROW, **change})


def test_unknown_types_are_refused():
    odd = {"name": "wait", "parameters": {"properties": {"minutes": {"type": "complex"}}}}
    with pytest.raises(ValueError, match="'minutes' has the type 'complex'; BFCL knows string"):
        parallel_row({**ROW, "function": [odd], "ground_truth": [PAUSE]})


def test_roles_are_told_and_tell_nothing_of_the_gold():
    made = task(agents=3, role_mode="odd_even")
    prompts = [made.formatters[k](ROW) for k in range(3)]
    assert "You are caller_1, one of 3 callers" in prompts[1] and "Make number 2 and every 3rd one after it." in prompts[1]
    same = task(agents=2, role_mode="same_prompt")
    assert same.formatters[0](ROW) == same.formatters[1](ROW)
    split = task(agents=2, role_mode="split_by_order")
    assert "Divide them into 2 parts of the same size; make the 2nd part." in split.formatters[1](ROW)
    assert "choose your part" in task().formatters[0](ROW)
    alone = task(agents=1, role_mode="odd_even").formatters[0](ROW)
    assert alone.startswith("Make every function call that the request needs, once.")
    for made in (task(agents=3, role_mode=mode) for mode in ("self_select", "same_prompt", "odd_even", "split_by_order")):
        fewer = {**ROW, "ground_truth": [PAUSE]}
        assert [f(ROW) for f in made.formatters] == [f(fewer) for f in made.formatters]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role_mode": "leader"}, "role_mode must be one of self_select, same_prompt"),
        ({"scoring": "loose"}, "scoring must be one of official, reference"),
        ({"even_split": 0.6}, r"even_split must be between 0 and 0.5, got 0.6"),
        ({"even_split": 0.1, "scoring": "reference"}, "belongs to scoring='official'"),
        ({"agents": 0}, "agents must be at least 1"),
        ({"categories": "own"}, "categories must be a list of names, got 'own'"),
        ({"categories": ["parallel"]}, "no row is of the category 'parallel'; there are own"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        task(**options)


def test_rows_of_two_kinds_have_no_common_formula(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([FLAT[0], {**ROW, "id": "s", "category": "other"}]))
    with pytest.raises(ValueError, match="choose one kind of rows"):
        task(source="path", path=str(path), scoring="reference")
    assert [row["id"] for row in task(source="path", path=str(path), categories=["other"], eval_share=0).items] == ["s"]


def test_names_evaluation_rows_and_pickles():
    made = task(agents=["planner_0", "doer_0"], eval_ids=["own-timers", "own-garden"])
    assert made.agent_ids == ("planner_0", "doer_0") and task(agents=3).agent_ids == ("caller_0", "caller_1", "caller_2")
    assert [row["id"] for row in made.eval_items] == ["own-timers", "own-garden"] and len(made.items) == 13
    env = pickle.loads(pickle.dumps(llm_envs.make("bfcl-parallel-v0")))
    env.reset(seed=0)
    env.step({"caller_0": "[]", "caller_1": "[]"})
    assert judge_official(made.reference(made.items[0]), made.items[0])["solved"] == 1.0


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install --no-deps bfcl-eval"):
        task(source="package")
    with pytest.raises(ImportError, match=r"pip install --no-deps bfcl-eval"):
        bfcl.rows("parallel")
    with pytest.raises(ValueError, match=r"categories of bfcl-parallel-v0 are parallel, .*, got 'java'"):
        task(source="package", categories=["java"])


def test_the_pages_tables_are_true():
    page = (Path(__file__).parents[2] / "docs" / "tasks" / "tool_use.md").read_text(encoding="utf-8")
    row = next(row for row in task(eval_share=0).items if row["id"] == "own-timers")
    both = "timer.start(minutes=8)\ntimer.start(minutes=25)"
    shown = re.findall(r"^\| (`timer.*?`|both calls) \| (.*?) \| ([\d/]+) \| ([\d/]+) \| (\d) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(shown) == 6
    for one, two, *values in shown:
        reward, terms = earned([both if text == "both calls" else text.strip("`") for text in (one, two)], row)
        said = [float(Fraction(value)) for value in values]
        assert [terms["names"], terms["arguments"], terms["solved"], reward] == [pytest.approx(value) for value in said]
    careless = page.split("## What careless teams earn")[1]
    for column, name in ((1, "bfcl-parallel-v0"), (2, "bfcl-multiturn-v0")):
        audit = audit_rewards(llm_envs.make(name), episodes_per_row=1)
        for line in re.findall(r"^\| ([eor].*?) \| ([\d.]+) \| ([\d.]+) \|$", careless, re.MULTILINE):
            teams = re.sub(r" \(.*?\)", "", line[0]).replace("one agent silent", "one silent")
            for team in teams.replace("reference of another row", "swapped").split(", "):
                assert round(audit[team].mean, 2) == float(line[column]), (name, team)

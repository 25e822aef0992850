"""Guards tool use against bfcl-eval itself: every gold answer earns everything, and our verdicts are those of its checkers.

Needs `pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath`.
"""

from __future__ import annotations

import copy
import decimal
import random
import sys
import types
from collections import Counter

import pytest

pytest.importorskip("bfcl_eval")
pytest.importorskip("mpmath")

from llm_envs.env import TaskEnv
from llm_envs.tasks.tool_use import bfcl, bfcl_multiturn, bfcl_parallel
from llm_envs.tasks.tool_use.calls import Call, render_call
from llm_envs.tasks.tool_use.episode import gold_call as read_gold
from llm_envs.tasks.tool_use.episode import progress
from llm_envs.tasks.tool_use.matching import compare, gold_call
from llm_envs.tasks.tool_use.multiturn_rows import multiturn_row
from llm_envs.tasks.tool_use.parallel_rows import FLAT_CATEGORIES
from llm_envs.tasks.tool_use.reference_scoring import FORMULAS, total
from llm_envs.tasks.tool_use.simulators import World

SHARE = {"fewer_classes": "share"}


def all_rows(task):
    return [*task.items, *(task.eval_items or [])]


# ---- parallel calls ----

PARALLEL = bfcl_parallel.task(source="package", categories=bfcl.PARALLEL)
FLAT = bfcl_parallel.task(source="package", categories=FLAT_CATEGORIES)


def test_numbers_of_rows():
    """As the wheel has them; flattened are the turns with at least two calls, 257 of each category."""
    assert Counter(row["category"] for row in all_rows(PARALLEL)) == {
        "parallel": 200,
        "parallel_multiple": 200,
        "live_parallel": 16,
        "live_parallel_multiple": 24,
    }
    assert Counter(row["category"] for row in all_rows(FLAT)) == {"multi_turn_base": 257, "multi_turn_long_context": 257}
    assert len(all_rows(bfcl_parallel.task(source="package"))) == 400


@pytest.mark.parametrize("made", [PARALLEL, FLAT], ids=["parallel", "flat"])
def test_gold_calls_score_full_marks_on_all_rows(made):
    for index, row in enumerate(all_rows(made)):
        terms = bfcl_parallel.judge_official(bfcl_parallel.Reference(1 + index % 3, "official")(row), row)
        assert terms["names"] == terms["arguments"] == terms["solved"] == terms["first_fit"] == terms["format"] == 1.0, row["id"]


def test_gold_calls_earn_the_reference_systems_maximum():
    """All but two rows whose gold calls are taken for doubles there: `AA`, `Aa` and `aa`, and calls that are wanted twice."""
    for made, kind, best in ((PARALLEL, "native", 1.10), (FLAT, "flat", 1.20)):
        formula = FORMULAS[kind]
        less = []
        for row in all_rows(made):
            team = bfcl_parallel.team_calls(bfcl_parallel.Reference(2, "reference")(row), row["function"])
            if total(formula.terms(team.own, row["ground_truth"]), formula.factors) < best - 1e-9:
                less.append(row["id"])
        assert sorted(less) == (["parallel_116", "parallel_158"] if kind == "native" else [])


@pytest.fixture(scope="module")
def official_checker():
    """The package's checker. It looks a model up in a table whose import needs every vendor's client: an empty table will do."""
    module = types.ModuleType("bfcl_eval.constants.model_config")
    module.MODEL_CONFIG_MAPPING = {"x": types.SimpleNamespace(underscore_to_dot=False)}
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        from bfcl_eval.constants.enums import Language
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    finally:
        sys.modules.pop(module.__name__)
        if before is not None:
            sys.modules[module.__name__] = before

    def valid(calls, row):
        given = [{call.name: dict(call.arguments)} for call in calls]
        return ast_checker(row["function"], given, row["ground_truth"], Language.PYTHON, "parallel", "x")["valid"]

    return valid


def some_call(rng, gold, schema):
    """A call whose every value is an allowed one, optional ones mostly left out."""
    call = gold_call(gold, schema)
    for parameter, allowed in gold[call.name].items():
        value = rng.choice(allowed)
        if value != "" and not isinstance(value, (dict, list)):
            call.arguments[parameter] = value
    return call


def changed(rng, calls):
    """The calls with up to two things changed, in another order."""
    calls = [Call(call.name, copy.deepcopy(dict(call.arguments))) for call in calls]
    for _ in range(rng.choice([0, 1, 1, 2])):
        if not calls:
            break
        at = rng.randrange(len(calls))
        arguments = calls[at].arguments
        key = rng.choice([*arguments, None])
        match rng.randrange(7):
            case 0:
                calls.pop(at)
            case 1:
                calls.append(calls[at])
            case 2 if key:
                del arguments[key]
            case 3 if key:
                arguments[key] = varied(arguments[key])
            case 4 if key:
                arguments[key] = rng.choice(["x", 1, 2.5, True, None, [], ["a"], {}, [1, 2], (1, 2)])
            case 5:
                arguments["further"] = 1
            case 6:
                calls[at] = Call(f"{calls[at].name}_", arguments)
    rng.shuffle(calls)
    return calls


def varied(value):
    if isinstance(value, str):
        return f"{value.upper()}."
    if type(value) in (int, float):
        return float(value) if isinstance(value, int) else int(value)
    return tuple(value) if isinstance(value, list) else value


def test_our_verdicts_are_the_benchmarks(official_checker):
    """On right, nearly right and wrong calls for every row. Ours finds a matching also where the benchmark's order misses it."""
    rng = random.Random(0)
    seen = Counter()
    for row in all_rows(PARALLEL) + all_rows(FLAT)[::4]:
        schemas = {schema["name"]: schema for schema in row["function"]}
        for _ in range(4):
            calls = changed(rng, [some_call(rng, gold, schemas[next(iter(gold))]) for gold in row["ground_truth"]])
            ours, official = compare(calls, row["ground_truth"], row["function"]), official_checker(calls, row)
            assert ours.first_fit == official, (row["id"], list(map(render_call, calls)))
            assert ours.exact or not official
            seen[official] += 1
    assert min(seen[True], seen[False]) > 500


# ---- several turns ----


def replay(made, rows):
    """The return and `solved` of the gold trajectory of each row."""
    env = TaskEnv(made)
    for row in rows:
        texts, state, earned, turn = made.reference(row), env.initial(row, (0,)), 0.0, 0
        while not state.done:
            (transition,) = env.branch(state, [{agent: texts[k][turn] for k, agent in enumerate(env.possible_agents)}])
            state, turn, earned = transition.state, turn + 1, earned + transition.rewards["api_0"]
        yield row["id"], round(earned, 9), transition.infos["api_0"]["reward/solved"]


def test_some_gold_trajectories_of_each_category_earn_everything():
    for category in bfcl.MULTI_TURN:
        made = bfcl_multiturn.task(source="package", categories=[category], **SHARE)
        assert len(all_rows(made)) == 200
        assert {(earned, solved) for _, earned, solved in replay(made, all_rows(made)[::25])} == {(1.0, 1.0)}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SHARE, {"agents": 1}, {"agents": 3, "steps_per_turn": 1, **SHARE}], ids=str)
@pytest.mark.parametrize("category", bfcl.MULTI_TURN)
@pytest.mark.filterwarnings("ignore:bfcl-multiturn-v0. 65 of 200")
def test_all_gold_trajectories_earn_everything(category, options):
    made = bfcl_multiturn.task(source="package", categories=[category], **options)
    rows = all_rows(made)
    assert len(rows) == (200 if options else 135)
    assert [found for found in replay(made, rows) if found[1:] != (1.0, 1.0)] == []


def official_verdicts(row, steps):
    """Whether each turn passes the package's multi-turn checker, up to the first that does not."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as checker
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as utilities

    for name in [name for name in vars(utilities) if name.endswith("_instance")]:
        delattr(utilities, name)  # it keeps simulators in its globals
    found = checker.multi_turn_checker([[turn] for turn in steps], row["ground_truth"], row, "multi_turn_base", "m")
    return found["valid"]


def spoiled(rng, row):
    """The gold calls turn by turn, with a call left out, made twice, or exchanged with its neighbour."""
    turns = [list(turn) for turn in row["ground_truth"]]
    at = rng.choice([index for index, turn in enumerate(turns) if turn])
    turn = turns[at]
    place = rng.randrange(len(turn))
    match rng.randrange(4):
        case 0:
            turn.pop(place)
        case 1:
            turn.insert(place, turn[place])
        case 2:
            turn.insert(0, turn.pop(place))
        case 3 if at + 1 < len(turns):
            turns[at + 1].insert(0, turn.pop(place))
    return turns


def check_against_the_benchmark(rows, seed):
    made = bfcl_multiturn.task(source="package", agents=1)
    setting, rng, seen = made.reward.function.setting, random.Random(seed), Counter()
    for row in rows:
        turns = spoiled(rng, row)
        ours = progress(setting, row, [["\n".join([*map(render_call, map(read_gold, turn)), "done"])] for turn in turns])
        assert ours.done and ours.solved == official_verdicts(row, turns), (row["id"], turns)
        seen[ours.solved] += 1
    assert min(seen[True], seen[False]) > len(rows) / 10


def test_our_verdicts_on_turns_are_the_benchmarks():
    check_against_the_benchmark(all_rows(bfcl_multiturn.task(source="package", agents=1))[::5], seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_our_verdicts_on_all_episodes_are_the_benchmarks(seed):
    check_against_the_benchmark(all_rows(bfcl_multiturn.task(source="package", agents=1)), seed)


# ---- simulators ----


def world(category, api):
    row = next(row for row in bfcl.rows(category) if api in row["involved_classes"])
    return World(multiturn_row(row))


def test_functions_of_every_class_are_methods_of_its_simulator():
    for api in bfcl.SIMULATORS:
        made = bfcl.simulator(api, {}, long_context=False)
        assert all(callable(getattr(made, doc["name"])) and "response" not in doc for doc in bfcl.functions(api))
    with pytest.raises(ValueError, match="no API class 'WebSearchAPI'"):
        bfcl.simulator("WebSearchAPI", {}, long_context=False)


def test_calls_that_would_take_for_ever_are_answered_at_once():
    calls = world("multi_turn_base", "MathAPI")
    for call in (
        Call("power", {"base": 10, "exponent": 10**9}),
        Call("power", {}, (10, 10**9)),
        Call("logarithm", {"value": 2, "base": 3, "precision": 10**9}),
        Call("square_root", {"number": 2, "precision": 10**9}),
        Call("round_number", {"number": 5, "decimal_places": -(10**12)}),
        Call("add", {"a": 10**4000, "b": 1}),
        Call("sum_values", {"numbers": [1, 10**19]}),
    ):
        assert "is too large" in calls.run(call)
    assert calls.run(Call("power", {"base": 2, "exponent": 10})) == '{"result": 1024}'
    assert "Error" in calls.run(Call("power", {"base": 10**18, "exponent": 1000}))


def test_the_process_keeps_its_precision():
    import mpmath

    before = (mpmath.mp.dps, decimal.getcontext().prec)
    calls = world("multi_turn_base", "MathAPI")
    assert "mpf" in calls.run(Call("logarithm", {"value": 2.0, "base": 10.0, "precision": 50}))
    assert "Decimal" in calls.run(Call("square_root", {"number": 2, "precision": 50}))
    assert (mpmath.mp.dps, decimal.getcontext().prec) == before


def test_folders_that_are_copied_into_each_other_fill_the_simulator():
    files, other = world("multi_turn_base", "GorillaFileSystem"), world("multi_turn_base", "GorillaFileSystem")
    files.run(Call("mkdir", {"dir_name": "a"}))
    files.run(Call("cp", {"source": "a", "destination": "a"}))  # now a folder holds itself
    assert files.run(Call("ls", {})).endswith("the simulators are full")
    assert not files.same_as(other) and other.same_as(other)


def test_deep_folders_differ_without_failing():
    files, other = world("multi_turn_base", "GorillaFileSystem"), world("multi_turn_base", "GorillaFileSystem")
    for one, last in ((files, "b"), (other, "c")):
        for name in ["a"] * 250 + [last]:
            one.run(Call("mkdir", {"dir_name": name}))
            one.run(Call("cd", {"folder": name}))
    assert not files.same_as(other)

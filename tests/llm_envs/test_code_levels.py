"""Guards what programs earn: levels by hand, the gates between them, turns, and answers that cheat."""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path

import pytest
from code_rows import ALONE, AUX, MAIN, NEXT, env_of, play
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.tasks.code.levels import Team

HALF = "def f(x):\n    y = aux(x)\n    return y if x > 1 else 'no'\n"  # passes the checks of 2 and 99


def terms(env, *texts):
    return play(env, texts)[1][0]


def test_everything_right_earns_the_most():
    assert terms(env_of(), AUX, MAIN) == {
        "definitions": 1.0,
        "syntax": 0.5,
        "tests": 1.0,
        "collaboration": 1.5,
        "penalty": 0.0,
        "passed": 1.0,
        "solved": 1.0,
    }
    assert play(env_of(), [AUX, MAIN])[0] == [4.0]
    assert play(env_of(helpers=0), [ALONE])[0] == [pytest.approx(2.1)]


@pytest.mark.parametrize(
    ("aux", "main", "expected"),
    [
        # f(1) is public and fails. 2 of 4, and a constant passes 1 of the other 3: (1/2 − 1/3) / (1 − 1/3) = 1/4; form 0.2 + 0.8/4.
        (AUX, HALF, {"definitions": 0.4, "syntax": 0.2, "tests": 0.25, "collaboration": 0.375, "passed": 0.5, "solved": 0.0}),
        # A constant passes one check and earns a fifth of the form.
        (AUX, "def f(x):\n    return 2\n", {"definitions": 0.2, "syntax": 0.1, "tests": 0.0, "collaboration": 0.0, "passed": 0.25}),
        # No helper is needed, but the level is lost.
        (AUX, ALONE, {"definitions": 1.0, "syntax": 0.5, "tests": 1.0, "collaboration": 0.0, "penalty": 0.0}),
        ("", ALONE, {"definitions": 0.6, "syntax": 0.5, "tests": 1.0, "collaboration": 0.0}),
        # A wrapper gets a third of the level.
        (AUX, "def f(x):\n    return aux(x)\n", {"tests": 1.0, "collaboration": 0.5}),
        # Called for nothing.
        (AUX, "def f(x):\n    aux(x)\n    return x + 1\n", {"collaboration": 0.0, "penalty": -0.5, "solved": 1.0}),
        # Of main's own making.
        (AUX, f"{AUX}{MAIN}", {"definitions": 1.0, "tests": 1.0, "collaboration": 0.0, "penalty": 0.0}),
        # Used, but it does nothing.
        ("def aux(x):\n    return 1\n", "def f(x):\n    return x + aux(x) if x else 1\n", {"tests": 1.0, "collaboration": 0.0}),
        # A helper that returns nothing is not defined; main cannot use it.
        ("def aux(x):\n    x + 1\n", MAIN, {"definitions": 0.6 * 0.2, "syntax": 0.1, "tests": 0.0, "collaboration": 0.0}),
        # Text around code, without fences: what parses counts, the syntax level does not.
        (f"Here:\n{AUX}", MAIN, {"definitions": 1.0, "syntax": 0.0, "tests": 1.0, "collaboration": 1.5}),
        (f"```python\n{AUX}```", f"Sure.\n```\n{MAIN}```", {"definitions": 1.0, "syntax": 0.5, "collaboration": 1.5}),
        # Without the entry point nothing runs.
        (AUX, "", {"definitions": 0.08, "syntax": 0.0, "tests": 0.0, "passed": 0.0}),
        (AUX + ALONE, "", {"definitions": 0.08, "tests": 0.0}),  # the helper cannot write it
        # What the name stands for in the end counts: no plain function is no definition and no collaboration.
        (AUX, f"{MAIN}f = lambda x: x + 1\n", {"definitions": 0.4, "syntax": 0.0, "tests": 1.0, "collaboration": 0.0}),
        (
            AUX,
            f"def g(x):\n    return aux(x)\ng = lambda x: x + 1\n{MAIN.replace('aux', 'g')}",
            {"tests": 1.0, "collaboration": 0.0},
        ),
        (f"{AUX}aux = lambda x: x + 1\n", MAIN, {"definitions": 0.6, "tests": 1.0, "collaboration": 0.0}),
        # Blocks at top level run.
        (
            AUX,
            f"try:\n    import math as M\nexcept ImportError:\n    M = None\nZ = 1\nZ -= 1\n{MAIN.replace('else 0', 'else Z')}",
            {"tests": 1.0},
        ),
        # It raises when loaded.
        (AUX, f"X = 1 / 0\n{MAIN}", {"definitions": 0.2, "syntax": 0.1, "tests": 0.0, "passed": 0.0}),
        ("", "", dict.fromkeys(["definitions", "syntax", "tests", "collaboration", "penalty", "passed", "solved"], 0.0)),
    ],
)
def test_levels_by_hand(aux, main, expected):
    found = terms(env_of(), aux, main)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_the_public_examples_by_heart_earn_nothing():
    """`f(1)` and `f(5)` are public, and `f(1)` is a hidden check too: it is passed, and a constant is no better in the tests."""
    found = terms(env_of(), AUX, "def f(x):\n    return {1: 2, 5: 6}.get(x)\n")
    assert (found["tests"], found["passed"]) == (0.0, 0.25)


def test_helpers_share_what_helpers_earn():
    """Two helpers, one of them used: half of 0.5 + 1, and nothing is called for nothing."""
    env = env_of(helpers=2)
    assert env.possible_agents == ["aux_0", "aux_1", "main_0"]
    main = MAIN.replace("aux(", "aux_1(")
    first, second = AUX.replace("aux", "aux_0"), AUX.replace("aux", "aux_1")
    assert terms(env, first, second, main)["collaboration"] == pytest.approx(0.75)
    assert terms(env, "", second, main)["definitions"] == pytest.approx(0.8)
    ignoring = main.replace("    y =", "    aux_0(x)\n    y =")
    assert terms(env, first, second, ignoring)["penalty"] == pytest.approx(-0.25)
    both = "def f(x):\n    y = aux_1(x)\n    return y if aux_0(x) else 0\n"
    assert play(env, [first, second, both])[0] == [pytest.approx(4.0)]


def test_a_helper_cannot_replace_another_ones_function():
    main = "def f(x):\n    y = aux_0(x)\n    return y if y != aux_1(x) else 0\n"
    spoiling = "aux_0 = lambda x: 99\ndef aux_1(x):\n    return x / 3 + 0.1\n"
    assert play(env_of(helpers=2), [AUX.replace("aux", "aux_0"), spoiling, main])[0] == [pytest.approx(4.0)]


def test_a_row_whose_checks_a_constant_passes_is_not_corrected():
    row = {**NEXT, "test": "def check(candidate):\n    assert candidate(1) == 2\n"}
    assert terms(env_of(row), AUX, "def f(x):\n    return 2\n")["tests"] == 1.0


def test_sooner_earns_more_and_ends_the_episode():
    """H = 2: a turn counts ½; the highest score in the first turn is paid for both."""
    env = env_of(num_turns=2)
    rewards, _, state = play(env, [AUX, MAIN])
    assert rewards == [4.0] and state.terminated
    rewards, found, state = play(env, [AUX, ALONE], [AUX, MAIN])  # solved is not yet the best
    assert rewards == [pytest.approx(2.5 / 2), 2.0] and state.terminated
    assert found[0]["solved"] == 1.0 and found[0]["tests"] == 0.5
    assert play(env, ["", ""], ["", ""])[0] == [0.0, 0.0]


@pytest.mark.parametrize("helpers", [0, 1, 2])
def test_the_range_is_declared(helpers):
    assert env_of(helpers=helpers).reward_range == (0.0, Team(helpers).best)
    assert Team(helpers).best == pytest.approx(4.0 if helpers else 2.1)


def test_several_joint_answers_are_judged_together_and_alike():
    env = env_of()
    state = env.initial(env.items[0], (0, 0), 0)
    pairs = [(AUX, MAIN), ("", ""), (AUX, HALF), (AUX, MAIN)]
    together = env.branch(state, [{"aux_0": aux, "main_0": main} for aux, main in pairs])
    alone = [env.branch(state, [{"aux_0": aux, "main_0": main}])[0] for aux, main in pairs]
    assert [one.rewards for one in together] == [one.rewards for one in alone]


def test_the_env_pickles():
    env = pickle.loads(pickle.dumps(env_of(num_turns=2)))
    assert play(env, [AUX, MAIN])[0] == [4.0]


PARTS = st.lists(
    st.sampled_from(
        ["def aux(x):", "    return x + 1", "def f(x):", "    return aux(x)", "```", "text", "    y = aux(x)", "import math", ""]
    ),
    max_size=5,
).map("\n".join)


@settings(max_examples=40)
@given(aux=PARTS | st.text(max_size=30), main=PARTS | st.text(max_size=30))
def test_any_texts_earn_within_the_range(aux, main):
    """Without the entry point, so that nothing needs to run, and with it."""
    (reward,), (found,), _ = play(ENV, [aux, main])
    assert 0.0 <= reward <= 4.0
    assert found["solved"] == (found["passed"] == 1.0)


ENV = env_of()

CHEATS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "code_rewards.py"))["CHEATS"]


@pytest.mark.parametrize("main", CHEATS.values(), ids=CHEATS)
def test_cheats_earn_next_to_nothing(main):
    """With an honest helper. A fifth of definitions and syntax, 0.3 of 4, is the most."""
    (reward,), (found,), _ = play(ENV, [AUX, main.replace("ENTRY", "f")])
    assert reward <= 0.3 + 1e-9 and found["solved"] == 0.0


def test_an_endless_program_ends():
    env = env_of(cpu_seconds=0.2)
    (reward,), (found,), _ = play(env, [AUX, "def f(x):\n    while True:\n        x += 1\n    return x\n"])
    assert reward <= 0.3 + 1e-9 and found["passed"] == 0.0

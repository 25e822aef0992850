"""Guards what programmers are told between turns, mode by mode, and that hidden tests stay hidden unless revealed."""

from __future__ import annotations

import json
import pickle

import pytest
from code_rows import ALONE, AUX, MAIN, NEXT, env_of, play

from llm_envs.tasks.code.experts import PolicyExpert, read_suggestions
from llm_envs.tasks.code.feedback import printable
from llm_envs.testing import ScriptedPolicy
from llm_envs.transitions import TransitionError
from llm_envs.types import ChatPrompt

# Right on the public examples f(1) and f(5), wrong on the hidden f(-1) and f(99).
PUBLIC_ONLY = "def f(x):\n    y = aux(x)\n    return y if 0 < x < 9 else 7\n"
WRONG = "def f(x):\n    y = aux(x)\n    return y * 2 if x else 0\n"
PATTERNS = ("-1", "99", "100")  # of the hidden checks; nowhere else in prompts or answers here


def told(*texts, **options):
    """What each agent reads in the second turn, in the agents' order."""
    env = env_of(**{"num_turns": 2, **options})
    _, _, state = play(env, texts)
    return [state.observations[agent] for agent in env.possible_agents]


def diagnosis(*texts, **options):
    """The same, without first prompt, last answer and the closing line."""
    prompts = told(*texts, original_prompt=False, previous_response=False, **options)
    return [prompt.rpartition("Write a better")[0].strip() for prompt in prompts]


def test_plain_says_nothing_of_the_answer():
    aux, main = told(AUX, WRONG, feedback="plain")
    first = env_of().initial(NEXT, (0,)).observations
    assert aux == f"{first['aux_0']}\n\nYour last answer was:\n{AUX}\n\nWrite a better `aux`. Answer with Python code only."
    assert main == f"{first['main_0']}\n\nYour last answer was:\n{WRONG}\n\nWrite a better `f`. Answer with Python code only."


@pytest.mark.parametrize("mode", ["plain", "passed", "level_passed", "level_feedback"])
def test_what_stands_around_the_diagnosis(mode):
    with_all, without = told(AUX, WRONG, feedback=mode)[1], told(AUX, WRONG, feedback=mode, original_prompt=False)[1]
    first = env_of().initial(NEXT, (0,)).observations["main_0"]
    assert with_all == f"{first}\n\n{without}" and without.startswith(f"Your last answer was:\n{WRONG}")
    short = told(AUX, WRONG, feedback=mode, previous_response=False)[1]
    assert WRONG not in short and short.startswith(first) and short.endswith("Write a better `f`. Answer with Python code only.")


@pytest.mark.parametrize(
    ("texts", "public", "revealed"),
    [
        ([AUX, WRONG], "Not all levels are passed.", "Not all levels are passed."),
        ([AUX, PUBLIC_ONLY], "All levels are passed.", "Not all levels are passed."),
        ([AUX, ALONE], "Not all levels are passed.", "Not all levels are passed."),  # no collaboration
    ],
)
def test_passed(texts, public, revealed):
    assert diagnosis(*texts, feedback="passed") == [public] * 2
    assert diagnosis(*texts, feedback="passed", reveal_hidden=True) == [revealed] * 2


def test_level_by_level():
    def levels(definitions, syntax, tests, collaboration):
        named = {"definitions": definitions, "syntax": syntax, "tests": tests, "collaboration": collaboration}
        return "\n".join(["Levels:", *(f"- {name}: {'passed' if good else 'not passed'}" for name, good in named.items())])

    assert diagnosis(AUX, PUBLIC_ONLY, feedback="level_passed") == [levels(True, True, True, True)] * 2
    assert diagnosis(AUX, PUBLIC_ONLY, feedback="level_passed", reveal_hidden=True) == [levels(True, True, False, True)] * 2
    assert diagnosis("def aux(x)", ALONE, feedback="level_passed")[0] == levels(False, False, True, False)
    assert diagnosis(AUX, "def f(x):\n    return aux(x)\n" + "(", feedback="level_passed")[1] == levels(True, False, True, False)
    assert diagnosis("", "", feedback="level_passed")[0] == levels(False, False, False, False)


def test_levels_in_full():
    aux, main = diagnosis(AUX, WRONG, feedback="level_feedback")
    common = (
        "- definitions: `aux` is there.\n- definitions: `f` is there.\n- syntax: every text parses.\n"
        "- tests: 0 of 2 public examples pass:\n    f(1) should give 2: gave 4\n    f(5) should give 6: gave 12\n"
    )
    assert aux == f"{common}- collaboration: `f` uses what `aux` returns." == main
    revealed = diagnosis(AUX, WRONG, feedback="level_feedback", reveal_hidden=True)[1]
    assert "- tests: 1 of 6 tests pass:\n    assert candidate(1) == 2: AssertionError\n" in revealed
    assert "    assert candidate(99) == 100: AssertionError\n    f(1) should give 2: gave 4\n" in revealed


@pytest.mark.parametrize(
    ("aux", "main", "said"),
    [
        ("", ALONE, ["- definitions: `aux` is missing.", "- collaboration: `f` does not call `aux`."]),
        ("def aux(x):\n    pass\n", MAIN, ["- definitions: `aux` returns nothing."]),
        ("def aux(x) return", ALONE, ["- syntax: the text for `aux` does not parse as a whole: line 1, column 12: "]),
        (AUX, "", ["- definitions: `f` is missing.", "- tests: nothing could be run without `f`."]),
        (AUX, f"X = 1 / 0\n{MAIN}", ["- tests: the program cannot be loaded: ZeroDivisionError: division by zero."]),
        (AUX, "def f(x):\n    return [][x]\n", ["    f(1) should give 2: IndexError: list index out of range\n"]),
        (AUX, "def f(x):\n    aux(x)\n    return 1\n", ["- collaboration: `f` calls `aux` but does nothing with what it returns."]),
        (AUX, "def f(x):\n    return aux(x)\n" + "x(", ["- collaboration: `f` does little more than hand on what `aux` gives."]),
        (AUX, f"{AUX}{MAIN}", ["the main programmer defines `aux` again, so the helper's function is not used."]),
        ("def aux(x):\n    return x\n", MAIN, ["`f` uses `aux`, which only returns a constant or what it is given."]),
    ],
)
def test_what_is_wrong(aux, main, said):
    found = diagnosis(aux, main, feedback="level_feedback")[1] + "\n"
    for line in said:
        assert line in found


def test_helpers_are_told_of_their_own_function():
    texts = [AUX.replace("aux", "aux_0"), AUX.replace("aux", "aux_1"), "def f(x):\n    return aux_0(x) * 2\n"]
    first, second, main = diagnosis(*texts, helpers=2)
    assert "`f` uses what `aux_0` returns" in first and "aux_1` returns" not in first and "call `aux_1`" not in first
    assert "`f` does not call `aux_1`" in second and "what `aux_0`" not in second
    assert "`f` uses what `aux_0` returns" in main and "`f` does not call `aux_1`" in main and "little more" in main


def test_a_programmer_alone():
    (main,) = diagnosis("def f(x):\n    return x\n", helpers=0)
    assert (
        main.startswith("- definitions: `f` is there.\n- syntax: every text parses.\n- tests: 0 of 2")
        and "collaboration" not in main
    )


@pytest.mark.parametrize("mode", ["passed", "level_passed", "level_feedback"])
def test_a_problem_without_examples_says_so(mode):
    row = {**NEXT, "prompt": 'def f(x):\n    """The number after x."""\n'}
    env = env_of(row, num_turns=2, feedback=mode)
    _, _, state = play(env, [AUX, PUBLIC_ONLY])
    assert "this problem has no public examples" in state.observations["main_0"]


@pytest.mark.parametrize("mode", ["plain", "passed", "level_passed", "level_feedback", "expert_edits"])
@pytest.mark.parametrize("main", [WRONG, PUBLIC_ONLY, ALONE.replace("1", "x"), ""])
def test_hidden_tests_stay_hidden(mode, main):
    """Neither their text, nor whether they pass: what is said is the same with other hidden tests that fail as well."""
    asked = []
    expert = {"expert": lambda messages: asked.append(messages) or "{}"} if mode == "expert_edits" else {}
    prompts = told(AUX, main, feedback=mode, **expert)
    for text in [*prompts, json.dumps(asked)]:
        assert not any(pattern in text for pattern in PATTERNS)
    others = {**NEXT, "test": "def check(candidate):\n    assert candidate(0) == 'something else'\n    assert candidate(8) == -8\n"}
    env = env_of(others, num_turns=2, feedback=mode, **expert)
    _, _, state = play(env, [AUX, main])
    assert prompts == [state.observations[agent] for agent in env.possible_agents]


def test_the_reward_does_not_depend_on_the_feedback():
    rewards = [play(env_of(num_turns=2, feedback=mode), [AUX, WRONG])[0] for mode in ("plain", "passed", "level_feedback")]
    assert rewards[0] == rewards[1] == rewards[2]


def test_bandit_has_one_turn():
    env = env_of(num_turns=5, feedback="bandit")
    assert env.num_turns == 1
    assert play(env, [AUX, ALONE])[2].terminated


# ---- experts ----


def suggesting(answer):
    return {"feedback": "expert_edits", "expert": lambda messages: answer}


def test_each_is_told_its_own_edits():
    answer = 'Well: {"aux": ["add one", " "], "main": "return y"} and {"aux": ["other"]}'
    aux, main = diagnosis(AUX, WRONG, **suggesting(answer))
    assert aux == "The expert suggests (1):\n- add one" and main == "The expert suggests (1):\n- return y"
    assert diagnosis(AUX, WRONG, **suggesting('{"main": ["a", "b"]}')) == [
        "The expert has no suggestions for you.",
        "The expert suggests (2):\n- a\n- b",
    ]


@pytest.mark.parametrize("answer", ["", "no idea", "{", "[1]", '{"other": "x"}', '{"aux": ', "{" * 3000])
def test_an_answer_that_cannot_be_read_is_told(answer):
    assert diagnosis(AUX, WRONG, **suggesting(answer)) == ["The expert's answer could not be read: no suggestions."] * 2


def test_reading_suggestions():
    assert read_suggestions('```json\n{"main": {"a": 1}, "aux": [1, "x"]}\n```', ["aux", "main"]) == {"aux": ["x"], "main": []}
    assert read_suggestions('{"why": {"main": "inner"}}', ["main"]) == {"main": ["inner"]}


def test_what_the_expert_reads():
    asked = []
    told(AUX, WRONG, feedback="expert_edits", expert=lambda messages: asked.append(messages) or "{}")
    ((system, user),) = asked
    assert (system["role"], user["role"]) == ("system", "user") and '"aux", "main"' in system["content"]
    for part in (NEXT["prompt"].strip(), AUX, WRONG, "tests: 0 of 2 public examples pass"):
        assert part in user["content"]


def test_an_expert_that_fails_stops_the_run():
    def fails(messages):
        raise ConnectionError("endpoint is gone")

    with pytest.raises(TransitionError, match="ConnectionError: endpoint is gone"):
        told(AUX, WRONG, feedback="expert_edits", expert=fails)
    with pytest.raises(TransitionError, match="must answer with a text, got NoneType"):
        told(AUX, WRONG, feedback="expert_edits", expert=lambda messages: None)


def test_a_policy_as_an_expert():
    """It reads a conversation and draws from one stream."""
    seen = []

    def script(prompt, k, key):
        seen.append((prompt, k, key))
        return '{"aux": ["shorter"]}'

    expert = PolicyExpert(ScriptedPolicy(script), seed=3)
    assert diagnosis(AUX, WRONG, feedback="expert_edits", expert=expert)[0] == "The expert suggests (1):\n- shorter"
    ((prompt, k, key),) = seen
    assert isinstance(prompt, ChatPrompt) and len(prompt.messages) == 2 and (k, key) == (0, (3,))


def test_an_env_with_an_expert_pickles():
    expert = PolicyExpert(ScriptedPolicy(['{"aux": ["shorter"]}']))
    env = pickle.loads(pickle.dumps(env_of(num_turns=2, feedback="expert_edits", expert=expert)))
    assert "- shorter" in play(env, [AUX, WRONG])[2].observations["aux_0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": "expert_edits"}, "needs an expert"),
        ({"feedback": "expert_edits", "expert": "gpt"}, "needs an expert, .* got 'gpt'"),
        ({"expert": print}, "goes with feedback='expert_edits', not with 'level_feedback'"),
        ({"feedback": "loud"}, "feedback must be one of plain, passed, .*, got 'loud'"),
        ({"helpers": -1}, "helpers must be a whole number of at least 0, got -1"),
        ({"helpers": True}, "helpers must be a whole number"),
        ({"reveal_hidden": "no"}, "reveal_hidden must be True or False, got 'no'"),
        ({"original_prompt": 1}, "original_prompt must be True or False, got 1"),
        ({"cpu_seconds": "3"}, "cpu_seconds must be a number, got '3'"),
        ({"cpu_seconds": 0}, "limit cpu_seconds must be finite and above 0, got 0"),
        ({"num_turns": 0}, "num_turns must be a whole number of at least 1, got 0"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        env_of(**options)


def test_a_program_that_remembers_its_calls_shows_no_hidden_one():
    """The examples have processes of their own: what it says there it can have from the examples alone."""
    spy = "_seen = []\ndef f(x):\n    _seen.append(x)\n    return repr(_seen) + repr(aux(x))\n"
    said = diagnosis("def aux(x):\n    return x\n", spy)[1]
    assert "    f(1) should give 2: gave '[1]1'" in said and "f(5) should give 6: gave '[1, 5]5'" in said
    assert not any(pattern in said for pattern in PATTERNS)


def test_examples_are_tried_though_hidden_checks_take_too_long():
    slow = "def f(x):\n    y = aux(x)\n    while x in (-1, 2, 99):\n        pass\n    return y if y else 0\n"
    assert "- tests: 2 of 2 public examples pass." in diagnosis(AUX, slow, cpu_seconds=0.2)[1]


def test_control_characters_are_shown_escaped():
    raising = "def f(x):\n    raise ValueError(chr(0) + chr(27) + '[31m' + chr(13) + chr(9) + 'é' + chr(0x85))\n"
    said = diagnosis(AUX, raising)[1]
    assert "    f(1) should give 2: ValueError: \\x00\\x1b[31m\\r\té\\x85\n" in said
    assert printable("a\nb\ud800") == "a\nb\\ud800"

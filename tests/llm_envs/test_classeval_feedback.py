"""Guards what programmers of a class are told between turns, mode by mode, and that hidden tests stay hidden unless revealed."""

from __future__ import annotations

import json

import pytest
from class_rows import ADD, IS_EVEN, LARGER, REST, TALLY, env_of, play

from llm_envs.transitions import TransitionError

CLOSING = "Answer with the `def` blocks of your methods only: no class header, no imports, no markdown fences."
# Right on the public examples, wrong on a hidden test.
ODD = "def is_even(self):\n    return True\n"
PUBLIC_ONLY = [ADD, LARGER + ODD]
WRONG = ["def add(self, more):\n    self.n += more\n    return more\n", f"def larger(one, two):\n    return one\n{IS_EVEN}"]
HIDDEN = ("test_", "TallyTest", "77", "30", "assert")  # of the hidden tests; nowhere else in prompts or answers here


def told(folder, texts, row=TALLY, **options):
    """What each programmer reads in the second turn."""
    env = env_of(folder, row, **{"num_turns": 2, **options})
    _, _, state = play(env, texts)
    return [state.observations[agent] for agent in env.possible_agents]


def diagnosis(folder, texts, row=TALLY, **options):
    """The same without first prompt, last answer and closing lines."""
    prompts = told(folder, texts, row, original_prompt=False, previous_response=False, **options)
    return [prompt.rpartition("Write your methods again")[0].strip() for prompt in prompts]


def test_the_first_prompt(tmp_path):
    env = env_of(tmp_path)
    first, second = env.initial(TALLY, (0,)).observations.values()
    assert first == (
        "2 programmers complete this class together. They write at the same time and do not see each other's code.\n\n"
        f"{TALLY['skeleton'].strip()}\n\n"
        f"You write `add(self, more)`. The others write `larger` and `is_even`: call these, do not write them. {CLOSING}"
    )
    assert "You write `larger(one, two)` and `is_even(self)`. The others write `add`: call" in second
    (alone,) = env_of(tmp_path, agents=1).initial(TALLY, (0,)).observations.values()
    assert alone.startswith("Complete this class:\n\nclass Tally:")
    assert alone.endswith(f"You write `add(self, more)`, `larger(one, two)` and `is_even(self)`. {CLOSING}")


def test_plain_says_nothing_of_the_answer(tmp_path):
    first, second = told(tmp_path, WRONG, feedback="plain")
    read = env_of(tmp_path).initial(TALLY, (0,)).observations
    assert first == f"{read['coder_0']}\n\nYour last answer was:\n{WRONG[0]}\n\nWrite your methods again, better: `add`. {CLOSING}"
    assert second.endswith(f"{WRONG[1]}\n\nWrite your methods again, better: `larger` and `is_even`. {CLOSING}")
    short = told(tmp_path, WRONG, feedback="plain", original_prompt=False, previous_response=False)[0]
    assert short == f"Write your methods again, better: `add`. {CLOSING}"


@pytest.mark.parametrize(
    ("texts", "public", "revealed"),
    [
        (WRONG, "Not all levels are passed.", "Not all levels are passed."),
        (PUBLIC_ONLY, "All levels are passed.", "Not all levels are passed."),
        ([ADD + IS_EVEN, REST], "Not all levels are passed.", "Not all levels are passed."),  # overlap
        ([ADD, LARGER], "Not all levels are passed.", "Not all levels are passed."),  # a method is missing
    ],
)
def test_passed(tmp_path, texts, public, revealed):
    assert diagnosis(tmp_path, texts, feedback="passed") == [public] * 2
    assert diagnosis(tmp_path, texts, feedback="passed", reveal_hidden=True) == [revealed] * 2


def test_level_by_level(tmp_path):
    def levels(**passed):
        return "\n".join(["Levels:", *(f"- {name}: {'passed' if good else 'not passed'}" for name, good in passed.items())])

    assert diagnosis(tmp_path, PUBLIC_ONLY, feedback="level_passed") == [levels(methods=True, overlap=True, tests=True)] * 2
    revealed = diagnosis(tmp_path, PUBLIC_ONLY, feedback="level_passed", reveal_hidden=True)
    assert revealed == [levels(methods=True, overlap=True, tests=False)] * 2
    assert diagnosis(tmp_path, ["", ADD], feedback="level_passed")[0] == levels(methods=False, overlap=False, tests=False)


def test_levels_in_full(tmp_path):
    first, second = diagnosis(tmp_path, WRONG)
    tests = (
        "- tests: 1 of 3 public examples pass:\n"
        "    `add`: tally.add(3) should give 5: gave 3\n"
        "    `larger`: Tally.larger(1, 4) should give 4: gave 1"
    )
    assert first == f"- methods: `add` is there.\n- methods: of the others' 2, 2 are there.\n{tests}"
    assert second == (
        f"- methods: `larger` is there.\n- methods: `is_even` is there.\n- methods: of the others' 1, 1 is there.\n{tests}"
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["", REST], ["- methods: `add` is missing.", "- methods: of the others' 2, 2 are there.", "- tests: 1 of 3 public"]),
        (
            ["def add(self, more):\n    pass", REST],
            ["- methods: `add` does nothing.", "`add`: tally.add(2) should give 2: gave None"],
        ),
        (["def add(self, more):\n    await more", ""], ["- methods: `add` cannot be used: 'await' outside async function."]),
        ([f"{ADD}x = (", ""], ["- methods: `add` is there.", "- syntax: your text does not parse as a whole: line 4, column 5: "]),
        ([ADD + REST, ""], ["- overlap: you wrote `larger` and `is_even`, which are for others to write."]),
        ([ADD + LARGER, ""], ["- overlap: you wrote `larger`, which is for others to write."]),
        (
            [f"import missing\n{ADD}", REST],
            ["- tests: the class cannot be loaded: ModuleNotFoundError: No module named 'missing'."],
        ),
        (["def add(self, more):\n    while True: pass", ""], ["`add`: tally.add(2) should give 2: timeout"]),
    ],
)
def test_what_is_wrong(tmp_path, texts, said):
    found = diagnosis(tmp_path, texts)[0]
    for line in said:
        assert line in found


@pytest.mark.parametrize("mode", ["plain", "passed", "level_passed", "level_feedback"])
def test_hidden_tests_stay_hidden(tmp_path, mode):
    for texts in (WRONG, PUBLIC_ONLY, ["", ""], [ADD, ODD]):
        assert not [word for prompt in told(tmp_path, texts, feedback=mode) for word in HIDDEN if word in prompt]


def test_revealed_tests_are_named_without_what_they_ask(tmp_path):
    first, _ = diagnosis(tmp_path, PUBLIC_ONLY, reveal_hidden=True)
    assert "- tests: 5 of 6 hidden tests pass.\n- tests: failing are TallyTestIsEven.test_odd.\n- tests: 3 of 3 public" in first
    many = "".join(
        f"    def test_{number}(self):\n        self.assertEqual(Tally().add({number}), {number})\n" for number in range(1, 9)
    )
    row = {**TALLY, "test": f"import unittest\n\nclass TallyTestMany(unittest.TestCase):\n{many}"}
    first, _ = diagnosis(tmp_path, ["def add(self, more):\n    return 0", REST], row, reveal_hidden=True)
    names = ", ".join(f"TallyTestMany.test_{number}" for number in range(1, 6))
    assert f"- tests: 0 of 8 hidden tests pass.\n- tests: failing are {names} and 3 more.\n" in first
    slow, _ = diagnosis(tmp_path, ["def add(self, more):\n    while True: pass", REST], reveal_hidden=True)
    assert "hidden tests pass. 2 take too long." in slow


def test_docstrings_that_err_are_not_told(tmp_path):
    """The row's own solution contradicts the example; without a solution nobody knows."""
    row = {**TALLY, "skeleton": TALLY["skeleton"].replace("        5\n", "        6\n")}
    assert "2 of 2 public examples pass." in diagnosis(tmp_path, PUBLIC_ONLY, row)[0]
    assert "tally.add(3) should give 6: gave 5" in diagnosis(tmp_path, PUBLIC_ONLY, {**row, "solution_code": ""})[0]


def test_a_class_without_examples(tmp_path):
    row = {**TALLY, "skeleton": TALLY["skeleton"].replace(">>> ", "")}
    none = "this class has no public examples that can be checked"
    assert diagnosis(tmp_path, PUBLIC_ONLY, row)[0].endswith(f"- tests: {none}.")
    assert diagnosis(tmp_path, PUBLIC_ONLY, row, feedback="level_passed")[0].endswith(f"- overlap: passed\n- tests: {none}")
    assert diagnosis(tmp_path, PUBLIC_ONLY, row, feedback="passed")[0] == f"All levels are passed ({none})."


def test_the_episode_ends_when_nothing_is_left_to_improve(tmp_path):
    env = env_of(tmp_path, num_turns=3)
    assert play(env, [ADD, REST])[2].terminated
    assert not play(env, [ADD + IS_EVEN, REST])[2].terminated  # solved, but with overlap
    assert env_of(tmp_path, num_turns=3, feedback="bandit").num_turns == 1


def test_experts(tmp_path):
    asked = []

    def expert(messages):
        asked.append(messages)
        return "Well: " + json.dumps({"coder_0": ["Return the sum."], "coder_1": []})

    first, second = diagnosis(tmp_path, WRONG, feedback="expert_edits", expert=expert)
    assert first == "The expert suggests (1):\n- Return the sum." and second == "The expert has no suggestions for you."
    (system, user) = asked[0]
    assert '"coder_0", "coder_1"' in system["content"] and TALLY["skeleton"].strip() in user["content"]
    assert f"coder_1 has to write `larger` and `is_even` and wrote:\n{WRONG[1]}" in user["content"]
    assert "- methods: `is_even` is there.\n- tests: 1 of 3 public" in user["content"]
    assert not [word for word in HIDDEN if word in user["content"]]
    unread = diagnosis(tmp_path, WRONG, feedback="expert_edits", expert=lambda messages: "no idea")
    assert unread == ["The expert's answer could not be read: no suggestions."] * 2
    with pytest.raises(TransitionError, match="the expert must answer with a text, got NoneType"):
        diagnosis(tmp_path, WRONG, feedback="expert_edits", expert=lambda messages: None)

"""Guards teams on questions, whoever asks and marks them: who reads what, whose text is scored, what is only logged."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from llm_envs import TaskEnv
from llm_envs.adapters.question_teams import Choice, Questions, TeamOptions, check_sizes, voted, with_words
from llm_envs.testing import audit_rewards, check_env, check_task


@dataclass(frozen=True)
class Digits:
    """Half of the score for the digit, half for a text of it alone; the digit is enough to be right."""

    def score(self, text, item):
        return 0.5 * (item["digit"] in text) + 0.5 * (text == item["digit"])

    def right(self, score):
        return score >= 0.5


def length(text, item):
    return float(len(text))


def last_letter(text):
    return text[-1:]


def best(item):
    return item["digit"]


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A digit?"}]


def env(question="A digit?", how="One digit.", **options):
    questions = Questions(
        name="digits",
        items=[{"question": question, "digit": digit} for digit in "74"],
        eval_items=[],
        marker=Digits(),
        how=how,
        answer=last_letter,
        reference=best,
        details={"length": length},
    )
    return TaskEnv(TeamOptions(**options).task(questions))


def test_a_solver_and_a_checker():
    """2 turns. "or 7" has the digit but not alone: 0.25 to both, and it is right."""
    made = env(team="check", verdict_weight=0.25)
    state = made.initial(made.items[0], (0, 0, 0), 0)
    assert made.eval_items is None
    assert state.observations["solver_0"] == "A digit?\n\nOne digit."
    (first,) = made.branch(state, [{"solver_0": "or 7", "checker_0": " odd "}])
    assert first.rewards == {"solver_0": 0.25, "checker_0": 0.25}
    assert first.infos["checker_0"]["reward/length"] == 2.0  # of 4 letters, in one turn of two
    assert first.state.observations["solver_0"] == (
        "A digit?\n\nYou answered: 7\nThe checker noted: odd\n\nAnswer again. One digit."
    )
    right, wrong = made.branch(first.state, [{"solver_0": "7", "checker_0": verdict} for verdict in ("right", "wrong")])
    assert right.rewards == {"solver_0": 0.5, "checker_0": 0.75} and wrong.rewards == {"solver_0": 0.5, "checker_0": 0.5}


def test_the_first_text_with_the_teams_answer_is_scored():
    made = env(team="vote", own_weight=1.0)
    state = made.initial(made.items[0], (0, 0, 0), 0)
    (found,) = made.branch(state, [{"solver_0": "4", "solver_1": "so 7", "solver_2": "7"}])
    assert found.rewards == {"solver_0": 0.5, "solver_1": 0.5 + 0.5, "solver_2": 0.5 + 1.0}
    assert found.infos["solver_0"]["reward/length"] == 4.0
    (silent,) = made.branch(state, [dict.fromkeys(made.possible_agents, "")])
    assert set(silent.rewards.values()) == {0.0}


def test_votes_and_choices():
    assert voted(["3", "1", "1", "3"]) == "3"
    assert Choice(last_letter)(["", "a1", "b1", "2"]) == "a1"
    assert Choice(last_letter)(["", ""]) == ""


def test_words_are_added_to_the_last_message_of_a_conversation():
    asked = with_words(CHAT, "One digit.")
    assert asked == [CHAT[0], {"role": "user", "content": "A digit?\n\nOne digit."}]
    assert CHAT[1]["content"] == "A digit?"
    assert with_words(CHAT, "") == CHAT and with_words("A digit?", "") == "A digit?"


def test_conversations_are_read_as_such_in_every_turn():
    for team, agent in (("check", "checker_0"), ("vote", "solver_1")):
        made = env(CHAT, how="", team=team, num_turns=2)
        state = made.initial(made.items[0], (0, 0, 0), 0)
        (transition,) = made.branch(state, [dict.fromkeys(made.possible_agents, "4")])
        for prompts in (state.observations, transition.state.observations):
            assert [message["role"] for message in prompts[agent].messages] == ["system", "user"]
        assert transition.state.observations["solver_0"].messages[1]["content"].startswith("A digit?\n\nYou answered: 4\n")
    assert transition.state.observations["solver_0"].messages[1]["content"].endswith("the answer given most often counts.")


@pytest.mark.parametrize("options", [{"team": "check", "num_turns": 3}, {"team": "vote", "solvers": 2, "num_turns": 2}])
def test_it_conforms(options):
    check_env(lambda: env(**options), episodes=3)
    check_task(env(CHAT, how="", **options).task)
    assert pickle.loads(pickle.dumps(env(**options))).items == env(**options).items


@pytest.mark.parametrize("team, most", [("check", (1 + 1.5) / 2), ("vote", 1.0)])
def test_the_reference_earns_the_most(team, most):
    audit = audit_rewards(env(team=team), rows=2, episodes_per_row=1)
    assert audit["reference"].mean == most
    assert max(entry.max for entry in audit.teams) == audit["reference"].max


@pytest.mark.parametrize(
    "options, message",
    [
        ({"team": "crowd"}, "team must be 'check' or 'vote', got 'crowd'"),
        ({"team": "check", "solvers": 3}, "solvers cannot apply with team='check', got 3"),
        ({"team": "check", "own_weight": 0.0}, "own_weight cannot apply with team='check', got 0.0"),
        ({"team": "vote", "verdict_weight": 1.0}, "verdict_weight cannot apply with team='vote', got 1.0"),
        ({"team": "check", "num_turns": 1}, "num_turns must be at least 2 with team='check': .*got 1"),
        ({"team": "vote", "solvers": 1}, "solvers must be at least 2 with team='vote', got 1"),
        ({"team": "vote", "num_turns": 0}, "num_turns must be a whole number of at least 1, got 0"),
    ],
)
def test_options_that_cannot_apply_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        env(**options)


def test_sizes():
    check_sizes(1, 0)
    for sizes, message in (((0, 1), "size must be .* at least 1, got 0"), ((1, -1), "eval_size .*-1"), ((True, 0), "size .*True")):
        with pytest.raises(ValueError, match=message):
            check_sizes(*sizes)

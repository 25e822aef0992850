"""Guards reasoning-gym's data sets as team tasks: the package's own scores, prompts that pass texts on, terms, refusals."""

from __future__ import annotations

import pickle
import sys

import pytest

import llm_envs
from llm_envs import RolloutSpec, collect
from llm_envs.adapters import reasoning_gym as adapter
from llm_envs.testing import ScriptedPolicy, audit_rewards, check_env, check_task


def test_an_answer_is_the_last_in_tags_or_the_whole_text():
    assert adapter.answer_of("<answer>1</answer> no: <answer> 2\n</answer> done") == "2"
    assert adapter.answer_of("  12 \n") == "12"
    assert adapter.answer_of("<answer></answer>") == ""


def test_a_verdict_is_the_first_of_two_words():
    assert [adapter.verdict_of(text) for text in ("Wrong. It is not right", "all RIGHT", "bright", "")] == [
        "wrong",
        "right",
        None,
        None,
    ]


def test_votes():
    assert adapter.voted(["1", "2", "2"]) == "2"
    assert adapter.voted(["3", "1", "2"]) == "3"  # a tie: the first agent's
    assert adapter.voted(["", "", "7"]) == "7"  # no answer is no vote
    assert adapter.voted(["", ""]) == ""


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    for module in ("reasoning_gym", "reasoning_gym.factory"):  # another test may have loaded it
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'llm-envs\[reasoning-gym\]'"):
        llm_envs.make("reasoning-gym:leg_counting")


# ---- with the package ----


@pytest.fixture
def gym():
    return pytest.importorskip("reasoning_gym")


def made(dataset="leg_counting", **options):
    return llm_envs.make(f"reasoning-gym:{dataset}", **{"size": 4, "eval_size": 2, **options})


def test_rows_are_the_packages_own(gym):
    env = made(seed=5, config={"max_animals": 3})
    dataset = gym.create_dataset("leg_counting", seed=5, size=6, max_animals=3)
    assert env.items == [dataset[index] for index in range(4)]
    assert env.eval_items == [dataset[index] for index in (4, 5)]
    assert made(eval_size=0).eval_items is None


def test_a_solver_and_a_checker(gym):
    """Turn 1: the answer is right, worth 1/2 to both. Turn 2: saying so is worth 1/2 to the checker; the answer is wrong now."""
    env = made()
    item = env.items[0]
    state = env.initial(item, (0, 0, 0), 0)
    question = item["question"]
    assert state.observations["solver_0"] == f"{question}\n\nPut your answer between <answer> and </answer>."
    assert state.observations["checker_0"] == f"{question}\n\n{adapter.NOTES}"
    (first,) = env.branch(state, [{"solver_0": f"legs: <answer>{item['answer']}</answer>", "checker_0": "count slowly"}])
    assert first.rewards == {"solver_0": 0.5, "checker_0": 0.5}
    assert f"You answered: {item['answer']}\nThe checker noted: count slowly" in first.state.observations["solver_0"]
    assert f"The solver answered: {item['answer']}\n\n{adapter.JUDGE}" in first.state.observations["checker_0"]
    right, wrong = env.branch(
        first.state,
        [{"solver_0": "no idea", "checker_0": "That is right."}, {"solver_0": "no idea", "checker_0": "wrong, I think"}],
    )
    assert right.state.terminated
    assert right.rewards == {"solver_0": 0.0, "checker_0": 0.5}
    assert right.infos["checker_0"]["reward/verdict"] == 1.0
    assert wrong.rewards == {"solver_0": 0.0, "checker_0": 0.0}


def test_scores_are_the_packages_own(gym):
    dataset = gym.create_dataset("leg_counting", seed=0, size=6)
    env = made(tags=False)
    for item in env.items:
        for text in (item["answer"], f"it is {item['answer']}", "0", "", "naïve ☃"):
            (transition,) = env.branch(env.initial(item, (0, 0, 0)), [{"solver_0": text, "checker_0": ""}])
            assert transition.rewards["solver_0"] == dataset.score_answer(text.strip(), item) / 2


def test_voters(gym):
    env = made(team="vote", solvers=3, own_weight=0.25, num_turns=2)
    item = env.items[1]
    good, bad = item["answer"], "-1"
    state = env.initial(item, (0, 0, 0), 1)
    assert "You are one of 3 who answer" in state.observations["solver_2"]
    (won, lost) = env.branch(
        state,
        [{"solver_0": bad, "solver_1": good, "solver_2": good}, {"solver_0": bad, "solver_1": good, "solver_2": ""}],
    )
    assert won.rewards == {"solver_0": 0.5, "solver_1": 0.625, "solver_2": 0.625}
    assert lost.rewards == {"solver_0": 0.0, "solver_1": 0.125, "solver_2": 0.0}
    assert f"You answered: nothing\nThe others answered: -1; {good}" in lost.state.observations["solver_2"]
    assert made(team="vote").possible_agents == ["solver_0", "solver_1", "solver_2"] and made(team="vote").num_turns == 1


def test_an_answer_that_the_scorer_cannot_parse_scores_nothing(gym):
    """prime_factorization calls int() on it; the row's own answer still scores."""
    dataset = gym.create_dataset("prime_factorization", seed=0, size=6)
    env = made("prime_factorization", tags=False)
    item = env.items[0]
    with pytest.raises(ValueError):
        dataset.score_answer("yes", item)
    bad, good = env.branch(
        env.initial(item, (0, 0, 0)), [{"solver_0": "yes", "checker_0": ""}, {"solver_0": item["answer"], "checker_0": ""}]
    )
    assert (bad.rewards["solver_0"], good.rewards["solver_0"]) == (0.0, 0.5)
    with pytest.raises(llm_envs.RewardError):  # a row that no answer can score on is no answer's fault
        env.branch(env.initial({**item, "answer": "x"}, (0, 0, 0)), [{"solver_0": "yes", "checker_0": ""}])


@pytest.mark.parametrize("options", [{}, {"team": "vote", "solvers": 2, "num_turns": 2}])
def test_it_conforms(gym, options):
    check_env(lambda: made(**options), episodes=3)
    check_task(made(**options).task)


@pytest.mark.parametrize("dataset", ["arc_1d", "string_manipulation"])
def test_data_sets_that_cannot_be_pickled_can(gym, dataset):
    env = made(dataset)
    copy = pickle.loads(pickle.dumps(env))
    state = env.initial(env.items[0], (0, 0, 0), 0)
    action = {"solver_0": env.items[0]["answer"], "checker_0": ""}
    assert copy.branch(state, [action]) == env.branch(state, [action])


def test_the_reference_earns_the_most(gym):
    audit = audit_rewards(made(), rows=4, episodes_per_row=1)
    assert audit["reference"].mean == pytest.approx((1 + 1.5) / 2)
    assert max(entry.max for entry in audit.teams) == audit["reference"].max
    assert made("rubiks_cube").task.reference is None  # only a scorer


def test_learners_read_rewards_of_their_own(gym):
    env = made()
    policies = {"solver_0": ScriptedPolicy(["1"]), "checker_0": ScriptedPolicy(["right", "wrong"])}
    steps = collect(env, policies, env.items[:1], RolloutSpec(num_generations=2))
    last = [step for step in steps if step.turn == 2]
    assert {step.rewards["checker_0"] - step.rewards["solver_0"] for step in last} == {0.0, 0.5}


@pytest.mark.parametrize(
    "dataset, options, message",
    [
        ("leg_countin", {}, r"no data set 'leg_countin' \(did you mean leg_counting"),
        ("countdown", {}, "runs parts of an answer as Python code"),
        ("leg_counting", {"team": "crowd"}, "team must be 'check' or 'vote', got 'crowd'"),
        ("leg_counting", {"solvers": 3}, "solvers cannot apply with team='check', got 3"),
        ("leg_counting", {"team": "vote", "verdict_weight": 1.0}, "verdict_weight cannot apply with team='vote'"),
        ("leg_counting", {"num_turns": 1}, "num_turns must be at least 2 with team='check'"),
        ("leg_counting", {"team": "vote", "solvers": 1}, "solvers must be at least 2"),
        ("leg_counting", {"size": 0}, "size must be a whole number of at least 1, got 0"),
        ("leg_counting", {"config": {"legs": 3}}, "unexpected keyword argument 'legs'"),
        ("leg_counting", {"config": {"min_animals": 0}}, "reasoning-gym:leg_counting with"),
    ],
)
def test_what_cannot_be_is_refused(gym, dataset, options, message):
    with pytest.raises(ValueError, match=message):
        made(dataset, **options)


def test_code_is_run_when_it_is_allowed(gym):
    env = made("countdown", allow_code=True, tags=False)
    (transition,) = env.branch(
        env.initial(env.items[0], (0, 0, 0)), [{"solver_0": env.items[0]["metadata"]["expression"], "checker_0": ""}]
    )
    assert transition.rewards["solver_0"] == 0.5


def test_every_scorer_that_runs_code_is_listed(gym):
    """Read off the package's own source, so that a new version with another one fails here."""
    import inspect
    import re

    from reasoning_gym.factory import DATASETS

    found = set()
    for name, (kind, _) in DATASETS.items():
        scorer = inspect.getsource(kind.score_answer)
        if re.search(r"\beval\(answer\)|parse_expr\(answer\b", scorer):
            found.add(name)
    assert found | {"composite"} == adapter.EVALUATING

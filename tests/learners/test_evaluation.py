"""Guards pass@k, estimates over items and the counting of tokens."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.commands.episodes import episode_estimate, pass_rates, return_of
from learners.evaluation import evaluation_episodes, pass_at_k, solved_by_item
from learners.metering import metered, total_usage
from llm_envs import Task, TaskEnv, terms
from llm_envs.testing import ScriptedPolicy

ROWS = [{"prompt": "a", "answer": "x"}, {"prompt": "b", "answer": "y"}]


def right(first, second, batch_items):
    found = [batch_items[0]["answer"] in (one, two) for one, two in zip(first, second, strict=True)]
    return [{"length": len(one), "solved": ok} for one, ok in zip(first, found, strict=True)]


def env(**options):
    return TaskEnv(Task(items=ROWS, eval_items=ROWS, reward=terms(right, length=1, solved=0), **options))


@given(n=st.integers(1, 7), data=st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations(range(n), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(min(subset) < c for subset in subsets) / len(subsets))


def test_pass_at_k_by_hand():
    """10 samples, 3 right: pass@1 = 3/10, pass@5 = 1 − C(7,5)/C(10,5) = 1 − 21/252."""
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(10, 3, 5) == pytest.approx(1 - 21 / 252)
    for n, c, k in ((3, 4, 1), (3, 1, 4), (3, 1, 0), (3, -1, 1)):
        with pytest.raises(ValueError, match=r"pass@k needs"):
            pass_at_k(n, c, k)


def evaluated(script, repeats, **options):
    policies = metered({"agent_0": ScriptedPolicy(script), "agent_1": ScriptedPolicy(["-"])})
    _, steps = evaluation_episodes(env(**options), policies, ROWS, num_samples=2, batch_size=1, seed=5, repeats=repeats)
    return policies, steps


def test_episodes_on_one_item_count_once():
    """Seeds 5 to 8: the text is as long as the seed. On "a" seed 6 is right, on "b" none."""
    _, steps = evaluated(lambda prompt, k, key: "x" if prompt == "a" and key[0] == 6 else "z" * key[0], 4)
    assert [step.episode for step in steps] == list(range(8))
    assert solved_by_item(steps) == {0: [False, True, False, False], 1: [False] * 4}
    assert pass_rates(steps) == {1: pytest.approx(1 / 8), 3: pytest.approx(3 / 8)}
    assert pass_rates(steps, [4]) == {4: 0.5}
    with pytest.raises(ValueError, match="k=5"):
        pass_rates(steps, [5])
    means = [(5 + 1 + 7 + 8) / 4, (5 + 6 + 7 + 8) / 4]
    estimate = episode_estimate(steps, return_of)
    assert estimate.mean == pytest.approx(sum(means) / 2)
    assert estimate.standard_error == pytest.approx(math.sqrt((means[0] - means[1]) ** 2 / 2 / 2))


def test_a_task_that_does_not_say():
    plain = TaskEnv(Task(items=ROWS, reward=lambda a, b: [1.0] * len(a)))
    _, steps = evaluation_episodes(
        plain, dict.fromkeys(plain.possible_agents, ScriptedPolicy(["x"])), ROWS, num_samples=2, batch_size=2, seed=0
    )
    assert solved_by_item(steps) is None
    assert pass_rates(steps) == {}


def test_what_writing_costs():
    """Two items, two repeats: bytes and an end token for each text; a policy that agents share counts once."""
    policies, _ = evaluated(["zz"], 2)
    usage = total_usage(policies)
    assert (usage.calls, usage.completions, usage.prompt_tokens, usage.completion_tokens) == (8, 8, 8, 4 * 3 + 4 * 2)
    one = ScriptedPolicy(["zz"])
    shared = metered({"agent_0": one, "agent_1": one})
    assert shared["agent_0"] is shared["agent_1"]
    evaluation_episodes(env(), shared, ROWS, num_samples=2, batch_size=2, seed=0)
    assert (total_usage(shared).calls, total_usage(shared).completions) == (1, 4)

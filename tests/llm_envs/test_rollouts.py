"""Guards the collector: which joint actions it plays, in what order, with which numbers, and that nothing else changes a result."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from llm_envs import EVALUATION, TRAINING, Completion, EnvStep, Numbering, RolloutSpec, Task, TaskEnv, collect, joint_choices
from llm_envs.rollouts import map_in_order
from llm_envs.seeding import SAMPLING, stream
from llm_envs.testing import ScriptedPolicy
from llm_envs.wrappers import JointAgent, TurnLimit

ROWS = [{"prompt": f"row {i}"} for i in range(4)]
AGENTS = ("left_0", "right_0")


class CountingPolicy(ScriptedPolicy):
    """Notes every call: how many prompts, how many samples, which keys."""

    def __init__(self, script):
        super().__init__(script)
        self.calls = []

    def generate(self, prompts, n, keys):
        self.calls.append((list(prompts), n, list(keys)))
        return super().generate(prompts, n, keys)


def drawn(prompt, k, key):
    """A text that depends on all it may depend on and on nothing else."""
    return f"{stream(SAMPLING, (*key, k)).integers(10**6)} for {prompt[:12]}"


def length_of_both(left, right):
    return [len(a) + len(b) / 100 for a, b in zip(left, right, strict=True)]


def go_on(agent_completions, state):
    return [f"{state.rng().integers(1000)} {text[:8]}" for text in agent_completions]


def env(num_turns=2, **options):
    plain = {"items": ROWS, "agents": AGENTS, "reward": length_of_both, "transition": go_on, "num_turns": num_turns}
    return TaskEnv(Task(**{**plain, **options}))


def team(script=drawn):
    return {agent: ScriptedPolicy(script) for agent in AGENTS}


def texts(step: EnvStep):
    return tuple(completion.text for completion in step.completions.values())


# ---- joint actions ----


def test_aligned_joins_equal_indices():
    steps = collect(env(1), team(["x0", "x1", "x2"]), ROWS[:1], RolloutSpec(3))
    assert [texts(step) for step in steps] == [("x0", "x0"), ("x1", "x1"), ("x2", "x2")]
    assert [dict(step.choice) for step in steps] == [dict.fromkeys(AGENTS, k) for k in range(3)]


def test_cross_forms_every_combination_agent_0_slowest():
    for mode in ("cross", "crossed"):
        steps = collect(env(1), team(["x0", "x1"]), ROWS[:1], RolloutSpec(2, joint_mode=mode))
        assert [texts(step) for step in steps] == [("x0", "x0"), ("x0", "x1"), ("x1", "x0"), ("x1", "x1")]
        assert [tuple(step.choice.values()) for step in steps] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    # The agents' samples are shared: the very same completion in every joint action that uses it.
    assert steps[0].completions["left_0"] is steps[1].completions["left_0"]


def test_numbers_of_joint_actions_and_states():
    """J = K = 2 aligned, K^n = 4 crossed; states 1 + J + J² of three turns."""
    aligned, cross = RolloutSpec(2), RolloutSpec(2, joint_mode="crossed")
    assert cross == RolloutSpec(2, joint_mode="cross")
    assert (aligned.num_joint_actions(2), cross.num_joint_actions(2)) == (2, 4)
    assert (aligned.max_states(2, 3), cross.max_states(2, 3)) == (7, 21)
    for spec in (aligned, cross):
        steps = collect(env(3), team(), ROWS[:1], spec)
        assert len({step.state_id for step in steps}) == spec.max_states(2, 3)
        assert len(steps) == spec.max_states(2, 3) * spec.num_joint_actions(2)
        assert len(joint_choices(AGENTS, spec)) == spec.num_joint_actions(2)


def test_chains_behind_a_wide_first_turn():
    """Three chains of three turns: states 1 + 3 + 3, steps 3 a turn, each going on from its own first action."""
    spec = RolloutSpec(3, later_generations=1)
    assert spec.max_states(2, 3) == 7
    steps = collect(env(3), team(), ROWS[:1], spec)
    by_turn = [[step for step in steps if step.turn == turn] for turn in (1, 2, 3)]
    assert [len(turn) for turn in by_turn] == [3, 3, 3]
    assert [step.choice["left_0"] for step in by_turn[0]] == [0, 1, 2]
    for earlier, later in itertools.pairwise(by_turn):
        assert [step.next_state_id for step in earlier] == [step.state_id for step in later]
        assert [step.choice["left_0"] for step in later] == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"later_generations": 0}, "later_generations must be a whole number of at least 1, got 0"),
        ({"num_generations": 0}, "num_generations must be a whole number of at least 1, got 0"),
        ({"num_generations": 2.0}, "num_generations must be a whole number of at least 1, got 2.0"),
        ({"num_generations": True}, "num_generations must be"),
        ({"joint_mode": "align"}, "joint_mode must be 'aligned' or 'cross', got 'align'"),
        ({"early_termination_threshold": float("nan")}, "early_termination_threshold must be None or finite, got nan"),
        ({"early_termination_threshold": "0.5"}, "early_termination_threshold must be None or finite, got '0.5'"),
    ],
)
def test_a_wrong_spec_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RolloutSpec(**options)


# ---- order, numbers, links ----


@pytest.mark.parametrize("mode", ["aligned", "cross"])
def test_together_is_as_one_by_one(mode):
    """Text, rewards, numbers and links of a joint collection are those of collecting the items one after the other."""
    spec = RolloutSpec(2, joint_mode=mode)
    together = collect(env(3), team(), ROWS, spec, seed=7)
    numbering, alone = Numbering(), []
    for index, row in enumerate(ROWS):
        alone += collect(env(3), team(), [row], spec, seed=7, numbering=numbering, item_indices=[index])
    assert together == alone
    assert (numbering.episode, numbering.env_step) == (4, len(together))
    assert numbering.state_id == 4 * spec.max_states(2, 3)


def test_numbers_and_links():
    """Two items, K = 2, two turns, worked by hand: states 0 (root), 1, 2 of episode 0, then 3, 4, 5 of episode 1."""
    numbering = Numbering(env_step=100, episode=7, state_id=30)
    steps = collect(env(2), team(), ROWS[:2], RolloutSpec(2), numbering=numbering)
    assert [step.env_step for step in steps] == list(range(101, 113))
    assert [step.episode for step in steps] == [7] * 6 + [8] * 6
    assert [step.turn for step in steps] == [1, 1, 2, 2, 2, 2] * 2
    assert [step.state_id for step in steps] == [30, 30, 31, 31, 32, 32, 33, 33, 34, 34, 35, 35]
    assert [step.next_state_id for step in steps] == [31, 32, None, None, None, None, 34, 35, None, None, None, None]
    assert numbering == Numbering(env_step=112, episode=9, state_id=36)


def test_records_hold_what_happened():
    where = env(2, reward=lambda left, right: [[1, 2]] * len(left), reward_processor=lambda reward: reward / 2)
    steps = collect(where, team(), ROWS[:1], RolloutSpec(2), item_indices=[3])
    by_state = {step.state_id: step for step in steps}
    for step in steps:
        assert (step.terminated, step.truncated) == (step.turn == 2, False)
        assert dict(step.rewards) == {"left_0": 0.5, "right_0": 1.0}
        assert step.infos["right_0"] == {"turn": step.turn, "item_index": 3, "raw_reward": 2.0}
        if step.turn == 1:
            assert step.prompts == dict.fromkeys(AGENTS, "row 0")
            assert step.next_prompts == by_state[step.next_state_id].prompts
            assert step.global_state == "[left_0 reads]\nrow 0\n\n[right_0 reads]\nrow 0"
        else:
            assert step.next_prompts is None
            assert "[turn 1, left_0 writes]" in step.global_state


def test_a_truncation_leaves_the_next_prompts():
    steps = collect(TurnLimit(env(5), 2), team(), ROWS[:1], RolloutSpec(1))
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, True)]
    assert steps[1].next_state_id is None
    assert steps[1].next_prompts is not None
    assert steps[1].next_prompts != steps[1].prompts


def test_a_truncation_leaves_the_next_global_state():
    """What an uncut episode's third turn starts from. Where the episode goes on or is over, there is none."""
    uncut = collect(env(5), team(), ROWS[:1], RolloutSpec(1))
    steps = collect(TurnLimit(env(5), 2), team(), ROWS[:1], RolloutSpec(1))
    assert [step.next_global_state for step in steps] == [None, uncut[2].global_state]
    assert all(step.next_global_state is None for step in uncut)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def test_discounted_returns_follow_the_links():
    """BC-09, γ = .9: leaves 1, 3 under the child with reward 2 and 5, 7 under the one with 4; root reward 1.

    2 + .9·(1 + 3)/2 = 3.8; 4 + .9·(5 + 7)/2 = 9.4; 1 + .9·(3.8 + 9.4)/2 = 6.94. In the order of storage it would be 15.409837.
    """

    def by_path(left, right, states):
        deepest = {(): [1, 0], ("a",): [2, 4], ("a", "a"): [1, 3], ("a", "b"): [5, 7]}
        path = tuple(turn.actions["left_0"] for turn in states[0].history)
        return deepest.get(path, [0, 0])

    def returns(steps):
        by_state: dict[int, list[EnvStep]] = {}
        for step in steps:
            by_state.setdefault(step.state_id, []).append(step)

        def value(step):
            below = by_state.get(step.next_state_id, []) if step.next_state_id is not None else []
            return step.rewards["left_0"] + (0.9 * mean([value(child) for child in below]) if below else 0.0)

        return {tuple(key): value(step) for step in steps for key in [(step.turn, step.env_step)]}

    steps = collect(env(3, reward=by_path), team(["a", "b"]), ROWS[:1], RolloutSpec(2))
    found = list(returns(steps).values())
    assert found[0] == pytest.approx(6.94)
    assert found[2:4] == pytest.approx([3.8, 9.4])
    assert found[6:10] == [1, 3, 5, 7]
    chain = collect(env(3, reward=lambda left, right, states: [float(states[0].turn == 2)]), team(["a"]), ROWS[:1], RolloutSpec(1))
    assert list(returns(chain).values()) == pytest.approx([0.81, 0.9, 1])


# ---- early ends ----


def test_a_state_whose_mean_reward_exceeds_the_threshold_is_not_expanded():
    """Rewards 1 and 3 (mean 2, over joint actions and agents): stopped below 2, not at 2, as the mean must be strictly greater."""
    where = env(3, reward=lambda left, right: [[0, 2], [2, 4]])
    for threshold, turns in ((None, 3), (2.0, 3), (1.99, 1), (-0.2, 1)):
        steps = collect(where, team(["a", "b"]), ROWS[:1], RolloutSpec(2, early_termination_threshold=threshold))
        assert max(step.turn for step in steps) == turns
        if turns == 1:
            assert [(step.terminated, step.truncated, step.next_state_id) for step in steps] == [(False, False, None)] * 2
            assert all(step.next_prompts is not None for step in steps)


def test_the_threshold_is_of_each_state():
    def after_a(left, right, states):
        return [float(any(turn.actions["left_0"] == "a" for turn in states[0].history))] * 2

    where = env(3, reward=after_a)
    steps = collect(where, team(["a", "b"]), ROWS[:1], RolloutSpec(2, early_termination_threshold=0.5))
    below = {step.state_id: step.next_state_id for step in steps if step.turn == 2}
    assert [step.turn for step in steps] == [1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert [value is None for value in below.values()] == [True, False], "the sibling goes on"


def test_branches_that_end_are_not_expanded():
    where = env(3, transition=lambda agent_completions: None if agent_completions[0] == "stop" else ["on", "on"])
    steps = collect(where, team(["stop", "go"]), ROWS[:1], RolloutSpec(2))
    assert [(step.turn, step.terminated) for step in steps] == [(t, s or t == 3) for t in (1, 2, 3) for s in (True, False)]
    assert [step.next_state_id is None for step in steps] == [True, False, True, False, True, True]


# ---- calls of policies ----


def test_one_call_for_each_distinct_policy_and_turn():
    one, two = CountingPolicy(drawn), CountingPolicy(drawn)
    collect(env(3), {"left_0": one, "right_0": two}, ROWS, RolloutSpec(2))
    for policy in (one, two):
        assert [(len(prompts), n) for prompts, n, _ in policy.calls] == [(4, 2), (8, 2), (16, 2)]


def test_agents_that_share_a_policy_share_its_call():
    shared = CountingPolicy(drawn)
    steps = collect(env(2), dict.fromkeys(AGENTS, shared), ROWS, RolloutSpec(2))
    assert [(len(prompts), n) for prompts, n, _ in shared.calls] == [(8, 2), (16, 2)]
    keys = [key for _, _, keys in shared.calls for key in keys]
    assert len(set(keys)) == len(keys), "every state and agent draws on its own"
    assert keys[0] == (0, TRAINING, 0, 0)
    assert keys[4] == (0, TRAINING, 0, 1)
    # Sharing the object is sharing weights, nothing else: equal policies of their own write the same.
    assert steps == collect(env(2), team(), ROWS, RolloutSpec(2))


def test_keys_start_from_seed_purpose_and_number():
    def keys(**options):
        policy = CountingPolicy(drawn)
        collect(env(1), dict.fromkeys(AGENTS, policy), ROWS[:2], RolloutSpec(1), **options)
        return [key[:-1] for key in policy.calls[0][2][:2]]

    assert keys() == [(0, TRAINING, 0), (0, TRAINING, 1)]
    assert keys(seed=5, numbering=Numbering(episode=9)) == [(5, TRAINING, 9), (5, TRAINING, 10)]
    # Evaluation: the item's position, whatever was collected before, so that every evaluation has its random numbers in common.
    for numbering in (None, Numbering(episode=9)):
        assert keys(purpose=EVALUATION, item_indices=[6, 2], numbering=numbering) == [(0, EVALUATION, 6), (0, EVALUATION, 2)]


def test_training_and_evaluation_draw_on_their_own():
    spec = RolloutSpec(2)
    training = collect(env(), team(), ROWS, spec)
    evaluation = collect(env(), team(), ROWS, spec, purpose=EVALUATION)
    assert not {texts(step) for step in training} & {texts(step) for step in evaluation}
    halves = [collect(env(), team(), ROWS[i : i + 2], spec, purpose=EVALUATION, item_indices=[i, i + 1]) for i in (0, 2)]
    assert [texts(step) for half in halves for step in half] == [texts(step) for step in evaluation]


def test_an_item_draws_the_same_in_any_company():
    alone = collect(env(), team(), ROWS[2:3], RolloutSpec(2), item_indices=[2], numbering=Numbering(episode=2))
    together = [step for step in collect(env(), team(), ROWS, RolloutSpec(2)) if step.episode == 2]
    for one, other in zip(alone, together, strict=True):
        assert (texts(one), one.prompts, one.rewards) == (texts(other), other.prompts, other.rewards)
    assert {texts(step) for step in collect(env(), team(), ROWS, RolloutSpec(2), seed=1)}.isdisjoint(map(texts, together))


def test_the_reward_is_asked_once_for_each_state():
    counts = []

    def reward(left, right):
        counts.append((len(left), len(right)))
        return [0.0] * len(left)

    collect(env(2, reward=reward), team(), ROWS[:1], RolloutSpec(2, joint_mode="cross"))
    assert counts == [(4, 4)] * 5


# ---- executors, errors, side effects ----


def test_executors_change_nothing():
    spec = RolloutSpec(2, joint_mode="cross")
    plain = collect(env(2), team(), ROWS, spec)
    with ThreadPoolExecutor(3) as threads:
        assert collect(env(2), team(), ROWS, spec, executor=threads, policy_executor=threads) == plain
    with ProcessPoolExecutor(2) as processes:
        assert collect(env(2), team(), ROWS, spec, executor=processes) == plain


def test_all_running_calls_finish_before_an_error_leaves():
    finished = []

    def fails_first(value):
        if value == 0:
            raise LookupError("first")
        time.sleep(0.01)
        finished.append(value)
        if value == 1:
            raise ZeroDivisionError("second")
        return value

    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(LookupError, match="first"):
            map_in_order(fails_first, range(6), threads)
        assert sorted(finished) == [1, 2, 3, 4, 5], "before the executor is closed, which would wait as well"


def test_an_error_leaves_the_numbers_as_they_were():
    numbering = Numbering(3, 2, 1)
    with pytest.raises(Exception, match="item 0, turn 1"):
        collect(env(1, reward=lambda left, right: None), team(), ROWS, RolloutSpec(1), numbering=numbering)
    assert numbering == Numbering(3, 2, 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policies": {"left_0": ScriptedPolicy(["x"])}}, "policies must be given for left_0, right_0, got left_0"),
        ({"policies": {}}, "policies must be given for left_0, right_0, got none"),
        ({"policies": {**team(), "third_0": ScriptedPolicy(["x"])}}, "got left_0, right_0, third_0"),
        ({"item_indices": [0]}, r"item_indices must be a position for each of 4 items, got \[0\]"),
        ({"item_indices": [0, 1, -1, 2], "purpose": EVALUATION}, "item_indices must be a position for each of 4 items"),
        ({"seed": -1}, "seed must not be negative"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"purpose": 2}, "purpose TRAINING or EVALUATION, got seed=0, purpose=2"),
        ({"policies": None}, "policies must be given for left_0, right_0, got None"),
    ],
)
def test_wrong_arguments_are_refused(changed, message):
    options = {"policies": team(), "items": ROWS, "spec": RolloutSpec(1), **changed}
    with pytest.raises((ValueError, TypeError), match=message):
        collect(env(1), **options)


@pytest.mark.parametrize(
    "returned",
    [None, 3, "text", [Completion("a")] * 4, [["a", "b"]] * 4, [[Completion("a"), None]] * 4],
)
def test_a_policy_that_returns_no_completions_is_an_error(returned):
    class Other(ScriptedPolicy):
        def generate(self, prompts, n, keys):
            return returned

    policies = {"left_0": ScriptedPolicy(["x"]), "right_0": Other(["x"])}
    with pytest.raises((TypeError, ValueError), match=r"the policy of right_0 must return a list of \[Completion, …\] lists, got"):
        collect(env(1), policies, ROWS, RolloutSpec(2))


def test_a_policy_that_returns_other_numbers_is_an_error():
    class Short(ScriptedPolicy):
        def generate(self, prompts, n, keys):
            return super().generate(prompts, n, keys)[1:]

    class Few(ScriptedPolicy):
        def generate(self, prompts, n, keys):
            return [group[1:] for group in super().generate(prompts, n, keys)]

    for policy in (Short(["x"]), Few(["x"])):
        with pytest.raises(ValueError, match="the policy of right_0 must return 2 completions for each of 4 prompts, got"):
            collect(env(1), {"left_0": ScriptedPolicy(["x"]), "right_0": policy}, ROWS, RolloutSpec(2))


def test_the_env_and_the_rows_are_left_alone():
    where, rows = env(2), copy.deepcopy(ROWS)
    where.reset(seed=0)
    where.step(dict.fromkeys(AGENTS, "x"))
    before = where.snapshot()
    collect(where, team(), rows, RolloutSpec(2))
    assert where.snapshot() is before
    assert rows == ROWS
    assert where.step(dict.fromkeys(AGENTS, "x"))[-1]["left_0"]["env_step"] == 2


def test_no_items_give_no_steps():
    assert collect(env(1), team(), [], RolloutSpec(2)) == []


def test_wrapped_envs_are_collected_like_others():
    writer = ScriptedPolicy(["<left_0>a</left_0><right_0>bb</right_0>", "nothing"])
    steps = collect(JointAgent(env(2)), {"team_0": writer}, ROWS[:1], RolloutSpec(2))
    assert [step.rewards["team_0"] for step in steps] == [1.02, 0.0] * 3
    assert [step.infos["team_0"]["parse_failed"] for step in steps] == [0, 1] * 3
    assert isinstance(steps[0].completions, Mapping)
    assert "[turn 1, right_0 writes]\nbb" in steps[2].global_state

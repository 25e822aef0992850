"""Guards the shipped checks: each rule is broken once on purpose and must be the one that fails; audits and scripts by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import secrets
import threading

import numpy as np
import pytest
from gymnasium.spaces import Dict
from pettingzoo import ParallelEnv

import llm_envs
from llm_envs.env import TaskEnv
from llm_envs.rollouts import collect
from llm_envs.seeding import ROUND
from llm_envs.spaces import UnicodeText
from llm_envs.task import Task
from llm_envs.testing import (
    END_TOKEN,
    RULES,
    ConformanceError,
    ScriptedPolicy,
    audit_rewards,
    check_env,
    check_task,
)
from llm_envs.testing.compare import difference
from llm_envs.testing.episodes import turn_of
from llm_envs.types import ChatPrompt, Completion, RolloutSpec

# ---- an environment that keeps every rule: two turns, four rows, chance in the prompts, rewards by length ----


def lengths(one, two):
    return [float(len(a) + 2 * len(b)) for a, b in zip(one, two, strict=True)]


def dice(state):
    return [f"throw {state.rng().integers(10**6)}"] * 2


def rows():
    return [{"prompt": f"row {number}", "n": [0]} for number in range(4)]


def task(**changes):
    return Task(**{"reward": lengths, "items": rows(), "transition": dice, "num_turns": 2, "name": "sound", **changes})


class Sound(TaskEnv, ParallelEnv):
    def __init__(self, **changes):
        super().__init__(task(**changes))


def test_an_env_that_keeps_the_rules_passes_all():
    assert check_env(Sound) == tuple(rule.statement for rule in RULES)
    assert check_env(Sound(num_turns=1), episodes=1) == tuple(rule.statement for rule in RULES)


# ---- one broken environment for each rule ----


class NoDirectBase(Sound):
    pass


class NamesAsTuple(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        self.possible_agents = tuple(self.possible_agents)


class NoMetadata(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        self.metadata = {}


class HasSeed(Sound, ParallelEnv):
    def seed(self, seed=None):
        pass


class NewSpaces(Sound, ParallelEnv):
    def action_space(self, agent):
        return UnicodeText()


class UnequalSpaces(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        self.action_spaces["agent_1"] = UnicodeText(9)


class OneListOfAgents(Sound, ParallelEnv):
    def reset(self, seed=None, options=None):
        returned = super().reset(seed, options)
        self.agents = self.possible_agents
        return returned


class OtherOrder(Sound, ParallelEnv):
    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return dict(reversed(observations.items())), infos


class Stepping(Sound, ParallelEnv):
    """For those that go wrong in `step`."""

    def step(self, actions):
        return self.wrong(*super().step(actions))


class AgentsLeft(Stepping, ParallelEnv):
    def wrong(self, *returned):
        if not self.agents:
            self.agents = self.possible_agents[:1]
        return returned


class NumpyFlags(Stepping, ParallelEnv):
    def wrong(self, observations, rewards, terminations, truncations, infos):
        return observations, rewards, {a: np.bool_(t) for a, t in terminations.items()}, truncations, infos


class MixedEnds(Stepping, ParallelEnv):
    def wrong(self, observations, rewards, terminations, truncations, infos):
        if terminations["agent_0"]:
            terminations["agent_1"], truncations["agent_1"] = False, True
        return observations, rewards, terminations, truncations, infos


class Endless(Sound, ParallelEnv):
    def branch(self, state, joint_actions):
        going_on = [dataclasses.replace(t.state, terminated=False) for t in super().branch(state, joint_actions)]
        return [dataclasses.replace(t, state=s) for t, s in zip(super().branch(state, joint_actions), going_on, strict=True)]


class StepsOn(Sound, ParallelEnv):
    last = None

    def step(self, actions):
        if self.agents:
            self.last = super().step(actions)
        return self.last


class OutsideItsSpace(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        for agent in self.possible_agents:
            self.observation_spaces[agent] = Dict({"prompt": UnicodeText(3)})


class WholeRewards(Stepping, ParallelEnv):
    def wrong(self, observations, rewards, *rest):
        return observations, {agent: int(reward) for agent, reward in rewards.items()}, *rest


class TextInResets(Sound, ParallelEnv):
    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return observations, {agent: {"text": "hello"} for agent in infos}


class NewKeysInSteps(Sound, ParallelEnv):
    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return observations, {agent: {"turn": 0} for agent in infos}


class SharedInfos(Stepping, ParallelEnv):
    def wrong(self, *returned):
        *rest, infos = returned
        return *rest, dict.fromkeys(infos, infos["agent_0"])


class CountingState(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        self.asked = 0

    def state(self):
        self.asked += 1
        return f"asked {self.asked} times"


class UnseededLater(Sound, ParallelEnv):
    def reset(self, seed=None, options=None):
        return super().reset(secrets.randbits(30) if seed is None else seed, options)


class SeedMinds(Sound, ParallelEnv):
    """Draws the rows by its own count of resets."""

    resets = 0

    def reset(self, seed=None, options=None):
        self.resets += 1
        return super().reset(seed, {"item": self.resets % 3})


class MovesGlobalStream(Stepping, ParallelEnv):
    def wrong(self, *returned):
        random.random()
        return returned


class MovesNumpyStream(Stepping, ParallelEnv):
    def wrong(self, *returned):
        np.random.rand()
        return returned


class HoldsALock(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class OnlyPlainText(Sound, ParallelEnv):
    def step(self, actions):
        if any(type(text) is not str for text in actions.values()):
            raise TypeError("no plain str")
        return super().step(actions)


class MindsOptions(Sound, ParallelEnv):
    def reset(self, seed=None, options=None):
        if options:
            raise ValueError(f"unknown options {options}")
        return super().reset(seed, options)


class FortyTwo(Sound, ParallelEnv):
    """Random for the seed of PettingZoo's test only."""

    def reset(self, seed=None, options=None):
        return super().reset(secrets.randbits(30) if seed == 42 else seed, options)


class KeepsTheActions(Sound, ParallelEnv):
    """The turn-based conversion hands over one dict again and again."""

    kept = None

    def step(self, actions):
        if self.kept is actions:
            raise RuntimeError("the same dict again")
        self.kept = actions
        return super().step(actions)


class PaysMoreInSteps(Stepping, ParallelEnv):
    def wrong(self, observations, rewards, *rest):
        return observations, {agent: reward + 1 for agent, reward in rewards.items()}, *rest


class DeadAfterRestore(Sound, ParallelEnv):
    def restore(self, state):
        observations = super().restore(state)
        self.agents = []
        return observations


class PaysByTheNumber(Sound, ParallelEnv):
    def branch(self, state, joint_actions):
        more = len(joint_actions)
        return [
            dataclasses.replace(t, rewards={a: r + more for a, r in t.rewards.items()})
            for t in super().branch(state, joint_actions)
        ]


class WritesIntoRows(Sound, ParallelEnv):
    def branch(self, state, joint_actions):
        state.item["n"].append(1)
        return super().branch(state, joint_actions)


class HoldsAFunction(Sound, ParallelEnv):
    def __init__(self):
        super().__init__()
        self.function = lambda: 0

    def initial(self, item, key, item_index=-1):
        return super().initial({**item, "function": self.function}, key, item_index)


class OneKeyForAll(Sound, ParallelEnv):
    def branch(self, state, joint_actions):
        transitions = super().branch(state, joint_actions)
        return [dataclasses.replace(t, state=dataclasses.replace(t.state, key=(*state.key, 0))) for t in transitions]


class GoesOnFromEnds(Sound, ParallelEnv):
    def branch(self, state, joint_actions):
        return super().branch(dataclasses.replace(state, terminated=False), joint_actions)


class GlobalBytes(Sound, ParallelEnv):
    def global_state(self, state):
        return b"bytes"


BROKEN = [
    ("direct_base", NoDirectBase),
    ("names", NamesAsTuple),
    ("metadata", NoMetadata),
    ("attributes", HasSeed),
    ("stable_spaces", NewSpaces),
    ("equal_spaces", UnequalSpaces),
    ("agents_at_start", OneListOfAgents),
    ("all_in_order", OtherOrder),
    ("agents_at_end", AgentsLeft),
    ("agents_at_end", NumpyFlags),
    ("agents_at_end", MixedEnds),
    ("ends_in_time", Endless),
    ("step_after_end", StepsOn),
    ("observations_belong", OutsideItsSpace),
    ("finite_rewards", WholeRewards),
    ("infos_of_resets", TextInResets),
    ("infos_of_resets", NewKeysInSteps),
    ("new_objects", SharedInfos),
    ("state_of_env", CountingState),
    ("whole_episodes_repeat", UnseededLater),
    ("reset_again", SeedMinds),
    ("global_streams", MovesGlobalStream),
    ("global_streams", MovesNumpyStream),
    ("copies", HoldsALock),
    ("foreign_actions", OnlyPlainText),
    ("api_test", MindsOptions),
    ("seed_test", FortyTwo),
    ("aec_test", KeepsTheActions),
    ("step_is_branch", PaysMoreInSteps),
    ("restore_repeats", DeadAfterRestore),
    ("siblings_independent", PaysByTheNumber),
    ("states_unchanged", WritesIntoRows),
    ("states_copy", HoldsAFunction),
    ("keys_are_paths", OneKeyForAll),
    ("ends_are_ends", GoesOnFromEnds),
    ("global_text", GlobalBytes),
]


@pytest.mark.parametrize(("name", "broken"), BROKEN, ids=[broken.__name__ for _, broken in BROKEN])
def test_a_broken_rule_is_the_one_that_fails(name, broken):
    (rule,) = [rule for rule in RULES if rule.check.__name__ == name]
    with pytest.raises(ConformanceError) as caught:
        check_env(broken)
    assert str(caught.value).startswith(rule.statement)
    assert str(caught.value).endswith(f"Who breaks without it: {rule.breaks}.")


def test_every_rule_is_broken_once():
    assert {name for name, _ in BROKEN} == {rule.check.__name__ for rule in RULES}


def test_what_is_no_env_and_what_fails_while_made():
    with pytest.raises(ConformanceError, match=r"no environment to check: .*no pettingzoo\.ParallelEnv"):
        check_env(lambda: 3)
    for other in ("matching-v0", None, task()):
        with pytest.raises(
            ConformanceError, match=r"no environment to check: .*neither an environment nor a function that makes one"
        ):
            check_env(other)
    with pytest.raises(ConformanceError, match="no environment to check: ZeroDivisionError"):
        check_env(lambda: 1 / 0)
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        check_env(Sound, episodes=0)


def test_a_foreign_parallel_env_is_checked_for_its_face_only():
    held = check_env(FaceOnly)
    assert held == tuple(rule.statement for rule in RULES if not rule.branching)


class FaceOnly(ParallelEnv):
    """The face of a sound env without its branching."""

    def __init__(self):
        self.inside = Sound()
        self.possible_agents, self.metadata = self.inside.possible_agents, self.inside.metadata
        self.observation_spaces, self.action_spaces = self.inside.observation_spaces, self.inside.action_spaces
        self.render_mode, self.agents = None, []

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        returned = self.inside.reset(seed, options)
        self.agents = self.inside.agents
        return returned

    def step(self, actions):
        returned = self.inside.step(actions)
        self.agents = self.inside.agents
        return returned

    def state(self):
        return self.inside.state()


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        pytest.param(name, turns, marks=[] if name == "split-v0" and turns == 3 else pytest.mark.slow)
        for name in ("matching-v0", "split-v0", "length-ratio-v0")
        for turns in (1, 2, 3)
    ],
)
def test_registered_envs_keep_every_rule(name, turns):
    entry = llm_envs.spec(name)
    assert len(check_env(lambda: entry.make(num_turns=turns))) == len(RULES)


@pytest.mark.parametrize("name", ["matching-v0", "split-v0", "length-ratio-v0"])
def test_registered_tasks_are_sound(name):
    assert len(check_task(llm_envs.make(name, num_turns=2).task)) == 3


@pytest.mark.parametrize("name", ["matching-v0", pytest.param("split-v0", marks=pytest.mark.slow)])
def test_registered_envs_keep_every_rule_with_more_agents(name):
    entry = llm_envs.spec(name)
    check_env(lambda: entry.make(agents=3, num_turns=2))


# ---- check_task ----


def test_check_task_says_what_it_looked_at():
    held = check_task(task(eval_items=rows()[:1]))
    assert "4 training and 1 evaluation rows" in held[0] and "over 6 turns" in held[1]
    assert "2 training and 0 evaluation rows" in check_task(task(), rows=2)[0]
    assert "4 training" in check_task(task(items=Stream(4)))[0]
    assert "20 training" in check_task(task(items=Stream(10**9)), rows=20)[0]


class Stream:
    """Rows without length or positions."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return ({"prompt": f"row {number}", "n": [0]} for number in range(self.count))


def jealous(one, two):
    return [float(len(one))] * len(one)


def moody(one, two, calls=itertools.count()):  # noqa: B008 — it is meant to differ from call to call
    return [float(next(calls))] * len(one)


def strict(one, two):
    return [float(text) for text in one]


def writes(one, two, states):
    states[0].item["n"].append(1)
    return [0.0] * len(one)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items": [*rows(), {"text": "x"}]}, r"items, row 4: item 4 has no field 'prompt'"),
        ({"eval_items": [{"prompt": None}]}, r"eval_items, row 0: item 0: "),
        ({"max_prompt_length": 3}, r"items, row 0: .*the prompt of agent_0 has 5 characters, more than max_prompt_length=3"),
        (
            {"items": [{"a": np.zeros(2)}], "formatters": lambda item: item["a"].fill(1) or "x"},
            r"items, row 0: a formatter changed the row\['a'\]",
        ),
        ({"reward": jealous}, r"row 0, turn 1: joint responses scored among 2 earn something else"),
        ({"reward": moody}, r"row 0, turn 1: joint responses scored again earn something else"),
        ({"reward": strict}, r"row 0, turn 1: .*could not convert string to float.* A malformed completion is an action"),
        ({"reward": writes}, r"row 0, turn 1: reward or transition changed the row\['n'\]"),
        (
            {"transition": lambda: ["x" * 9, "y"], "max_prompt_length": 8},
            r"row 0, turn 1: .*the prompt of agent_0 has 9 characters",
        ),
        ({"transition": lambda: ["x"]}, r"row 0, turn 1: .*transition"),
        ({"reference": lambda item: ["x"]}, r"reference must give one text for each of agent_0, agent_1, got \['x'\]"),
    ],
)
def test_check_task_names_what_is_wrong(changes, message):
    with pytest.raises(ConformanceError, match=message):
        check_task(task(**changes))


# ---- ScriptedPolicy ----


def test_scripted_texts_and_functions():
    texts = ScriptedPolicy(["a", "b"]).generate(["p", "q"], 3, [(0,), (1,)])
    assert [[completion.text for completion in group] for group in texts] == [["a", "b", "a"]] * 2
    ((completion,),) = ScriptedPolicy(lambda prompt, k, key: f"{prompt}{k}{key}é").generate(["p"], 1, [(4, 5)])
    ids = (*"p0(4, 5)é".encode(), END_TOKEN)
    assert completion == Completion("p0(4, 5)é", ids, (0.0,) * len(ids), (112,), "stop")
    for wrong in ([], "text"):
        with pytest.raises(ValueError, match="a script is at least one text in a list"):
            ScriptedPolicy(wrong)


def test_scripted_policies_play():
    env = Sound()
    policies = {"agent_0": ScriptedPolicy(["x", "xx"]), "agent_1": ScriptedPolicy(lambda prompt, k, key: "y" * len(key))}
    steps = collect(env, policies, env.items[:1], RolloutSpec(2))
    # The key of a first sample is (seed, purpose, episode, agent): four parts; then one more for each branch.
    assert [step.rewards["agent_0"] for step in steps] == [1 + 8, 2 + 8, 1 + 10, 2 + 10, 1 + 10, 2 + 10]


# ---- audit ----


def test_audit_of_length_ratio():
    """Equal texts have the ratio 1, at distance 1 from [2, 3]; a silent second agent has 0, a silent first one earns 0."""
    audit = audit_rewards(llm_envs.make("length-ratio-v0"), rows=8, episodes_per_row=2)
    equal = math.exp(-1.0)
    for team in ("constant", "copied prompt", "longest"):
        assert (audit[team].mean, audit[team].min, audit[team].max) == pytest.approx((equal,) * 3)
    assert (audit["empty"].mean, audit["reference"].mean) == (0.0, 1.0)
    assert audit["one silent"].mean == pytest.approx(math.exp(-2.0) / 2)
    assert equal - 0.2 < audit["random text"].mean < audit["reference"].mean
    assert audit.warnings == () and audit.episodes == 16


@pytest.mark.parametrize("name", ["matching-v0", "split-v0"])
def test_audit_of_coordination(name):
    """No team that ignores the task earns anything; words of the prompt at random sometimes do."""
    audit = audit_rewards(llm_envs.make(name))
    for team in ("empty", "constant", "copied prompt", "longest", "one silent"):
        assert audit[team].max == 0.0
    assert (audit["reference"].min, audit["reference"].max) == (1.0, 1.0)
    assert 0.0 < audit["random words"].mean < 0.3 and audit.warnings == ()


def test_audit_of_answers_to_another_row():
    """Each row gets the next other row's best answer, around the end; rows that are all alike have none."""

    def said(first, second, batch_items):
        return [float(batch_items[0]["prompt"] == one) for one in first]

    def audit(*prompts):
        rows = [{"prompt": prompt} for prompt in prompts]
        task = llm_envs.Task(items=rows, reward=said, reference=lambda item: [item["prompt"]] * 2)
        return audit_rewards(llm_envs.TaskEnv(task), episodes_per_row=2)

    assert (audit("a", "b")["reference"].mean, audit("a", "b")["swapped"].max) == (1.0, 0.0)
    assert "swapped" not in {entry.team for entry in audit("a", "a").teams}

    def length(first, second):
        return [float(len(one.split())) for one in first]

    env = llm_envs.TaskEnv(llm_envs.Task(items=[{"prompt": "red, red or blue?"}], reward=length))
    assert audit_rewards(env)["keywords"].mean == 6.0  # w000 red w001 or w002 blue


def test_audit_sums_turns_and_averages_agents():
    """The constant "ok" earns 2 + 4 = 6 a turn for one agent, 0 for the other, over two turns."""
    per_agent = {"reward": lambda one, two: [[float(len(a) + 2 * len(b)), 0.0] for a, b in zip(one, two, strict=True)]}
    audit = audit_rewards(Sound(**per_agent))
    assert audit["constant"].mean == 6.0
    assert audit_rewards(Sound(**per_agent), constant="okay")["constant"].mean == 12.0
    assert audit_rewards(Sound(**per_agent), longest=10)["longest"].mean == 30.0
    assert audit_rewards(Sound(max_completion_length=7, **per_agent))["longest"].mean == 21.0


def always(one, two):
    return [1.0] * len(one)


def says_magic(one, two):
    return [float(a == b == "xyzzy") for a, b in zip(one, two, strict=True)]


def likes_silence(one, two):
    return [float(not a and not b) for a, b in zip(one, two, strict=True)]


def first_only(one, two):
    return [float(a == "right") for a in one]


def right(item):
    return ["right", "right"]


@pytest.mark.parametrize(
    ("changes", "warnings"),
    [
        ({"reward": always}, ["every team earns 2: this reward tells no answer from another"]),
        ({"reward": says_magic, "reference": lambda item: ["xyzzy"] * 2}, ["no random team ever earns more than the empty one"]),
        ({"reward": lengths}, ["the team 'longest' earns 2.458e+04, more than any random team ever did"]),
        ({"reward": lengths, "reference": right}, ["the team 'longest' earned 2.458e+04, more than the reference solution (30)"]),
        (
            {"reward": likes_silence, "reference": lambda item: ["", ""]},
            ["the team 'empty' earns 2 of the reference solution's 2: the task need not be done for it"],
        ),
        ({"reward": first_only, "reference": right, "formatters": lambda item: "right or wrong"}, []),
    ],
)
def test_audit_warnings(changes, warnings):
    found = audit_rewards(Sound(**changes)).warnings
    for warning in warnings:
        assert any(warning in one for one in found), found
    assert found or not warnings


def test_audit_warns_if_the_reference_is_wrong_on_a_row():
    """The second row wants `left`; the processor doubles what is paid, the declared range is that of what is not."""

    def wanted(one, two, batch_items):
        return [float(a == b == batch_items[0]["wants"]) for a, b in zip(one, two, strict=True)]

    two_rows = [{"prompt": "right or wrong", "wants": "right"}, {"prompt": "left or right", "wants": "left"}]
    changes = {"reward": llm_envs.set_reward_range(wanted, 0.0, 1.0), "items": two_rows, "num_turns": 1, "transition": None}
    unequal = "the reference solution earns 0 on row 1, but 2 on others: is it right there?"
    short = "the reference solution earns 0 on row 1, less than the declared 1: can that row be solved?"
    doubled = Sound(**changes, reference=right, reward_processor=lambda reward: 2 * reward)
    assert audit_rewards(doubled).warnings[-2:] == (unequal, short)

    def of_reference(**changes):
        found = audit_rewards(Sound(**changes, reference=lambda item: [item["wants"]] * 2)).warnings
        return [warning for warning in found if warning.startswith("the reference solution")]

    assert not of_reference(**changes)
    higher = {**changes, "reward": llm_envs.set_reward_range(wanted, 0.0, 1.5)}
    (warning,) = of_reference(**higher)
    assert warning == "the reference solution earns 1 on row 0, less than the declared 1.5: can that row be solved?"


def test_audit_warns_if_an_agent_need_not_do_anything():
    """Either agent alone earns everything, so it does not matter which one is silent."""

    def either(one, two):
        return [float(a == "right" or b == "right") for a, b in zip(one, two, strict=True)]

    found = audit_rewards(Sound(reward=either, reference=right)).warnings
    assert "the team 'one silent' earns 2 of the reference solution's 2: an agent need not do anything for it" in found


def test_audit_prints_a_table_and_refuses_nothing_to_do():
    audit = audit_rewards(Sound(reward=always), rows=1, episodes_per_row=1)
    assert str(audit).splitlines() == [
        "team               mean       min       max   return over 1 episodes",
        "empty                 2         2         2",
        "constant              2         2         2",
        "copied prompt         2         2         2",
        "longest               2         2         2",
        "keywords              2         2         2",
        "random text           2         2         2",
        "random words          2         2         2",
        "warning: every team earns 2: this reward tells no answer from another",
    ]
    with pytest.raises(ValueError, match="at least one row and one episode, got 4 and 0"):
        audit_rewards(Sound(), episodes_per_row=0)
    with pytest.raises(ValueError, match="reference must give one text for each of agent_0, agent_1"):
        audit_rewards(Sound(), reference=lambda item: ["x"])
    with pytest.raises(llm_envs.RewardError, match="could not convert"):
        audit_rewards(Sound(reward=strict))


# ---- difference ----


@pytest.mark.parametrize(
    ("one", "two", "where"),
    [
        (1, 1, None),
        (1, 1.0, ": 1 and 1.0"),
        (math.nan, math.nan, None),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "['a'][1]['b']: 2 and 3"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "the keys: ['a', 'b'] and ['b', 'a']"),
        ([1], (1,), ": [1] and (1,)"),
        ("ab", "ac", ": 'ab' and 'ac'"),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), None),
        (np.array([1]), np.array([1.0]), ": array([1]) and array([1.])"),
        (RolloutSpec(2), RolloutSpec(3), ".num_generations: 2 and 3"),
        (ChatPrompt([{"role": "user", "content": "x"}]), "user: x", ": 'user: x' and 'user: x'"),
    ],
)
def test_difference(one, two, where):
    assert difference(one, two) == where


@pytest.mark.parametrize(
    ("key", "turn"),
    [((0, 1, 7, 1), 0), ((0, 1, 7, 3, 2, 0), 2), ((0, 1, 7, ROUND, 1, 0), 0), ((0, 1, 7, 3, ROUND + 1, 1, 0), 1)],
)
def test_the_turn_of_a_key(key, turn):
    """Seed, purpose, episode, a branch for each turn before; then the agent, or the round, the agent and the sample."""
    assert turn_of(key) == turn

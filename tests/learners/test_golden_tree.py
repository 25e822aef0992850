"""Guards parity with comlrl 1.4.3 on scripted completions: trees, returns, credit, advantages (recorded; never imported here)."""

import hashlib
import itertools
import json
from pathlib import Path

import pytest

from learners.credit import ADVANTAGE_MODES, advantages, completion_returns, completions_of, groups, tree_returns
from llm_envs.env import TaskEnv
from llm_envs.rollouts import collect
from llm_envs.task import Task
from llm_envs.types import Completion, EnvStep, RolloutSpec

GOLDEN = Path(__file__).parents[1] / "golden" / "comlrl_tree.json"
RECORD = json.loads(GOLDEN.read_text())
AGENTS = ("agent_0", "agent_1")

every_case = pytest.mark.parametrize(
    "case", RECORD["cases"], ids=lambda case: f"{case['joint_mode']}-{case['early_termination_threshold']}"
)


def as_steps(case):
    """The recorded tree as a stream, deepest turns first: the order must not matter."""
    states = {tuple(node["path"]): number for number, node in enumerate(case["nodes"])}
    numbers = itertools.count(1)
    steps = []
    for node in sorted(case["nodes"], key=lambda node: -node["turn"]):
        path = tuple(node["path"])
        for index, (samples, reward) in enumerate(zip(node["joint_actions"], node["rewards"], strict=True)):
            following = states.get((*path, index))
            steps.append(
                EnvStep(
                    env_step=next(numbers),
                    episode=0,
                    state_id=states[path],
                    next_state_id=following,
                    turn=node["turn"],
                    prompts=dict.fromkeys(AGENTS, node["prompt"]),
                    completions={a: Completion(node["completions"][i][samples[i]]) for i, a in enumerate(AGENTS)},
                    choice=dict(zip(AGENTS, samples, strict=True)),
                    rewards=dict.fromkeys(AGENTS, reward),
                    terminated=following is None,
                    truncated=False,
                    next_prompts=None,
                    global_state="",
                )
            )
    return steps


class Scripted:
    """Writes what the record says; the texts of a prompt do not depend on how calls are batched."""

    def __init__(self, case, agent):
        self.texts = {node["prompt"]: node["completions"][agent] for node in case["nodes"]}

    def generate(self, prompts, n, keys):
        assert n == RECORD["num_generations"]
        assert len(keys) == len(prompts)
        return [[Completion(text) for text in self.texts[prompt]] for prompt in prompts]


def collected(case):
    """The stream that our own collector makes of the recorded texts, rewards and transitions."""
    rewards, prompts = {}, {}
    known = {tuple(node["path"]): node["prompt"] for node in case["nodes"]}
    for node in case["nodes"]:
        for index, samples in enumerate(node["joint_actions"]):
            texts = tuple(node["completions"][agent][k] for agent, k in enumerate(samples))
            rewards[texts] = node["rewards"][index]
            # Asked for, and never read, where the node was not expanded.
            prompts[texts] = known.get((*node["path"], index), "never read")

    def reward(first, second):
        return [rewards[texts] for texts in zip(first, second, strict=True)]

    def transition(agent_completions):
        return [prompts[tuple(agent_completions)]] * len(AGENTS)

    task = Task(
        reward=reward,
        items=[{"prompt": "node"}],
        agents=AGENTS,
        transition=transition,
        num_turns=RECORD["num_turns"],
        external_prompt_passthrough=True,
    )
    policies = {agent: Scripted(case, index) for index, agent in enumerate(AGENTS)}
    spec = RolloutSpec(RECORD["num_generations"], case["joint_mode"], case["early_termination_threshold"])
    return collect(TaskEnv(task), policies, task.items, spec)


def naive_returns(case, path=()):
    """Returns of the node's joint actions by the definition, from the record alone."""
    nodes = {tuple(node["path"]): node for node in case["nodes"]}
    returns = []
    for index, reward in enumerate(nodes[path]["rewards"]):
        child = (*path, index)
        below = naive_returns(case, child) if child in nodes else [0.0]
        returns.append(reward + sum(below) / len(below))
    return returns


def test_the_record_is_of_the_script_beside_it():
    script = GOLDEN.with_name(RECORD["source"]["script"])
    assert RECORD["source"]["script_sha256"] == hashlib.sha256(script.read_bytes()).hexdigest()
    assert (RECORD["source"]["package"], RECORD["source"]["version"]) == ("comlrl", "1.4.3")


def test_the_record_covers_what_it_should():
    """Both modes; the whole tree and one in which some nodes of turn 2 were stopped and others not."""
    covered = {(c["joint_mode"], c["early_termination_threshold"] is None): c for c in RECORD["cases"]}
    assert len(covered) == 4
    for (mode, whole), case in covered.items():
        joint = 3 if mode == "aligned" else 9
        second = [node["expanded"] for node in case["nodes"] if node["turn"] == 2]
        assert len(second) == joint
        assert all(second) if whole else (any(second) and not all(second))
        assert case["env_steps"] == len(as_steps(case))


@every_case
def test_returns(case):
    steps = as_steps(case)
    returns = tree_returns(steps)
    for group, node in zip(groups(steps), sorted(case["nodes"], key=lambda node: -node["turn"]), strict=True):
        for agent in AGENTS:
            ours = [returns[step.env_step][agent] for step in group.steps]
            assert ours == pytest.approx(node["returns"], abs=1e-12)
            assert ours == pytest.approx(naive_returns(case, tuple(node["path"])), abs=1e-12)


@every_case
def test_credit_and_advantages(case):
    """Credits in double precision; advantages, which comlrl keeps in single precision, to 5e-6 (they reach 7.6)."""
    steps = as_steps(case)
    returns = tree_returns(steps)
    for group, node in zip(groups(steps), sorted(case["nodes"], key=lambda node: -node["turn"]), strict=True):
        for index, agent in enumerate(AGENTS):
            assert [c.text for c in completions_of(group, agent)] == node["completions"][index]
            credit = completion_returns(group, returns, agent)
            assert credit == pytest.approx(node["credit"][index], abs=1e-12)
            for mode in ADVANTAGE_MODES:
                recorded = node["advantages"][mode][index]
                assert advantages(credit, mode, False) == pytest.approx(recorded, abs=5e-6)
                assert advantages(credit, mode, True) == pytest.approx(node["advantages"]["normalized"][index], abs=5e-6)


@every_case
def test_the_collector_grows_the_same_tree(case):
    """Replayed through our env and collector: the same nodes, prompts, joint actions, rewards, stops, returns and credit."""
    steps = collected(case)
    assert [step.env_step for step in steps] == list(range(1, case["env_steps"] + 1))
    found = {group.state_id: group for group in groups(steps)}
    returns = tree_returns(steps)
    nodes = {tuple(node["path"]): node for node in case["nodes"]}
    reached = {(): steps[0].state_id}
    for path in sorted(nodes, key=len):
        node, group = nodes[path], found.pop(reached[path])
        assert group.turn == node["turn"]
        assert [[s.choice[agent] for agent in AGENTS] for s in group.steps] == node["joint_actions"]
        assert {prompt for s in group.steps for prompt in s.prompts.values()} == {node["prompt"]}
        assert [s.rewards["agent_0"] for s in group.steps] == node["rewards"]
        assert [returns[s.env_step]["agent_1"] for s in group.steps] == pytest.approx(node["returns"], abs=1e-12)
        assert all((s.next_state_id is not None) == node["expanded"] for s in group.steps)
        for index, agent in enumerate(AGENTS):
            assert completion_returns(group, returns, agent) == pytest.approx(node["credit"][index], abs=1e-12)
        reached |= {(*path, j): s.next_state_id for j, s in enumerate(group.steps) if s.next_state_id is not None}
    assert not found

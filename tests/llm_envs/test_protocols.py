"""Guards how agents of a turn come to their texts: who reads what, which draws are used, and what the record says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from llm_envs import EVALUATION, ChatPrompt, RolloutSpec, Task, TaskEnv, collect
from llm_envs.protocols import PROTOCOLS, Discussion, Parallel, Pipeline, with_note
from llm_envs.testing import ScriptedPolicy

AGENTS = ("left_0", "right_0")
ROWS = [{"prompt": "one"}, {"prompt": "two"}]


def env(num_turns=1, **options):
    plain = {"items": ROWS, "agents": AGENTS, "reward": lambda a, b: [float(len(x + y)) for x, y in zip(a, b, strict=True)]}
    transition = (lambda agent_completions: [f"next {text}" for text in agent_completions]) if num_turns > 1 else None
    return TaskEnv(Task(**{**plain, "num_turns": num_turns, "transition": transition, **options}))


class Reading(ScriptedPolicy):
    """Writes its name and a number; keeps what it was asked."""

    def __init__(self, name):
        self.asked = []
        super().__init__(self.written)
        self.name = name

    def written(self, prompt, k, key):
        self.asked.append((prompt, k, key))
        return f"{self.name}{len(self.asked)}"


def play(protocol, *, items=ROWS[:1], generations=1, num_turns=1, **options):
    team = {"left_0": Reading("a"), "right_0": Reading("b")}
    steps = collect(env(num_turns), team, items, RolloutSpec(generations, **options), protocol=protocol)
    return team, steps


def test_parallel_is_what_the_collector_does_anyway():
    team = {agent: ScriptedPolicy(lambda prompt, k, key: f"{prompt} {k} {key}") for agent in AGENTS}
    spec = RolloutSpec(2, joint_mode="cross")
    assert collect(env(2), team, ROWS, spec, protocol=Parallel()) == collect(env(2), team, ROWS, spec)


def test_pipeline():
    """The first reads the prompt alone, the second the first's text as well; each writes once."""
    team, (step,) = play(Pipeline())
    assert [prompt for prompt, *_ in team["left_0"].asked] == ["one"]
    assert [prompt for prompt, *_ in team["right_0"].asked] == ["one\n\nOthers have written:\n\n[left_0]\na1\n"]
    assert {agent: completion.text for agent, completion in step.completions.items()} == {"left_0": "a1", "right_0": "b1"}
    assert step.prompts == {"left_0": "one", "right_0": "one"}
    assert bytes(step.completions["right_0"].prompt_ids).decode() == team["right_0"].asked[0][0]


def test_discussion():
    """Drafts as in parallel, then everybody reads all drafts, the own first; the last texts are the actions."""
    team, (step,) = play(Discussion())
    assert [prompt for prompt, *_ in team["right_0"].asked] == [
        "one",
        "one\n\nYour draft:\n\n[right_0]\nb1\n\nDrafts of the others:\n\n[left_0]\na1\n\nWrite your final answer.\n",
    ]
    assert {agent: completion.text for agent, completion in step.completions.items()} == {"left_0": "a2", "right_0": "b2"}
    three, (step,) = play(Discussion(3))
    assert len(three["left_0"].asked) == 3
    assert step.completions["left_0"].text == "a3"


def test_samples_read_those_of_their_own_number():
    """K = 2, two items: sample k of the second agent answers sample k of the first."""
    team, steps = play(Pipeline(), items=ROWS, generations=2)
    places = [(row, k) for row in range(2) for k in range(2)]
    read = {place: prompt for place, (prompt, _, _) in zip(places, team["right_0"].asked, strict=True)}
    for step in steps:
        k = step.choice["left_0"]
        assert f"[left_0]\n{step.completions['left_0'].text}\n" in read[step.episode, k]
        assert bytes(step.completions["right_0"].prompt_ids).decode() == read[step.episode, k]


def test_each_round_draws_from_streams_of_its_own():
    """No two texts share a stream, and the drafts are those of parallel agents."""
    team, _ = play(Discussion(3), items=ROWS, generations=2, num_turns=2)
    keys = [(*key, k) for policy in team.values() for _, k, key in policy.asked]
    assert len(set(keys)) == len(keys) == 2 * 3 * (2 * 2 + 2 * 4)
    plain, _ = play(Parallel(), items=ROWS, generations=2)
    for agent in AGENTS:
        assert {(k, key) for _, k, key in plain[agent].asked} <= {(k, key) for _, k, key in team[agent].asked}


def test_results_do_not_depend_on_batching():
    together = collect(env(2), scripted(), ROWS, RolloutSpec(2), protocol=Discussion(), purpose=EVALUATION)
    for index, row in enumerate(ROWS):
        alone = collect(env(2), scripted(), [row], RolloutSpec(2), protocol=Discussion(), purpose=EVALUATION, item_indices=[index])
        assert [step.completions for step in alone] == [step.completions for step in together if step.episode == index]


def scripted():
    return {agent: ScriptedPolicy(lambda prompt, k, key: "x" * (1 + (sum(key) + k) % 7)) for agent in AGENTS}


def test_conversations_get_a_message():
    chat = ChatPrompt([{"role": "user", "content": "hello"}])
    noted = with_note(chat, "read this")
    assert isinstance(noted, ChatPrompt)
    assert list(noted.messages) == [{"role": "user", "content": "hello"}, {"role": "user", "content": "read this"}]


@dataclass
class OnlyTheFirst:
    def rounds(self, agents):
        return [agents[:1]]

    def prompt(self, agent, observation, written):
        return observation


def test_protocols_that_do_not_fit():
    with pytest.raises(ValueError, match="joint_mode must be 'aligned'"):
        play(Pipeline(), generations=2, joint_mode="cross")
    with pytest.raises(ValueError, match="OnlyTheFirst has no round in which right_0 writes"):
        play(OnlyTheFirst())
    with pytest.raises(ValueError, match="num_rounds of at least 2, got 1"):
        Discussion(1)
    assert list(PROTOCOLS) == ["parallel", "pipeline", "discussion"]

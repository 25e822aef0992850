"""Guards that every bundled environment can be played by every protocol: the last texts alone are judged, whoever read what."""

from __future__ import annotations

import dataclasses

import pytest

from llm_envs import EVALUATION, RolloutSpec, collect, list_envs, make, spec
from llm_envs.protocols import PROTOCOLS, Discussion
from llm_envs.testing import ScriptedPolicy
from llm_envs.testing.episodes import reference_scripts, turn_of
from llm_envs.wrappers import JointAgent

SMALL = {
    "travel-v0": {"train_rows": 1, "eval_rows": 1, "days": [3]},
    "strbuild-v0": {"train_rows": 1, "eval_rows": 1},
    "housebuild-v0": {"train_rows": 1, "eval_rows": 1},
}
"""Options with which rows are made quickly."""

BUILT_IN = [name for name in list_envs() if spec(name).source == "llm_envs"]

ALONE = {
    "split-v0": ({"agents": 1}, 1.0),
    "humaneval-v0": ({"helpers": 0}, 2.1),  # no collaboration, and no definitions but its own
    "coophumaneval-v0": ({"helpers": 0}, 2.1),
    "mbpp-v0": ({"helpers": 0}, 2.1),
    "classeval-v0": ({"agents": 1}, 6.0),
    "tldr-v0": ({"agents": 1}, 1.0),
    "arxiv-v0": ({"agents": 1}, 1.0),
    "bfcl-parallel-v0": ({"agents": 1}, 1.0),
    "bfcl-multiturn-v0": ({"agents": 1}, 1.0),
    "travel-v0": ({"agents": 1}, 1.0),
    "strbuild-v0": ({"agents": 1}, 1.0),
    "housebuild-v0": ({"agents": 1}, 1.0),
}
"""A team of one in each family that has it, and the most that it can earn."""


def built(name, **options):
    """The env, with two turns where it can have them."""
    turns = {"num_turns": 2} if "num_turns" in spec(name).options() else {}
    return make(name, **{**SMALL.get(name, {}), **turns, **options})


def scripts(env):
    """What each agent writes turn by turn on the first row: nothing at first where there is another turn, then the best."""
    best = reference_scripts(env, env.task.reference, env.items[0])
    return {agent: ("", *texts) if len(texts) == 1 < env.num_turns else texts for agent, texts in best.items()}


class Member(ScriptedPolicy):
    """Writes its script, but a draft where a final text is still to come."""

    def __init__(self, texts, protocol):
        self.texts, self.drafts = texts, isinstance(protocol, Discussion)
        super().__init__(self.written)

    def written(self, prompt, k, key):
        if self.drafts and not prompt.endswith("Write your final answer.\n"):
            return "I have no answer yet."
        return self.texts[min(turn_of(key), len(self.texts) - 1)]


def play(env, texts, protocol=None):
    team = {agent: Member(texts[agent], protocol) for agent in env.possible_agents}
    return collect(env, team, env.items[:1], RolloutSpec(1), purpose=EVALUATION, protocol=protocol)


def judged(steps):
    """Everything about the steps but what their writers read."""
    return [
        dataclasses.replace(step, completions={agent: completion.text for agent, completion in step.completions.items()})
        for step in steps
    ]


@pytest.mark.parametrize("name", BUILT_IN)
def test_only_the_last_texts_are_judged(name):
    """The best answers earn the same whether they were written at once, one after another, after drafts, or by one writer."""
    env = built(name)
    texts = scripts(env)
    at_once = play(env, texts)
    assert sum(step.rewards[env.possible_agents[0]] for step in at_once) > 0
    for protocol in PROTOCOLS.values():
        assert judged(play(env, texts, protocol)) == judged(at_once), protocol
    last = env.possible_agents[-1]
    for step in play(env, texts, PROTOCOLS["pipeline"]):
        read = bytes(step.completions[last].prompt_ids).decode()
        assert read.startswith(step.prompts[last])
        assert all(f"[{agent}]\n{step.completions[agent].text}" in read for agent in env.possible_agents[:-1])

    count = max(map(len, texts.values()))
    padded = {agent: (*own, *[own[-1]] * (count - len(own))) for agent, own in texts.items()}
    sections = ["\n".join(f"<{agent}>\n{padded[agent][turn]}\n</{agent}>" for agent in padded) for turn in range(count)]
    alone = play(JointAgent(env), {"team_0": sections})
    agents = env.possible_agents
    means = [sum(step.rewards[agent] for agent in agents) / len(agents) for step in at_once]
    assert [step.rewards["team_0"] for step in alone] == pytest.approx(means)
    assert not any(step.infos["team_0"]["parse_failed"] for step in alone)


@pytest.mark.parametrize("name", ALONE)
def test_a_team_of_one(name):
    options, most = ALONE[name]
    env = built(name, **options, **({"num_turns": 1} if "num_turns" in spec(name).options() else {}))
    (agent,) = env.possible_agents
    texts = scripts(env)
    at_once = play(env, texts)
    assert sum(step.infos[agent]["raw_reward"] for step in at_once) == pytest.approx(most)
    for protocol in PROTOCOLS.values():
        assert judged(play(env, texts, protocol)) == judged(at_once)


def test_the_others_need_two():
    assert set(BUILT_IN) - set(ALONE) == {"matching-v0", "length-ratio-v0"}
    for name in ("matching-v0", "length-ratio-v0"):
        with pytest.raises(ValueError, match=r"agents|two"):
            make(name, agents=1)

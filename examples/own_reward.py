"""An own reward: named terms for a task that exists already, tried on recorded episodes before anyone trains on it.

python examples/own_reward.py
"""

import dataclasses
import tempfile
from pathlib import Path

import llm_envs
from llm_envs.recording import Recorder, read_steps, replay
from llm_envs.testing import ScriptedPolicy, audit_rewards


def ratio(first, second):
    """1 while the second text is two to three times as long as the first, else 0. 0 if the first is empty."""
    return [float(bool(one) and 2 <= len(two) / len(one) <= 3) for one, two in zip(first, second, strict=True)]


def on_topic(first, second, batch_items):
    """Half for each agent that names the topic. In [0, 1]."""
    topic = batch_items[0]["topic"]
    return [0.5 * (topic in one) + 0.5 * (topic in two) for one, two in zip(first, second, strict=True)]


def with_terms(env):
    """The same task, with a reward of two terms: they are summed, and each is logged."""
    return llm_envs.TaskEnv(dataclasses.replace(env.task, reward={"ratio": ratio, "topic": on_topic}))


def record(env, path):
    """Episodes of two scripted agents, as a training run would record them."""
    policies = {
        "agent_0": ScriptedPolicy(["the sea is blue.", "blue."]),
        "agent_1": ScriptedPolicy(["the sea is blue, and the sea is deep.", "deep. " * 9]),
    }
    with Recorder(path) as recorder:
        recorder.write(llm_envs.collect(env, policies, env.items[:2], llm_envs.RolloutSpec(num_generations=2)))


if __name__ == "__main__":
    old = llm_envs.make("length-ratio-v0")
    new = with_terms(old)
    print(audit_rewards(new))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.jsonl"
        record(old, path)
        print("\nwhat recorded answers earned, and earn now:")
        for before, after in zip(read_steps(path), replay(new, read_steps(path)), strict=True):
            info = after.infos["agent_0"]
            terms = f"ratio {info['reward/ratio']:g}, topic {info['reward/topic']:g}"
            print(f"  step {before.env_step}: {before.rewards['agent_0']:.2f} -> {after.rewards['agent_0']:.2f} ({terms})")

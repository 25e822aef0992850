"""What critics read: an agent's own prompt and completion, or the joint history and joint action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from learners.actor_critic.critic import Critic
from learners.decoding import Ids
from learners.learner import TrainablePolicy
from learners.policy import HFPolicy
from llm_envs.seeding import PLAY
from llm_envs.types import AgentID, Completion, EnvStep


class AgentReader:
    """What one agent's critic reads.

    A critic that understands the agent's ids is given those that were read and sampled; another one reads the text in its own.

    Args:
        critic: the agent's.
        policy: the agent's.
        with_action: whether the completion is read behind the prompt.
    """

    def __init__(self, critic: Critic, policy: TrainablePolicy, *, with_action: bool) -> None:
        self._critic = critic
        self._policy = policy if isinstance(policy, HFPolicy) and critic.understands_ids_of(policy) else None
        self._with_action = with_action

    def turns(self, prompts: Sequence[str], completions: Sequence[Completion]) -> list[Ids]:
        """Ids for turns that were played."""
        action = self._with_action
        if self._policy is not None:
            return [self._critic.newest(c.prompt_ids + (c.token_ids if action else ())) for c in completions]
        texts = [f"{prompt}\n\n{c.text}" if action else prompt for prompt, c in zip(prompts, completions, strict=True)]
        return list(self._critic.encode(texts))

    def prompts(self, prompts: Sequence[str]) -> list[Ids]:
        """Ids for states where nothing has been written yet."""
        if self._policy is not None:
            return [self._critic.newest(ids) for ids in self._policy.encode(prompts)]
        return list(self._critic.encode(prompts))


def joint_text(state: str, actions: Mapping[AgentID, str]) -> str:
    """The joint history with the joint action behind it: what is cut from the left leaves the action."""
    return "\n\n".join([state, *(f"[{agent} writes]\n{text}" for agent, text in actions.items())])


def texts_of(step: EnvStep) -> dict[AgentID, str]:
    """The joint action of a step."""
    return {agent: completion.text for agent, completion in step.completions.items()}


def next_prompts(agent: AgentID, steps: Sequence[EnvStep]) -> list[str]:
    """What the agent reads behind each step.

    Raises:
        ValueError: a step does not say.
    """
    found = []
    for step in steps:
        if step.next_prompts is None:
            raise ValueError(f"env step {step.env_step} was cut by a limit, but has no next_prompts to bootstrap from")
        found.append(step.next_prompts[agent])
    return found


def next_completions(agent: AgentID, policy: TrainablePolicy, steps: Sequence[EnvStep], seed: int) -> list[Completion]:
    """What the agent would write behind each step, on random streams of their own: a Q critic bootstraps from an action."""
    keys = [(seed, PLAY, step.env_step, list(step.prompts).index(agent)) for step in steps]
    return [group[0] for group in policy.generate(next_prompts(agent, steps), 1, keys)]

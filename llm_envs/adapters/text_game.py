"""What a parallel and an AEC environment have in common as games of texts: names, texts both ways, snapshots."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from llm_envs.adapters.texts import AsText, TextOf, ToAction, ToPrompt, our_names
from llm_envs.types import AgentID, JointAction


class TextGame:
    """A PettingZoo environment under our names, with what each agent reads.

    Args:
        make_env: makes a fresh one.
        to_prompt: see `from_parallel_env`.
        to_action: the same.
    """

    def __init__(self, make_env: Callable[[], Any], to_prompt: ToPrompt | None, to_action: ToAction | None) -> None:
        self.env: Any = make_env()
        foreign = list(self.env.possible_agents)
        self._names = our_names(foreign)
        self._to_prompt = TextOf(self.env.observation_space, foreign) if to_prompt is None else to_prompt
        self._to_action = AsText(self.env.action_space, foreign) if to_action is None else to_action
        self._acts_in_text = to_action is None
        self._prompts: dict[AgentID, str] = {}

    def probe(self, turn: int) -> JointAction:
        """Samples of the action spaces where actions are texts, else short texts."""
        return probe_texts(self.env.action_space, self._names, turn, sampled=self._acts_in_text)

    def snapshot(self) -> Any:
        """The environment's own snapshot, with what each agent reads."""
        return copy.deepcopy(self.env.snapshot()), dict(self._prompts)

    def restore(self, snapshot: Any) -> None:
        """Go on from a snapshot."""
        self.env.restore(snapshot[0])
        self._prompts = dict(snapshot[1])


PROBES = ("yes", "0", "1", "[0]", "no")


def probe_texts(
    space_of: Callable[[AgentID], spaces.Space], names: Mapping[AgentID, AgentID], turn: int, *, sampled: bool
) -> dict[AgentID, str]:
    """A text for each of our agents, always the same for a turn."""
    texts: dict[AgentID, str] = {}
    for number, (agent, ours) in enumerate(names.items()):
        if sampled:
            space = space_of(agent)
            space.seed(10 * turn + number)
            texts[ours] = str(space.sample())
        else:
            texts[ours] = PROBES[(turn + number) % len(PROBES)]
    return texts

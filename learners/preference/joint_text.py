"""The text of a whole episode, all agents' prompts and responses, and how it is made to fit what a model can read."""

from __future__ import annotations

import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from transformers import PreTrainedTokenizerBase

from learners.decoding import Ids
from learners.prompts import PromptEncoder, Room
from llm_envs.types import AgentID

Episode: TypeAlias = tuple[Sequence[Mapping[AgentID, str]], Sequence[Mapping[AgentID, str]]]
"""Prompts and completions [H] of all agents, turn by turn."""

_TITLE = "Joint response"
# A line that could be taken for a label, or for one that was quoted.
_LOOKS_LIKE_A_LABEL = re.compile(r"^(?=\\*turn [0-9]+, (?:prompt|response) [0-9]+:)", re.MULTILINE)


def joint_text(prompts: Sequence[Mapping[AgentID, str]], completions: Sequence[Mapping[AgentID, str]]) -> str:
    """What all agents read and wrote in an episode, as one text: a title, then turn by turn each agent's prompt and response.

        Joint response

        turn 1, prompt 1:
        …

        turn 1, response 1:
        …

    Agents are numbered in the order of the first turn's prompts. Different episodes have different texts: a line inside that looks
    like a label gets a backslash in front, so that no agent can write another one's response.

    Args:
        prompts: [H] of every agent, turn by turn.
        completions: [H] texts of the same agents.

    Raises:
        ValueError: there is no turn, or the turns or agents of both differ.
    """
    if not prompts or len(prompts) != len(completions):
        raise ValueError(
            f"a joint text needs as many completions as prompts, at least one turn; got {len(prompts)}, {len(completions)}"
        )
    agents = list(prompts[0])
    parts = [_TITLE]
    for turn, (read, written) in enumerate(zip(prompts, completions, strict=True), start=1):
        if not agents or set(read) != set(agents) or set(written) != set(agents):
            raise ValueError(
                f"turn {turn} needs a prompt and a completion of each of the agents {agents}; got {list(read)}, {list(written)}"
            )
        for number, agent in enumerate(agents, start=1):
            parts.append(f"turn {turn}, prompt {number}:\n{_quoted(read[agent])}")
            parts.append(f"turn {turn}, response {number}:\n{_quoted(written[agent])}")
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    return _LOOKS_LIKE_A_LABEL.sub(r"\\", str(text))


class JointTextEncoder:
    """Joint texts as token ids, within a length.

    Of a longer text the prompts lose their beginnings, the longest first: all are cut to the same number of characters, the largest
    that fits. Only where the text is too long even without any prompt, the responses are cut in the same way.

    Args:
        tokenizer: of the model that reads.
        room: of that model; its context is a limit too.
        max_length: most tokens; None leaves the context alone.

    Attributes:
        num_cut_prompts: texts whose prompts were cut; the first one warns.
        num_cut_responses: those of them whose responses were cut too; the first one warns.

    Raises:
        ValueError: `max_length` is more than the context.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, room: Room, max_length: int | None = None) -> None:
        if max_length is not None and room.context is not None and max_length > room.context:
            raise ValueError(f"reward_max_length={max_length} exceeds the reward model's context of {room.context} tokens")
        self.limit = room.context if max_length is None else max_length
        # Without a context of its own: the encoder would cut from the left, whatever stands there.
        self._encoder = PromptEncoder(tokenizer, Room(None, 0, room.vocabulary), "error")
        self.num_cut_prompts = 0
        self.num_cut_responses = 0

    def encode(self, episodes: Sequence[Episode]) -> list[tuple[int, ...]]:
        """Token ids of the joint texts of episodes.

        Raises:
            ValueError: a text that cannot be read, or labels that alone exceed the limit.
        """
        whole = self._encoder.encode([joint_text(prompts, completions) for prompts, completions in episodes])
        return [
            ids if self.limit is None or len(ids) <= self.limit else self._cut(prompts, completions, len(ids), self.limit)
            for ids, (prompts, completions) in zip(whole, episodes, strict=True)
        ]

    def _cut(
        self, prompts: Sequence[Mapping[AgentID, str]], completions: Sequence[Mapping[AgentID, str]], size: int, limit: int
    ) -> tuple[int, ...]:
        def ids(prompt_room: int, response_room: int) -> Ids:
            (found,) = self._encoder.encode([joint_text(_ends(prompts, prompt_room), _ends(completions, response_room))])
            return found

        longest_prompt, longest_response = _longest(prompts), _longest(completions)
        room = _most_that_fits(longest_prompt, limit, lambda characters: len(ids(characters, longest_response)))
        if room >= 0:
            self._count_prompts(size, limit)
            return tuple(ids(room, longest_response))
        room = _most_that_fits(longest_response, limit, lambda characters: len(ids(0, characters)))
        if room < 1:
            raise ValueError(
                f"a joint text of {len(prompts)} turns and {len(prompts[0])} agents has no room for responses in {limit} tokens; "
                "raise reward_max_length or take a reward model with a longer context"
            )
        self._count_prompts(size, limit)
        self._count_responses(limit)
        return tuple(ids(0, room))

    def _count_prompts(self, size: int, limit: int) -> None:
        if self.num_cut_prompts == 0:
            warnings.warn(
                f"a joint text of {size} tokens lost the beginnings of its prompts to fit {limit}; further ones are only counted",
                stacklevel=2,
            )
        self.num_cut_prompts += 1

    def _count_responses(self, limit: int) -> None:
        if self.num_cut_responses == 0:
            warnings.warn(
                f"the responses of a joint text exceed {limit} tokens and lost their beginnings too; further ones are only counted",
                stacklevel=2,
            )
        self.num_cut_responses += 1


def _most_that_fits(largest: int, limit: int, size_at: Callable[[int], int]) -> int:
    """The largest number of characters, from 0, at which the size is within the limit; -1 if there is none."""
    return bisect_right(range(largest + 1), limit, key=size_at) - 1


def _longest(texts: Sequence[Mapping[AgentID, str]]) -> int:
    return max(len(text) for turn in texts for text in turn.values())


def _ends(texts: Sequence[Mapping[AgentID, str]], characters: int) -> list[dict[AgentID, str]]:
    """The last so many characters of each text."""
    return [{agent: str(text)[max(len(text) - characters, 0) :] for agent, text in turn.items()} for turn in texts]

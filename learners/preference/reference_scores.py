"""Log-probabilities of completions under frozen references, computed once and looked up in every later epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from learners.references import References
from llm_envs.types import AgentID, Completion

_DIGEST_BYTES = 16


class ReferenceScores:
    """What `References.logprobs` says, remembered by content: agent, prompt ids and completion ids.

    A completion costs about 200 bytes of memory and 24 in a checkpoint, whatever its length. Beyond `most` of them those not asked
    for longest are forgotten, and computed again when they are.

    The values belong to the state of a run: scored again in another batch they could differ in the last bit.

    Args:
        references: frozen.
        most: completions remembered; the default takes some 50 MB when full.
    """

    def __init__(self, references: References, most: int = 1 << 18) -> None:
        self._references = references
        self._most = most
        self._scores: dict[bytes, float] = {}

    def __len__(self) -> int:
        """Completions remembered."""
        return len(self._scores)

    def of(self, agent: AgentID, completions: Sequence[Completion]) -> list[float]:
        """[B] log-probabilities of whole completions under the agent's reference, nats."""
        keys = [_digest(agent, completion) for completion in completions]
        missing = {key: completion for key, completion in zip(keys, completions, strict=True) if key not in self._scores}
        found = dict(zip(missing, self._references.logprobs(agent, list(missing.values())), strict=True)) if missing else {}
        found |= {key: self._scores.pop(key) for key in dict.fromkeys(keys) if key in self._scores}
        self._scores |= found
        for key in list(self._scores)[: max(0, len(self._scores) - self._most)]:
            del self._scores[key]
        return [found[key] for key in keys]

    def state_dict(self) -> dict[str, Any]:
        """Weights of the references, and what is remembered: digests [S, 16] and log-probabilities [S], oldest first."""
        digests = np.frombuffer(b"".join(self._scores), dtype=np.uint8).reshape(-1, _DIGEST_BYTES)
        values = np.array(list(self._scores.values()), dtype=np.float64)
        return {"weights": self._references.state_dict(), "digests": digests, "logprobs": values}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of other references; changes nothing.

        Raises:
            ValueError: naming what differs.
        """
        self._references.check_state_dict(state["weights"])
        shapes = state["digests"].shape, state["logprobs"].shape
        if shapes != ((len(state["logprobs"]), _DIGEST_BYTES), (len(state["logprobs"]),)):
            raise ValueError(f"expected digests [S, {_DIGEST_BYTES}] and logprobs [S] of references, got shapes {shapes}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights in place, and what was remembered.

        Raises:
            ValueError: they are of other references; nothing is changed then.
        """
        self.check_state_dict(state)
        self._references.load_state_dict(state["weights"])
        digests = (row.tobytes() for row in state["digests"])
        self._scores = dict(zip(digests, state["logprobs"].tolist(), strict=True))


def _digest(agent: AgentID, completion: Completion) -> bytes:
    content = repr((agent, completion.prompt_ids, completion.token_ids)).encode()
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()

"""A policy without a network: a table of logits over a few words, whatever the prompt. Learners train it as they train a model."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from learners.policy import TokenLogprobs
from llm_envs.seeding import SAMPLING, Path, stream
from llm_envs.types import AgentID, Completion

WORDS = ("red", "blue", "green", "gold")


class TabularPolicy:
    """Writes one of its words, drawn from a softmax over the table. A word is a token.

    Args:
        words: that it may write.

    Attributes:
        logits: [V] one for each word, 0 at first.
    """

    def __init__(self, words: Sequence[str] = WORDS) -> None:
        self.words = list(words)
        self.logits = nn.Parameter(torch.zeros(len(words)))

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """`n` words for each prompt, drawn from the streams of the keys."""
        scores = self.logits.detach().double().log_softmax(0)
        edges = scores.exp().cumsum(0)
        groups = []
        for key in keys:
            draws = [stream(SAMPLING, (*key, k)).random() for k in range(n)]
            drawn = [min(int(torch.searchsorted(edges, draw)), len(self.words) - 1) for draw in draws]
            groups.append([Completion(self.words[i], (i,), (float(scores[i]),), (0,)) for i in drawn])
        return groups

    def logprobs(self, completions: Sequence[Completion]) -> TokenLogprobs:
        """Log-probabilities [B, 1] under the table as it is now."""
        rows = torch.tensor([completion.token_ids for completion in completions])
        return TokenLogprobs(self.logits.log_softmax(0)[rows], torch.ones_like(rows, dtype=torch.bool))

    def micro_batches(self, completions: Sequence[Completion]) -> list[list[int]]:
        """All in one batch."""
        return [list(range(len(completions)))]

    def parameters(self) -> list[nn.Parameter]:
        """The table."""
        return [self.logits]

    def reference(self, device: torch.device | str | None = None) -> TabularPolicy:
        """A copy as of now."""
        return copy.deepcopy(self)

    def state_dict(self) -> dict[str, Tensor]:
        """The table by name."""
        return {"logits": self.logits.detach()}

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Refuse a table of another size, with a ValueError."""
        if state["logits"].shape != self.logits.shape:
            raise ValueError(f"expected {len(self.words)} logits, got {len(state['logits'])}")

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a table in place."""
        self.check_state_dict(state)
        with torch.no_grad():
            self.logits.copy_(state["logits"])


def tabular_team(agents: Sequence[AgentID]) -> dict[AgentID, TabularPolicy]:
    """A table of its own for each agent."""
    return {agent: TabularPolicy() for agent in agents}

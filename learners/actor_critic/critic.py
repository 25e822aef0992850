"""A critic: the body of a causal language model reads a text, a value head at its last token says what it is worth.

The language-model head is never computed. What is read (an agent's prompt, the joint history, actions too) is the learners' affair.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.actor_critic.config import ActorCriticConfig
from learners.decoding import Ids, padded, scoring_mode
from learners.fast_decoder import FastBackend
from learners.functional import Body
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer
from learners.policy import HFPolicy, batches, micro_batch_budget
from learners.prompts import PromptEncoder, Room
from learners.teams import optimizer_of
from learners.weights import check_weights, load_weights, named_tensors, save_model, without_adapter

if TYPE_CHECKING:
    from peft import PeftModel

HEAD_FILE = "value_head.safetensors"


class ValueHead(nn.Module):
    """Hidden state [B, H] → value [B]: linear, or linear–tanh–linear with a hidden width. Weights N(0, 0.02), biases 0.

    Args:
        width: H of the model.
        hidden_dim: of the layer between; None leaves it out.
        seed: of the initial weights; no global random state is touched.
    """

    def __init__(self, width: int, hidden_dim: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(seed)
        if hidden_dim is None:
            self.layers = nn.Sequential(_linear(width, 1, chance))
        else:
            self.layers = nn.Sequential(_linear(width, hidden_dim, chance), nn.Tanh(), _linear(hidden_dim, 1, chance))

    def forward(self, hidden: Tensor) -> Tensor:
        """Values [B] of hidden states [B, H], in float32 or better."""
        return self.layers(hidden.to(next(self.parameters()).dtype)).squeeze(-1)


def _linear(inputs: int, outputs: int, chance: torch.Generator) -> nn.Linear:
    # A plain nn.Linear would first draw its weights from the global random state.
    layer = cast("nn.Linear", nn.utils.skip_init(nn.Linear, inputs, outputs))
    with torch.no_grad():
        layer.weight.normal_(0.0, 0.02, generator=chance)
        layer.bias.zero_()
    return layer


class Critic:
    """Values of token sequences.

    Args:
        model: whose body reads; with its weights where it is to run. With an adapter of peft, the adapter is what is trained.
        head: on the last hidden state.
        tokenizer: for texts.
        micro_batch_tokens: tokens, padding included, that are read together with gradients; by default what fits about 256 MB.
        owns_model: False for a head on an actor, whose weights are trained, saved and restored with the policy.

    Raises:
        ValueError: `micro_batch_tokens` below 1.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        head: ValueHead,
        tokenizer: PreTrainedTokenizerBase,
        *,
        micro_batch_tokens: int | None = None,
        owns_model: bool = True,
    ) -> None:
        if micro_batch_tokens is not None and micro_batch_tokens < 1:
            raise ValueError(f"micro_batch_tokens must be at least 1 or None, got {micro_batch_tokens}")
        self._given = model
        self.model: PreTrainedModel = without_adapter(model)
        self.head = head.to(self.model.device)
        self.tokenizer = tokenizer
        self.micro_batch_tokens = micro_batch_tokens
        self.owns_model = owns_model
        self._room = Room.of(self.model, 0)
        self._encoder = PromptEncoder(tokenizer, self._room, "truncate_left")
        self._fast = FastBackend.supports(self.model)
        self._lock = threading.RLock()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def num_truncated(self) -> int:
        """Sequences that were cut because they exceed the context."""
        return self._encoder.num_truncated

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of texts, cut as by `newest`; of a conversation its readable form, since its template is another model's.

        Raises:
            ValueError: a text without tokens, or with ids that the model does not have.
        """
        return self._encoder.encode([str(text) for text in texts])

    def newest(self, ids: Ids) -> tuple[int, ...]:
        """The last ids that fit the context: what came last, the action, stays. Warns once and counts in `num_truncated`."""
        return self._encoder.fitted(ids)

    def understands_ids_of(self, policy: TrainablePolicy) -> bool:
        """Whether the ids that a policy reads and writes mean the same to this critic."""
        if not isinstance(policy, HFPolicy) or self._room.vocabulary < Room.of(policy.model, 0).vocabulary:
            return False
        mine, theirs = self.tokenizer, policy.tokenizer
        return mine is theirs or (len(mine) == len(theirs) and mine.get_vocab() == theirs.get_vocab())

    def values(self, sequences: Sequence[Ids]) -> Tensor:
        """Values [B] of token sequences, float32 or better; equal ones are read once.

        Differentiable where gradients are enabled; then all are read together, so split them with `micro_batches` first.
        """
        return self.head(self._hidden(sequences))

    def values_of_fixed_body(self, sequences: Sequence[Ids]) -> Tensor:
        """The same values [B], with gradient for the head alone."""
        with torch.no_grad():
            hidden = self._hidden(sequences)
        return self.head(hidden)

    def _hidden(self, sequences: Sequence[Ids]) -> Tensor:
        """Hidden state [B, H] at the last token of each sequence."""
        distinct = list(dict.fromkeys(tuple(ids) for ids in sequences))
        place = {ids: position for position, ids in enumerate(distinct)}
        together = [list(range(len(distinct)))] if torch.is_grad_enabled() else self.micro_batches(distinct)
        with self._lock, scoring_mode(self.model):
            parts = [self._last_hidden([distinct[row] for row in rows]) for rows in together]
        order = torch.tensor([row for rows in together for row in rows], device=self.device).argsort()
        return torch.cat(parts)[order[[place[tuple(ids)] for ids in sequences]]]

    def _last_hidden(self, sequences: Sequence[Ids]) -> Tensor:
        """The same for one batch; padding on the right, where nothing real sees it."""
        ids, real = padded(sequences, "right", self.device)
        if self._fast:
            return Body(self.model, ids.shape[1]).read(ids, real)  # type: ignore[arg-type]
        hidden = self.model.base_model(input_ids=ids, attention_mask=real.long(), use_cache=False).last_hidden_state
        return hidden[torch.arange(len(ids), device=self.device), real.sum(-1) - 1]

    def micro_batches(self, sequences: Sequence[Ids]) -> list[list[int]]:
        """Positions of the sequences in batches small enough to be read with gradients, equal ones in one batch."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, ids in enumerate(sequences):
            rows.setdefault(tuple(ids), []).append(row)
        distinct = list(rows)
        budget = self.micro_batch_tokens or micro_batch_budget(self.model, logits=False)
        return [[row for i in batch for row in rows[distinct[i]]] for batch in batches(distinct, [0] * len(distinct), budget)]

    def head_parameters(self) -> list[nn.Parameter]:
        """Of the value head."""
        return list(self.head.parameters())

    def body_parameters(self) -> list[nn.Parameter]:
        """Trainable ones of the model's body, without the language-model head, which nothing reads; none on an actor."""
        if not self.owns_model:
            return []
        return [parameter for parameter in self.model.base_model.parameters() if parameter.requires_grad]

    def _tensors(self) -> dict[str, Tensor]:
        head = {f"head.{name}": tensor for name, tensor in self.head.state_dict(keep_vars=True).items()}
        body = {f"model.{name}": tensor for name, tensor in named_tensors(self._given).items()} if self.owns_model else {}
        return head | body

    def state_dict(self) -> dict[str, Tensor]:
        """Weights by name, tied ones once; of the head alone on an actor."""
        return {name: tensor.detach() for name, tensor in self._tensors().items()}

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Refuse weights of another critic; changes nothing.

        Raises:
            ValueError: a name or shape does not fit.
        """
        check_weights(self._tensors(), state)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights in place.

        Raises:
            ValueError: a name or shape does not fit; nothing is changed then.
        """
        load_weights(self._tensors(), state)

    def save(self, directory: Path | str) -> None:
        """Write the value head, and model and tokenizer with it unless they are an actor's, into a folder `value_head` reads."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if self.owns_model:
            save_model(self._given, directory)
            self.tokenizer.save_pretrained(directory)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
        save_file(weights, directory / HEAD_FILE)


def value_head(model: PreTrainedModel, folder: Path | str | None, hidden_dim: int | None, *, seed: int = 0) -> ValueHead:
    """A value head for the model: the one saved in `folder` if there is one, else a fresh one.

    Args:
        model: whose hidden state it reads.
        folder: that `Critic.save` wrote; None, or one without a head, gives a fresh one.
        hidden_dim: see `ValueHead`; must be the saved one's.
        seed: of fresh weights.

    Raises:
        ValueError: a saved head of another shape.
    """
    head = ValueHead(model.config.get_text_config().hidden_size, hidden_dim, seed=seed)
    file = None if folder is None else Path(folder) / HEAD_FILE
    if file is not None and file.is_file():
        saved = load_file(file)
        own, theirs = ({name: tuple(t.shape) for name, t in state.items()} for state in (head.state_dict(), saved))
        if own != theirs:
            raise ValueError(f"the value head in {file} has shapes {theirs}, a hidden width of {hidden_dim} gives {own}")
        head.load_state_dict(saved)
    return head


def critic_optimizer(critic: Critic, config: ActorCriticConfig) -> PolicyOptimizer:
    """Of a critic with a model of its own: the body at the critic's rate, the head at that of value heads."""
    rate = config.agent_learning_rate if config.critic_learning_rate is None else config.critic_learning_rate
    head_rate = rate if config.value_head_learning_rate is None else config.value_head_learning_rate
    return optimizer_of(
        critic.body_parameters(), config, learning_rate=rate, at_other_rates=[(critic.head_parameters(), head_rate)]
    )

"""A critic: the body of a causal language model reads a text, a value head at its last token says what it is worth.

The language-model head is never computed. What is read (an agent's prompt, the joint history, actions too) is the learners' affair.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.actor_critic.config import ActorCriticConfig
from learners.decoding import Ids, padded, positions_of, scoring_mode
from learners.fast_decoder import FastBackend
from learners.functional import Body, Prefix
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer
from learners.policy import HFPolicy, batches, micro_batch_budget
from learners.teams import optimizer_of

HEAD_FILE = "value_head.safetensors"


class ValueHead(nn.Module):
    """Hidden state [B, H] → value [B]: linear, or linear–tanh–linear with a hidden width. Weights N(0, 0.02), biases 0.

    Args:
        width: H of the model.
        hidden_dim: of the layer between; None or 0 leaves it out.
        seed: of the initial weights; no global random state is touched.
    """

    def __init__(self, width: int, hidden_dim: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        sizes = [(width, hidden_dim), (hidden_dim, 1)] if hidden_dim else [(width, 1)]
        layers: list[nn.Module] = [nn.Linear(int(n or 0), int(m or 0)) for n, m in sizes]
        chance = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in layers:
                assert isinstance(layer, nn.Linear)
                layer.weight.normal_(0.0, 0.02, generator=chance)
                layer.bias.zero_()
        self.layers = nn.Sequential(*(layers if len(layers) == 1 else [layers[0], nn.Tanh(), layers[1]]))

    def forward(self, hidden: Tensor) -> Tensor:
        """Values [B] of hidden states [B, H], in float32 or better."""
        return self.layers(hidden.to(next(self.parameters()).dtype)).squeeze(-1)


class Critic:
    """Values of token sequences.

    Args:
        model: whose body reads; with its weights where it is to run.
        head: on the last hidden state.
        tokenizer: for texts; a critic that is only given ids needs it for saving alone.
        micro_batch_tokens: tokens, padding included, that are read together with gradients; by default what fits about 256 MB.
        owns_model: False for a head on an actor, whose weights are trained, saved and restored with the policy.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        head: ValueHead,
        tokenizer: PreTrainedTokenizerBase,
        *,
        micro_batch_tokens: int | None = None,
        owns_model: bool = True,
    ) -> None:
        self.model = model
        self.head = head.to(model.device)
        self.tokenizer = tokenizer
        self.micro_batch_tokens = micro_batch_tokens
        self.owns_model = owns_model
        self._fast = FastBackend.supports(model)
        self._takes_positions = "position_ids" in inspect.signature(model.base_model.forward).parameters
        self._lock = threading.RLock()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of texts, each cut to its newest part if it exceeds the context: what came last, the action, stays.

        Raises:
            ValueError: a text without tokens.
        """
        with self._lock:
            encoded = self.tokenizer(list(texts))["input_ids"]
        return [self.newest(tuple(ids), text) for ids, text in zip(encoded, texts, strict=True)]

    def newest(self, ids: Ids, source: str = "a sequence") -> tuple[int, ...]:
        """The last ids that fit the context.

        Raises:
            ValueError: there are none.
        """
        if not ids:
            raise ValueError(f"a critic needs at least one token to read, got none from {source!r}")
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return tuple(ids)[-context:] if context and context > 0 else tuple(ids)

    def shares_tokenizer(self, policy: TrainablePolicy) -> bool:
        """Whether the policy's ids mean to this critic what they mean to the policy."""
        if not isinstance(policy, HFPolicy):
            return False
        mine, theirs = self.tokenizer, policy.tokenizer
        return mine is theirs or (len(mine) == len(theirs) and mine.get_vocab() == theirs.get_vocab())

    def values(self, sequences: Sequence[Ids]) -> Tensor:
        """Values [B] of token sequences, float32 or better; equal ones are read once.

        Differentiable where gradients are enabled; then all are read together, so split them with `micro_batches` first.
        """
        distinct = list(dict.fromkeys(tuple(ids) for ids in sequences))
        place = {ids: position for position, ids in enumerate(distinct)}
        together = [list(range(len(distinct)))] if torch.is_grad_enabled() else self.micro_batches(distinct)
        with self._lock, scoring_mode(self.model):
            parts = [self.head(self._last_hidden([distinct[row] for row in rows])) for rows in together]
        order = torch.tensor([row for rows in together for row in rows], device=self.device).argsort()
        return torch.cat(parts)[order][torch.tensor([place[tuple(ids)] for ids in sequences], device=self.device)]

    def _last_hidden(self, sequences: Sequence[Ids]) -> Tensor:
        """Hidden state [B, H] at the last token of each sequence; padding on the right, where nothing real sees it."""
        if self._fast:
            body = Body(self.model, max(map(len, sequences)))  # type: ignore[arg-type]
            return Prefix(body, sequences, self.device).last
        ids, real = padded(sequences, "right", self.device)
        arguments = {"position_ids": positions_of(real)} if self._takes_positions else {}
        hidden = self.model.base_model(input_ids=ids, attention_mask=real.long(), use_cache=False, **arguments).last_hidden_state
        return hidden[torch.arange(len(ids), device=self.device), real.sum(-1) - 1]

    def micro_batches(self, sequences: Sequence[Ids]) -> list[list[int]]:
        """Positions of the sequences in batches small enough to be read with gradients, equal ones side by side."""
        budget = self.micro_batch_tokens or micro_batch_budget(self.model, logits=False)
        return batches([tuple(ids) for ids in sequences], [0] * len(sequences), budget)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained as the critic: head and body, without the language-model head, which nothing reads.

        On an actor it is the head alone.
        """
        return [*self.head_parameters(), *self.body_parameters()]

    def head_parameters(self) -> list[nn.Parameter]:
        """Of the value head."""
        return list(self.head.parameters())

    def body_parameters(self) -> list[nn.Parameter]:
        """Of the model's body; none on an actor."""
        if not self.owns_model:
            return []
        return [parameter for parameter in self.model.base_model.parameters() if parameter.requires_grad]

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        modules = {"head": self.head, **({"model": self.model} if self.owns_model else {})}
        seen: set[int] = set()
        for prefix, module in modules.items():
            for name, tensor in module.state_dict(keep_vars=True).items():
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{prefix}.{name}", tensor

    def state_dict(self) -> dict[str, Tensor]:
        """Weights by name, tied ones once; of the head alone on an actor."""
        return {name: tensor.detach() for name, tensor in self._tensors()}

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Refuse weights of another critic; changes nothing.

        Raises:
            ValueError: a name or shape does not fit.
        """
        own = {name: tuple(tensor.shape) for name, tensor in self._tensors()}
        theirs = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if own != theirs:
            differing = sorted(name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name))
            listed = ", ".join(f"{name} {theirs.get(name)} for {own.get(name)}" for name in differing)
            raise ValueError(f"weights do not fit the critic: {listed}")

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights in place."""
        self.check_state_dict(state)
        with torch.no_grad():
            for name, tensor in self._tensors():
                tensor.copy_(state[name])

    def save(self, directory: Path | str) -> None:
        """Write the value head, and model and tokenizer with it unless they are an actor's, into a folder `value_head` reads."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if self.owns_model:
            self.model.save_pretrained(directory)
            self.tokenizer.save_pretrained(directory)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
        save_file(weights, directory / HEAD_FILE)


def value_head(model: PreTrainedModel, folder: Path | str | None, hidden_dim: int | None, *, seed: int = 0) -> ValueHead:
    """A value head for the model: the one saved in `folder` if there is one, else a fresh one.

    Raises:
        ValueError: a saved head of another shape.
    """
    head = ValueHead(model.config.get_text_config().hidden_size, hidden_dim, seed=seed)
    file = None if folder is None else Path(folder) / HEAD_FILE
    if file is not None and file.is_file():
        saved = load_file(file)
        own, theirs = ({name: tuple(t.shape) for name, t in state.items()} for state in (head.state_dict(), saved))
        if own != theirs:
            raise ValueError(f"the value head in {file} has shapes {theirs}, value_head_hidden_dim={hidden_dim} gives {own}")
        head.load_state_dict(saved)
    return head


def critic_optimizer(critic: Critic, config: ActorCriticConfig) -> PolicyOptimizer:
    """Of a critic with a model of its own: the body at the critic's rate, the head at that of value heads."""
    rate = config.agent_learning_rate if config.critic_learning_rate is None else config.critic_learning_rate
    head_rate = rate if config.value_head_learning_rate is None else config.value_head_learning_rate
    return optimizer_of(
        critic.body_parameters(), config, learning_rate=rate, at_other_rates=[(critic.head_parameters(), head_rate)]
    )

"""A reward model of a team: it reads what all agents read and wrote as one text, and learns from pairs which text is the better.

Its score s of a whole episode is fitted by −log σ(s_w − s_l) (`learners.losses.bradley_terry_loss`). As a reward of turn t it gives

    r_t = s(turns 1..t) − s(turns 1..t−1),    s(no turn) = 0

so that the undiscounted return of an episode is the model's score of it; an episode of one turn earns its score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, ClassVar

import torch
from torch import Tensor

from learners import losses
from learners.actor_critic.critic import Critic, value_head
from learners.config import TrainingConfig, canonical_path, require_choice, require_device, require_int, require_number
from learners.decoding import Ids
from learners.interrupts import shielded
from learners.learner import TrainablePolicy
from learners.models import ModelConfig, load_policies
from learners.optim import PolicyOptimizer, mini_batch
from learners.policy import HFPolicy, micro_batch_budget
from learners.preference.joint_text import Episode, JointTextEncoder
from learners.preference.pairs import JointResponse, Pair
from learners.prompts import Room
from learners.sampling import SamplingConfig
from learners.teams import optimizer_of
from learners.weights import without_adapter
from llm_envs.seeding import ORDER, Path, stream
from llm_envs.types import AgentID, State

# Last part of the path of the draw of held-out items, apart from other draws with the run's seed.
_HELD_OUT = 1


@dataclass(frozen=True, kw_only=True)
class RewardModelOptions:
    """How a reward model is made and fitted.

    Attributes:
        reward_model_name: name or folder of its model; a folder that was saved brings its head along. None copies the first
            agent's model as it is at the start.
        reward_model_device: None is the first agent's.
        reward_learning_rate: of its AdamW, which has the other options of the agents' optimisers.
        reward_num_train_epochs: passes over the pairs.
        reward_train_batch_size: pairs an optimiser step.
        reward_max_length: most tokens of a joint text; None is the model's context. Prompts are cut before responses are.
        reward_freeze_backbone: train the head alone.
        reward_holdout_fraction: share of the items whose pairs are kept for measuring, not trained on.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"reward_model_device", "reward_learning_rate"})

    reward_model_name: str | FilePath | None = None
    reward_model_device: str | None = None
    reward_learning_rate: float = 1e-5
    reward_num_train_epochs: int = 1
    reward_train_batch_size: int = 1
    reward_max_length: int | None = None
    reward_freeze_backbone: bool = False
    reward_holdout_fraction: float = 0.1

    def check_reward_model_options(self) -> None:
        """Refuse values that cannot be meant.

        Raises:
            ValueError: naming option, value and what is expected.
        """
        object.__setattr__(self, "reward_model_name", canonical_path("reward_model_name", self.reward_model_name))
        require_device("reward_model_device", self.reward_model_device)
        require_number("reward_learning_rate", self.reward_learning_rate, above=0)
        require_int("reward_num_train_epochs", self.reward_num_train_epochs, 1)
        require_int("reward_train_batch_size", self.reward_train_batch_size, 1)
        require_int("reward_max_length", self.reward_max_length, 1, optional=True)
        require_choice("reward_freeze_backbone", self.reward_freeze_backbone, (True, False))
        require_number("reward_holdout_fraction", self.reward_holdout_fraction, at_least=0, at_most=1)
        if self.reward_holdout_fraction == 1:
            raise ValueError("reward_holdout_fraction must be below 1, got 1: nothing would be left to train on")


class JointRewardModel:
    """Scores joint responses, learns from pairs of them, and is a scorer for `llm_envs.wrappers.ScoreWith`.

    Args:
        critic: the model with a scalar head on the last token of a text, and its tokenizer.
        options: of the reward model.
        config: of the optimiser, but for the learning rate.

    Raises:
        ValueError: the head is on an actor, whose training would change the scores; or `reward_max_length` exceeds the context.
    """

    def __init__(self, critic: Critic, options: RewardModelOptions, config: TrainingConfig) -> None:
        if not critic.owns_model:
            raise ValueError("a reward model needs a model of its own, got a head on an actor")
        self.critic = critic
        self.options = options
        self.config = config
        self._encoder = JointTextEncoder(critic.tokenizer, Room.of(critic.model, 0), options.reward_max_length)
        body = [] if options.reward_freeze_backbone else critic.body_parameters()
        self._fixed_body = not body
        self._parameters = [*body, *critic.head_parameters()]
        self._initial = [parameter.detach().to("cpu", copy=True) for parameter in self._parameters]
        self._optimizer = self._fresh_optimizer()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.critic.device

    @property
    def updates(self) -> int:
        """Optimiser steps since the last `reset`."""
        return self._optimizer.updates

    @property
    def num_cut_prompts(self) -> int:
        """Joint texts that were read without the beginnings of their prompts."""
        return self._encoder.num_cut_prompts

    @property
    def num_cut_responses(self) -> int:
        """Joint texts that were read without the beginnings of their responses either."""
        return self._encoder.num_cut_responses

    # ---- scores ----

    def __call__(
        self,
        prompts: Sequence[Mapping[AgentID, str]],
        completions: Sequence[Mapping[AgentID, str]],
        states: Sequence[State] | None = None,
    ) -> list[float]:
        """[K] rewards of joint responses: how much each adds to the score of the episode so far; read together.

        Args:
            prompts: [K] what every agent read.
            completions: [K] what it wrote.
            states: [K] acted from, whose history has the turns before; None without any.
        """
        before = [() for _ in prompts] if states is None else [state.history for state in states]
        episodes: list[Episode] = []
        for history, read, written in zip(before, prompts, completions, strict=True):
            past = [turn.observations for turn in history], [turn.actions for turn in history]
            episodes.append(([*past[0], read], [*past[1], written]))
        played = [index for index, history in enumerate(before) if history]
        episodes += [(episodes[index][0][:-1], episodes[index][1][:-1]) for index in played]
        with torch.no_grad():
            scores = self._scores(self._encoder.encode(episodes)).double().tolist()
        rewards = scores[: len(before)]
        for index, score in zip(played, scores[len(before) :], strict=True):
            rewards[index] -= score
        return rewards

    def scores(self, responses: Sequence[JointResponse]) -> Tensor:
        """Scores [B] of whole episodes, float32 or better, equal texts read once.

        Differentiable where gradients are enabled; then all are read together.
        """
        return self._scores(self._read(responses))

    def _read(self, responses: Sequence[JointResponse]) -> list[tuple[int, ...]]:
        return self._encoder.encode(
            [
                (response.prompts, [{agent: answer.text for agent, answer in turn.items()} for turn in response.completions])
                for response in responses
            ]
        )

    def _scores(self, sequences: Sequence[Ids]) -> Tensor:
        if not sequences:
            return torch.zeros(0, device=self.device)
        return self.critic.values_of_fixed_body(sequences) if self._fixed_body else self.critic.values(sequences)

    # ---- training ----

    def train_step(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """One mini-batch of pairs, as a rule one optimiser step (see `gradient_accumulation_steps`).

        Returns:
            `loss`, `accuracy` (share of the pairs whose winner has the higher score) and `margin` (mean of s_w − s_l) as they were
            before the step; `grad_norm` where there was one.

        Raises:
            ValueError: there are no pairs.
            FloatingPointError: a loss or gradient is not finite; the weights are unchanged then.
        """
        if not pairs:
            raise ValueError("a reward model cannot be trained on no pairs")
        winners, losers = self._read([pair.winner for pair in pairs]), self._read([pair.loser for pair in pairs])
        found: list[tuple[Tensor, Tensor]] = []
        with shielded():
            with mini_batch([self._optimizer]):
                for rows in self._micro_batches(winners, losers):
                    scores = self._scores([winners[row] for row in rows] + [losers[row] for row in rows])
                    won, lost = scores.chunk(2)
                    self._optimizer.backward(losses.bradley_terry_loss(won, lost).sum() / len(pairs))
                    found.append((won.detach(), lost.detach()))
                metrics = _metrics(torch.cat([won for won, _ in found]), torch.cat([lost for _, lost in found]))
            norm = self._optimizer.step()
        return metrics if norm is None else {**metrics, "grad_norm": norm}

    def flush(self) -> dict[str, float]:
        """`grad_norm` of a step with the mini-batches that wait in an accumulation window, the end of an epoch; `{}` without any.

        Raises:
            FloatingPointError: the gradient is not finite; the weights are unchanged then.
        """
        norm = self._optimizer.flush()
        return {} if norm is None else {"grad_norm": norm}

    @torch.no_grad()
    def evaluate(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """`loss`, `accuracy` and `margin` of pairs, as in `train_step`; `{}` without any."""
        if not pairs:
            return {}
        won, lost = self.scores([pair.winner for pair in pairs] + [pair.loser for pair in pairs]).chunk(2)
        return _metrics(won, lost)

    def reset(self) -> None:
        """Back to the weights it began with, with a fresh optimiser: a round's new model."""
        self._restore(self._initial)
        self._optimizer = self._fresh_optimizer()

    def _fresh_optimizer(self) -> PolicyOptimizer:
        return optimizer_of(self._parameters, self.config, learning_rate=self.options.reward_learning_rate)

    def _restore(self, weights: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for parameter, weight in zip(self._parameters, weights, strict=True):
                parameter.copy_(weight)

    def _micro_batches(self, winners: Sequence[Ids], losers: Sequence[Ids]) -> list[list[int]]:
        """Pairs whose texts can be read with gradients at once, those of one winner side by side: a text is read once a batch."""
        if self._fixed_body:
            return [list(range(len(winners)))]
        budget = self.critic.micro_batch_tokens or micro_batch_budget(self.critic.model, logits=False)
        place = {tuple(ids): row for row, ids in reversed(list(enumerate(winners)))}
        result: list[list[int]] = []
        together: set[tuple[int, ...]] = set()
        for row in sorted(range(len(winners)), key=lambda row: place[tuple(winners[row])]):
            pair = {tuple(winners[row]), tuple(losers[row])}
            wider = together | pair
            if not result or len(wider) * max(map(len, wider)) > budget:
                result.append([])
                wider = pair
            result[-1].append(row)
            together = wider
        return result

    # ---- keeping ----

    def state_dict(self) -> dict[str, Any]:
        """Weights, the weights to go back to, and the optimiser, as a tree of tensors and plain values."""
        return {"weights": self.critic.state_dict(), "initial": list(self._initial), "optimizer": self._optimizer.state_dict()}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another model; changes nothing.

        Raises:
            ValueError: naming what differs.
        """
        self.critic.check_state_dict(state["weights"])
        self._optimizer.check_state_dict(state["optimizer"])
        theirs, own = ([tuple(tensor.shape) for tensor in tensors] for tensors in (state["initial"], self._initial))
        if theirs != own:
            raise ValueError(f"the reward model's initial weights have shapes {theirs}, this one trains {own}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: it is of another model; nothing is changed then.
        """
        self.check_state_dict(state)
        self.critic.load_state_dict(state["weights"])
        self._initial = [tensor.to("cpu", copy=True) for tensor in state["initial"]]
        self._optimizer.load_state_dict(state["optimizer"])

    def save(self, directory: FilePath | str) -> None:
        """Write a folder that `reward_model_name` loads: model, head and tokenizer."""
        self.critic.save(directory)


def _metrics(winner_scores: Tensor, loser_scores: Tensor) -> dict[str, float]:
    won, lost = winner_scores.double(), loser_scores.double()
    return {
        "loss": losses.bradley_terry_loss(won, lost).mean().item(),
        "accuracy": (won > lost).double().mean().item(),
        "margin": (won - lost).mean().item(),
    }


def split_holdout(pairs_by_item: Sequence[Sequence[Pair]], fraction: float, path: Path) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs held out, all of an item on one side, both in the order given.

    Of n items with pairs, round(`fraction` · n) are held out, but at least 1 and at most n − 1; none of a single one, or with a
    fraction of 0. The same path and number of items draw the same ones.

    Args:
        pairs_by_item: of each item; see `pairs_by_prompts` for pairs that are not grouped.
        fraction: in [0, 1).
        path: of the draw: `(seed, iteration)`.
    """
    items = [pairs for pairs in pairs_by_item if pairs]
    count = min(max(round(fraction * len(items)), 1), len(items) - 1) if fraction > 0 and len(items) > 1 else 0
    held = set(stream(ORDER, (*path, len(items), _HELD_OUT)).permutation(len(items))[:count].tolist())
    train = [pair for index, pairs in enumerate(items) if index not in held for pair in pairs]
    return train, [pair for index, pairs in enumerate(items) if index in held for pair in pairs]


def pairs_by_prompts(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs grouped by what the agents read at first, in order of appearance: pairs of one item, from however many rounds."""
    groups: dict[tuple[tuple[AgentID, str], ...], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(tuple(sorted(pair.winner.prompts[0].items())), []).append(pair)
    return list(groups.values())


def build_reward_model(
    options: RewardModelOptions,
    config: TrainingConfig,
    policies: Mapping[AgentID, TrainablePolicy],
    model_config: Mapping[str, Any] | ModelConfig | None = None,
) -> JointRewardModel:
    """The reward model that the options name: loaded, or copied from the first agent.

    A copy is trained as the agent is: an adapter over the agent's own frozen base, or all weights. A named model trains all of its
    weights, whatever adapters `model_config` gives to agents.

    Args:
        options: which model, and where.
        config: of the run: seed of a fresh head, dtype, optimiser.
        policies: of the team, as they are at the start.
        model_config: how named models are loaded; see `learners.models.ModelConfig`.

    Raises:
        ValueError: the model cannot be found, or none is named and the first agent has none that could be copied.
    """
    agent, actor = next(iter(policies.items()))
    name = options.reward_model_name
    if name is not None:
        device = options.reward_model_device or (str(actor.device) if isinstance(actor, HFPolicy) else None)
        loaded = _loaded(str(name), device, config, ModelConfig.from_mapping(model_config))
        model, tokenizer = loaded.model, loaded.tokenizer
    elif isinstance(actor, HFPolicy):
        model, tokenizer = actor.model_copy(options.reward_model_device), actor.tokenizer
    else:
        raise ValueError(
            f"reward_model_name must name a model: {agent} acts with a {type(actor).__name__}, no language model that can be copied"
        )
    folder = None if name is None else FilePath(name).expanduser()
    head = value_head(without_adapter(model), folder, None, seed=config.seed)
    critic = Critic(model, head, tokenizer, micro_batch_tokens=config.micro_batch_tokens)
    return JointRewardModel(critic, options, config)


def _loaded(name: str, device: str | None, config: TrainingConfig, model_config: ModelConfig) -> HFPolicy:
    own = model_config.for_helpers(config.dtype)
    # Nothing is written with it, so nothing of its context is kept free.
    sampling = SamplingConfig(max_new_tokens=1)
    return load_policies(agents=[name], names=["reward_model"], model_config=own, sampling=sampling, devices=device)["reward_model"]

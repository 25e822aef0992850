"""The actor-critic trainers users name: those of `learners.trainers`, with critics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic, value_head
from learners.actor_critic.iac import IAC, IACConfig
from learners.actor_critic.maac import MAAC, MAACConfig
from learners.models import ModelConfig, load_policies
from learners.policy import HFPolicy
from learners.trainers import TeamTrainer
from llm_envs.env import BranchingEnv
from llm_envs.types import AgentID

CriticSource = str | Path | PreTrainedModel | Critic


class ActorCriticTrainer(TeamTrainer):
    """Trains a team with an actor-critic learner.

    Args:
        critic_model: one model for all critics: a name, a folder, "tiny", a loaded model; each critic gets a copy. None takes
            `agent_model`, where that is a name.
        critics: a model for each critic instead (one for MAAC), or built `Critic`s. A folder that a trainer saved brings its value
            head along.
        critic_tokenizer: one for all critics or one for each; None takes each model's own.
        options: those of `TeamTrainer`.

    Raises:
        ValueError, TypeError: before any critic is loaded, if the parts do not fit together.
    """

    def __init__(
        self,
        *,
        critic_model: str | Path | PreTrainedModel | None = None,
        critics: Sequence[CriticSource] | None = None,
        critic_tokenizer: str | PreTrainedTokenizerBase | Sequence[str | PreTrainedTokenizerBase] | None = None,
        **options: Any,
    ) -> None:
        if critic_model is not None and critics is not None:
            raise ValueError("critic_model is one model for all critics and critics one for each; give one or the other")
        agent_model = options.get("agent_model")
        self._critic_model = agent_model if critic_model is None and isinstance(agent_model, (str, Path)) else critic_model
        self._critics = critics
        self._critics_asked_for = critic_model is not None or critics is not None
        self._critic_tokenizer = critic_tokenizer
        self._model_config = options.get("model_config")
        self._agent_model = agent_model
        self._agent_sources = options.get("agents")
        super().__init__(**options)

    def save_model(self, output_dir: str | Path) -> None:
        """Write the agents' folders, and the critics' with their value heads: `agent_<i>/critic/`, or `critic/` for the team's."""
        super().save_model(output_dir)
        self.learner.save_critics(Path(output_dir).expanduser())  # type: ignore[attr-defined]

    def _built_critics(self, names: Sequence[str], config: ActorCriticConfig, policies: Mapping[AgentID, HFPolicy]) -> list[Critic]:
        """A critic for each name, beside the agents unless `critic_devices` says otherwise."""
        sources = list(self._critics) if self._critics is not None else [self._critic_model] * len(names)
        if len(sources) != len(names):
            raise ValueError(f"critics must be {len(names)} ({', '.join(names)}), got {len(sources)}")
        if any(source is None for source in sources):
            raise ValueError("which models are the critics? give critic_model (one for all) or critics (one for each)")
        ready = {name: source for name, source in zip(names, sources, strict=True) if isinstance(source, Critic)}
        missing = {name: source for name, source in zip(names, sources, strict=True) if not isinstance(source, Critic)}
        built = {**ready, **self._loaded_critics(missing, config, policies)} if missing else ready
        return [built[name] for name in names]

    def _loaded_critics(
        self, sources: Mapping[str, Any], config: ActorCriticConfig, policies: Mapping[AgentID, HFPolicy]
    ) -> dict[str, Critic]:
        same = next(iter(sources.values()))
        one, first = self._critics is None, next(iter(policies))
        loaded = load_policies(
            agent_model=same if one else None,
            agents=None if one else list(sources.values()),
            names=list(sources),
            tokenizer=self._critic_tokenizer or self._tokenizer_of_actors(same, policies),
            model_config=ModelConfig.from_mapping(self._model_config).for_helpers(config.dtype),
            devices=config.critic_devices or [str(policies[name if name in policies else first].device) for name in sources],
        )
        critics = {}
        for index, (name, policy) in enumerate(loaded.items()):
            folder = sources[name] if isinstance(sources[name], (str, Path)) else None
            head = value_head(policy.model, folder, config.critic_value_head_hidden_dim, seed=config.seed + index)
            critics[name] = Critic(policy.model, head, policy.tokenizer, micro_batch_tokens=config.micro_batch_tokens)
        return critics

    def _tokenizer_of_actors(self, source: object, policies: Mapping[AgentID, HFPolicy]) -> PreTrainedTokenizerBase | None:
        """A loaded model brings no tokenizer along: it is taken to be of the actors' kind."""
        return None if isinstance(source, (str, Path)) else next(iter(policies.values())).tokenizer


class MAACTrainer(ActorCriticTrainer):
    """Trains a team with `MAAC`; arguments of `ActorCriticTrainer`, `args` is a `MAACConfig`."""

    learner_class: ClassVar[type[MAAC]] = MAAC

    def build_learner(
        self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: MAACConfig, executor: Executor | None
    ) -> MAAC:
        """MAAC with the team's one critic."""
        (critic,) = self._built_critics(["critic"], config, policies)
        return MAAC(policies, critic, config, executor=executor)


class IACTrainer(ActorCriticTrainer):
    """Trains a team with `IAC`; arguments of `ActorCriticTrainer`, `args` is an `IACConfig`."""

    learner_class: ClassVar[type[IAC]] = IAC

    def build_learner(
        self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: IACConfig, executor: Executor | None
    ) -> IAC:
        """IAC with a critic for each agent, or a value head on each actor."""
        if config.use_separate_critic:
            built = self._built_critics(list(policies), config, policies)
            return IAC(policies, dict(zip(policies, built, strict=True)), config, executor=executor)
        if self._critics_asked_for:
            raise ValueError("use_separate_critic=False puts value heads on the actors: critic_model and critics cannot apply")
        return IAC(policies, self._heads(policies, config), config, executor=executor)

    def _heads(self, policies: Mapping[AgentID, HFPolicy], config: IACConfig) -> dict[AgentID, Critic]:
        """A value head on each distinct actor, restored where the actor comes from a folder with one."""
        heads: dict[int, Critic] = {}
        for index, policy in enumerate(policies.values()):
            if id(policy) not in heads:
                source = self._agent_model if self._agent_sources is None else self._agent_sources[index]
                folder = source if isinstance(source, (str, Path)) else None
                head = value_head(policy.model, folder, config.value_head_hidden_dim, seed=config.seed + index)
                limit = config.micro_batch_tokens
                heads[id(policy)] = Critic(policy.model, head, policy.tokenizer, micro_batch_tokens=limit, owns_model=False)
        return {agent: heads[id(policy)] for agent, policy in policies.items()}

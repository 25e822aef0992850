"""The trainers users name: models, functions and data in, a `Trainer` out.

`MAGRPOTrainer(...)` and its siblings build the environment, the policies and the learner, and hand over. They differ in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.config import TrainingConfig
from learners.evaluation import EvalAggregator, EvalLogger, MetricsCallback
from learners.learner import Trainee
from learners.models import ModelConfig, load_policies
from learners.phases import Phase, Sampler, rollouts_of
from learners.policy import HFPolicy
from learners.reinforce import MAGRPO, MAREINFORCE, MARLOO, MAReMax, Reinforce
from learners.sampling import SamplingConfig
from learners.tracking import Sink
from learners.trainer import Trainer
from llm_envs.env import BranchingEnv, TaskEnv
from llm_envs.formatters import Formatter
from llm_envs.rewards import Reward, RewardProcessor
from llm_envs.task import Task
from llm_envs.transitions import ExternalTransition
from llm_envs.types import AgentID, Item, Policy
from llm_envs.wrappers import JointAgent, JointAgentAdapter


class TeamTrainer(Trainer):
    """Builds environment, policies and learner, and trains.

    Give the task either as functions and data (`reward_func`, `train_dataset`, …) or as `env`; the models either as `agent_model`
    or `agents`, or as `policies`. Giving both forms of one thing is an error.

    Args:
        agent_model: one model for all: a name, a folder, "tiny"; each agent gets a copy.
        agents: one model for each agent: names, folders, loaded models, mixed. The same object twice is shared.
        num_agents: size of the team; must agree with `args.num_agents` and `agents`.
        tokenizer: one for all or one for each agent; None takes each model's own.
        model_config: how models are loaded: a `ModelConfig`, or its fields by name.
        train_dataset: rows: a list, a `Dataset` or an `IterableDataset`.
        eval_dataset: rows for evaluation.
        reward_func: see `llm_envs.rewards`; a function, or named terms.
        reward_processor: float → float, before training.
        formatters: see `llm_envs.formatters`.
        external_transition: see `llm_envs.transitions`; required with more than one turn.
        team_adapter: how a centralised team's prompts are joined and its completion split; `TaggedSections` by default.
        args: the learner's config; None takes its defaults.
        env: an environment in place of the task's parts.
        policies: a policy for each agent of the env, in place of the models.
        wandb_config: log to Weights & Biases as well.
        eval_logger: makes a record of each evaluated item; needs `eval_aggregator`.
        eval_aggregator: makes metrics of the records.
        metrics_callback: makes metrics of an episode's rollouts.
        output_dir: folder of the run.
        record: also write every env step to `stream.jsonl`.
        sinks: further places to log to.
        progress: show a progress bar.
        reward_workers: threads that compute the rewards of different states at once.

    Raises:
        ValueError, TypeError: before any model is loaded, if the parts do not fit together.
    """

    learner_class: ClassVar[Any]

    def __init__(
        self,
        *,
        agent_model: str | PreTrainedModel | None = None,
        agents: Sequence[str | PreTrainedModel] | None = None,
        num_agents: int | None = None,
        tokenizer: str | PreTrainedTokenizerBase | Sequence[str | PreTrainedTokenizerBase] | None = None,
        model_config: Mapping[str, Any] | ModelConfig | None = None,
        train_dataset: Sequence[Item] | Iterable[Item] | None = None,
        eval_dataset: Sequence[Item] | Iterable[Item] | None = None,
        reward_func: Reward | None = None,
        reward_processor: RewardProcessor | None = None,
        formatters: Formatter | Sequence[Formatter] | None = None,
        external_transition: ExternalTransition | None = None,
        team_adapter: JointAgentAdapter | None = None,
        args: TrainingConfig | None = None,
        env: BranchingEnv | None = None,
        policies: Mapping[AgentID, HFPolicy] | None = None,
        wandb_config: Mapping[str, Any] | None = None,
        eval_logger: EvalLogger | None = None,
        eval_aggregator: EvalAggregator | None = None,
        metrics_callback: MetricsCallback | None = None,
        output_dir: str | Path | None = None,
        record: bool = False,
        sinks: Sequence[Sink] = (),
        progress: bool = True,
        reward_workers: int | None = None,
    ) -> None:
        config = self.learner_class.config_class() if args is None else args
        if not isinstance(config, self.learner_class.config_class):
            expected = self.learner_class.config_class.__name__
            raise TypeError(f"args of {type(self).__name__} must be a {expected}, got {type(config).__name__}")
        task_parts = {
            "train_dataset": train_dataset,
            "eval_dataset": eval_dataset,
            "reward_func": reward_func,
            "reward_processor": reward_processor,
            "formatters": formatters,
            "external_transition": external_transition,
        }
        model_parts = {"agent_model": agent_model, "agents": agents, "tokenizer": tokenizer, "model_config": model_config}
        _refuse_both("env", env, task_parts)
        _refuse_both("policies", policies, model_parts)
        central = config.collaboration_mode == "centralized"
        if env is None:
            size = team_size(num_agents, config.num_agents, *((None, None) if central else (agents, policies)))
            env = TaskEnv(_task(size, config, **task_parts))
        elif config.external_prompt_passthrough:
            raise ValueError(
                "args.external_prompt_passthrough cannot apply to an env that is built already: its task has the option"
            )
        check_config_fits(env, config, num_agents, None if central else agents)
        if central:
            env = JointAgent(env, team_adapter)
        elif team_adapter is not None:
            raise ValueError("team_adapter needs args.collaboration_mode='centralized': nothing is joined or split without it")
        if policies is None:
            policies = build_policies(env, config, **model_parts)
        else:
            check_policies_fit(policies, config)
        workers = ThreadPoolExecutor(len(env.possible_agents)) if config.parallel_training == "mp" else None
        super().__init__(
            env,
            self.build_learner(env, policies, config, workers),
            config,
            name=self.learner_class.__name__,
            phases=self.build_phases,
            output_dir=output_dir,
            record=record,
            wandb_config=wandb_config,
            sinks=sinks,
            eval_logger=eval_logger,
            eval_aggregator=eval_aggregator,
            metrics_callback=metrics_callback,
            progress=progress,
            executor=None if reward_workers is None else ThreadPoolExecutor(reward_workers),
            policy_executor=workers,
        )

    def build_learner(
        self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: Any, executor: Executor | None
    ) -> Trainee:
        """What is trained with these policies on this env; a subclass whose learner needs more than policies builds it here."""
        return self.learner_class(policies, config, executor=executor)

    def build_phases(self, sampler: Sampler) -> Sequence[Phase]:
        """The parts of the run: rollouts of the learner, unless a subclass has others."""
        return rollouts_of(self.learner, sampler, self.config)


class ReinforceTrainer(TeamTrainer):
    """Trains a team with a learner of the REINFORCE family; arguments of `TeamTrainer`."""

    learner_class: ClassVar[type[Reinforce]]


class MAGRPOTrainer(ReinforceTrainer):
    """Trains a team with `MAGRPO`; arguments of `ReinforceTrainer`, `args` is a `MAGRPOConfig`."""

    learner_class = MAGRPO


class MAREINFORCETrainer(ReinforceTrainer):
    """Trains a team with `MAREINFORCE`; arguments of `ReinforceTrainer`, `args` is a `MAREINFORCEConfig`."""

    learner_class = MAREINFORCE


class MARLOOTrainer(ReinforceTrainer):
    """Trains a team with `MARLOO`; arguments of `ReinforceTrainer`, `args` is a `MARLOOConfig`."""

    learner_class = MARLOO


class MAReMaxTrainer(ReinforceTrainer):
    """Trains a team with `MAReMax`; arguments of `ReinforceTrainer`, `args` is a `MAReMaxConfig`."""

    learner_class = MAReMax


def team_size(
    num_agents: int | None, configured: int | None, agents: Sequence[object] | None, policies: Mapping[AgentID, object] | None
) -> int:
    """The one size that all sources agree on; 2 if there is none.

    Raises:
        ValueError: naming the sources that disagree.
    """
    sources = {
        "num_agents": num_agents,
        "args.num_agents": configured,
        "len(agents)": None if agents is None else len(agents),
        "len(policies)": None if policies is None else len(policies),
    }
    given = {name: size for name, size in sources.items() if size is not None}
    if len(set(given.values())) > 1:
        raise ValueError(f"the sizes of the team disagree: {', '.join(f'{name}={size}' for name, size in given.items())}")
    return next(iter(given.values()), 2)


def check_config_fits(env: BranchingEnv, config: TrainingConfig, num_agents: int | None, agents: Sequence[object] | None) -> None:
    """Refuse a config made for another env.

    Raises:
        ValueError: if team size or turns disagree.
    """
    names = env.possible_agents
    size = team_size(num_agents, config.num_agents, agents, dict.fromkeys(names))
    if size != len(names):
        raise ValueError(f"the env has {len(names)} agents ({', '.join(names)}), the team {size}")
    config.check_num_turns(env.num_turns)


def build_policies(
    env: BranchingEnv,
    config: TrainingConfig,
    *,
    agent_model: str | PreTrainedModel | None,
    agents: Sequence[str | PreTrainedModel] | None,
    tokenizer: Any,
    model_config: Mapping[str, Any] | ModelConfig | None,
) -> dict[AgentID, HFPolicy]:
    """A policy for each agent of the env, sampling as the config says.

    Raises:
        ValueError: if no model is named.
    """
    if agent_model is None and agents is None:
        raise ValueError("which models act? give agent_model (one for all), agents (one for each) or policies")
    policies = load_policies(
        agent_model=agent_model,
        agents=agents,
        names=env.possible_agents,
        tokenizer=tokenizer,
        model_config=_with_dtype(model_config, config.dtype),
        sampling=SamplingConfig(config.temperature, config.top_p, config.top_k, config.max_new_tokens),
        devices=config.agent_devices,
        prompt_overflow=config.prompt_overflow,
    )
    built = {id(source) for source in agents or ()}
    check_policies_fit({agent: policy for agent, policy in policies.items() if id(policy) in built}, config)
    for policy in policies.values():
        if id(policy) not in built:
            policy.micro_batch_tokens = config.micro_batch_tokens
    return policies


def check_policies_fit(policies: Mapping[AgentID, Policy], config: TrainingConfig) -> None:
    """Refuse options that were set and cannot apply, because the policies are built already and say otherwise.

    Raises:
        ValueError: naming option, agent and both values.
    """
    defaults = {entry.name: entry.default for entry in fields(config)}
    devices = config.agent_devices
    for index, (agent, policy) in enumerate(policies.items()):
        if not isinstance(policy, HFPolicy):
            continue
        theirs = {
            "temperature": policy.sampling.temperature,
            "top_p": policy.sampling.top_p,
            "top_k": policy.sampling.top_k or None,
            "max_new_tokens": policy.sampling.max_new_tokens,
            "prompt_overflow": policy.prompt_overflow,
            "micro_batch_tokens": policy.micro_batch_tokens,
            "dtype": str(policy.model.dtype).removeprefix("torch."),
        }
        for option, value in theirs.items():
            ours = getattr(config, option)
            as_it_is = option == "dtype" and ours == "auto"
            if ours != defaults[option] and not as_it_is and (ours or None) != value:
                raise ValueError(f"args.{option}={ours!r} cannot apply: the policy given for {agent} has {option}={value!r}")
        device = devices if devices is None or isinstance(devices, str) else devices[min(index, len(devices) - 1)]
        if device is not None and not _is_on(policy.device, torch.device(device)):
            raise ValueError(f"args.agent_devices={devices!r} cannot apply: the policy given for {agent} is on {policy.device}")


def _is_on(found: torch.device, wanted: torch.device) -> bool:
    """Whether a device is the one wanted, which may leave open which of its kind."""
    return found.type == wanted.type and wanted.index in (None, found.index)


def _with_dtype(model_config: Mapping[str, Any] | ModelConfig | None, dtype: str | None) -> ModelConfig:
    config = ModelConfig.from_mapping(model_config)
    if dtype is None:
        return config
    chosen = replace(config, dtype=dtype, torch_dtype=None)
    stated = config.dtype if config.dtype is not None else config.torch_dtype
    if stated is not None and config.weights_dtype != chosen.weights_dtype:
        raise ValueError(f"args.dtype={dtype!r}, but model_config says {stated!r}")
    return chosen


def _task(size: int, config: TrainingConfig, **parts: Any) -> Task:
    for name in ("reward_func", "train_dataset"):
        if parts[name] is None:
            raise ValueError(f"what is to be learned? {name} is missing (or give an env)")
    if config.num_turns == 1 and parts["external_transition"] is not None:
        raise ValueError("external_transition is never called with args.num_turns=1: leave one of them out")
    turns = config.num_turns or (1 if parts["external_transition"] is None else 2)
    return Task(
        reward=parts["reward_func"],
        items=parts["train_dataset"],
        eval_items=parts["eval_dataset"],
        agents=size,
        formatters=parts["formatters"],
        transition=parts["external_transition"],
        num_turns=turns,
        reward_processor=parts["reward_processor"],
        external_prompt_passthrough=config.external_prompt_passthrough,
        name="trainer",
    )


def _refuse_both(name: str, whole: object, parts: Mapping[str, object]) -> None:
    given = [part for part, value in parts.items() if value is not None]
    if whole is not None and given:
        raise ValueError(f"{name} stands for {', '.join(parts)}; give one or the other, not {name} and {', '.join(given)}")

"""The comparator that a config names: options, their rules, and what is built of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from learners.config import canonical_choice, require_devices, require_int, require_text, require_texts
from learners.models import ModelConfig, load_policies
from learners.policy import HFPolicy
from learners.preference.api import EndpointOptions, EndpointPolicy
from learners.preference.comparators import (
    CentralizedComparator,
    Comparator,
    EndpointComparator,
    PolicyComparator,
    Writer,
    endpoint_writer,
    policy_writer,
)
from learners.preference.policy_history import PolicyHistory
from learners.sampling import SamplingConfig
from llm_envs.types import AgentID
from llm_envs.wrappers import JointAgentAdapter, TaggedSections

_POLICIES = {
    "current": ("self", "online"),
    "current_copy": ("copy", "online_copy", "current-offload", "current_offload"),
    "model": ("external", "comparator", "reference", "ref"),
    "history": ("checkpoint", "previous", "previous_iteration"),
    "api": ("http", "endpoint"),
}
_MODES = {
    "decentralized": ("decentralised", "multi_agent", "multi-agent"),
    "centralized": ("centralised", "single_agent", "single-agent"),
}


@dataclass(frozen=True, kw_only=True)
class ComparatorOptions(EndpointOptions):
    """Who the team is compared with, beside the options of an endpoint.

    Attributes:
        comparator_policy: "current" (the team itself, with random numbers of its own), "current_copy" (a copy of it on
            `comparator_devices`), "model", "history" (the team of earlier rounds) or "api".
        comparator_num_candidates: joint responses it draws for each item; None as many as the team.
        comparator_generation_mode: "decentralized", or "centralized": one model writes every role's text in tagged sections. With
            `collaboration_mode="centralized"` both are the same: there is one agent, who does so anyway.
        comparator_centralized_agent_index: whose model that is, in the env's order.
        comparator_model_name: of "model": one for all agents, a copy each.
        comparator_agents: of "model": one for each agent.
        comparator_devices: one device, or one for each agent; None puts each beside its agent.
        comparator_history_k: of "history": rounds back; None is 1, the team before the last round's update.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"comparator_devices"})

    comparator_policy: str = "current"
    comparator_num_candidates: int | None = None
    comparator_generation_mode: str = "decentralized"
    comparator_centralized_agent_index: int = 0
    comparator_model_name: str | None = None
    comparator_agents: Sequence[str] | None = None
    comparator_devices: str | Sequence[str] | None = None
    comparator_history_k: int | None = None

    def check_comparator_options(self, team_size: int | None) -> None:
        """Refuse values that are none and options that cannot apply; settles other names of the same thing.

        Args:
            team_size: number of agents, if it is known.

        Raises:
            ValueError: naming option, value and what is expected.
        """
        object.__setattr__(self, "comparator_policy", canonical_choice("comparator_policy", self.comparator_policy, _POLICIES))
        mode = canonical_choice("comparator_generation_mode", self.comparator_generation_mode, _MODES)
        object.__setattr__(self, "comparator_generation_mode", mode)
        require_int("comparator_num_candidates", self.comparator_num_candidates, 1, optional=True)
        require_int("comparator_history_k", self.comparator_history_k, 1, optional=True)
        require_int("comparator_centralized_agent_index", self.comparator_centralized_agent_index, 0)
        require_text("comparator_model_name", self.comparator_model_name, optional=True)
        require_texts("comparator_agents", self.comparator_agents, team_size)
        require_devices("comparator_devices", self.comparator_devices, team_size)
        if team_size is not None:
            check_agent_index(self, team_size)
        self._check_source()
        if self.comparator_policy == "api":
            self.check_endpoint_options()
            if self.comparator_api_url is None:
                raise ValueError("comparator_api_url must be given for comparator_policy='api'")

    def _check_source(self) -> None:
        kind = self.comparator_policy
        models = {"comparator_model_name": self.comparator_model_name, "comparator_agents": self.comparator_agents}
        given = [option for option, value in models.items() if value is not None]
        if kind == "model" and len(given) != 1:
            raise ValueError(
                f"comparator_policy='model' needs comparator_model_name or comparator_agents, got {given or 'neither'}"
            )
        wrong = [] if kind == "model" else given
        if kind != "history" and self.comparator_history_k is not None:
            wrong.append("comparator_history_k")
        if kind != "api":
            wrong += [entry.name for entry in fields(EndpointOptions) if getattr(self, entry.name) != entry.default]
        if kind in ("current", "api") and self.comparator_devices is not None:
            wrong.append("comparator_devices")
        if wrong:
            raise ValueError(f"{', '.join(wrong)} cannot apply with comparator_policy={kind!r}")
        if self.comparator_generation_mode == "decentralized" and self.comparator_centralized_agent_index != 0:
            raise ValueError(
                f"comparator_centralized_agent_index={self.comparator_centralized_agent_index} "
                "needs comparator_generation_mode='centralized'"
            )


def check_agent_index(options: ComparatorOptions, team_size: int) -> None:
    """Refuse the index of an agent that there is not.

    Raises:
        ValueError: naming option, value and what is expected.
    """
    index = options.comparator_centralized_agent_index
    if index >= team_size:
        raise ValueError(f"comparator_centralized_agent_index must be below the number of agents, {team_size}, got {index}")


def build_comparator(
    options: ComparatorOptions,
    policies: Mapping[AgentID, HFPolicy],
    sampling: SamplingConfig,
    adapter: JointAgentAdapter | None = None,
    model_config: ModelConfig | None = None,
) -> Comparator:
    """The comparator of the options, its models loaded.

    Args:
        options: checked ones.
        policies: of the team.
        sampling: how a model draws.
        adapter: of centralised generation; `TaggedSections` over the agents' names by default.
        model_config: how comparator models are loaded.

    Raises:
        ValueError: a model that cannot be loaded, an agent's index that there is not, or an adapter without use.
    """
    central = options.comparator_generation_mode == "centralized"
    if adapter is not None and not central:
        raise ValueError("centralized_comparator_adapter needs comparator_generation_mode='centralized'")
    check_agent_index(options, len(policies))
    if central:
        return _centralized(options, policies, sampling, model_config, adapter or TaggedSections(tuple(policies)))
    if options.comparator_policy == "api":
        return EndpointComparator(policies, EndpointPolicy(options, sampling))
    writers, history = _writers(options, policies, sampling, model_config, list(policies))
    return PolicyComparator(policies, writers, history)


def _centralized(
    options: ComparatorOptions,
    policies: Mapping[AgentID, HFPolicy],
    sampling: SamplingConfig,
    model_config: ModelConfig | None,
    adapter: JointAgentAdapter,
) -> CentralizedComparator:
    index = options.comparator_centralized_agent_index
    if options.comparator_policy == "api":
        writer: Writer = endpoint_writer(EndpointPolicy(options, sampling), index)
        return CentralizedComparator(policies, writer, adapter)
    agent = list(policies)[index]
    # One model writes, so no other one is loaded, copied or remembered.
    writers, history = _writers(options, policies, sampling, model_config, [agent])
    return CentralizedComparator(policies, policy_writer(writers[agent]), adapter, history)


def _writers(
    options: ComparatorOptions,
    team: Mapping[AgentID, HFPolicy],
    sampling: SamplingConfig,
    model_config: ModelConfig | None,
    agents: Sequence[AgentID],
) -> tuple[Mapping[AgentID, HFPolicy], PolicyHistory | None]:
    """Who writes for the agents named, and what keeps them up to date if they are copies of the team."""
    policies = {agent: team[agent] for agent in agents}
    kind = options.comparator_policy
    if kind == "current":
        return policies, None
    devices = _by_agent("comparator_devices", "one device or ", options.comparator_devices, team)
    if kind == "model":
        names = _by_agent("comparator_agents", "", options.comparator_agents, team)
        loaded = load_policies(
            agent_model=options.comparator_model_name,
            agents=None if options.comparator_agents is None else [str(names[agent]) for agent in agents],
            names=agents,
            sampling=sampling,
            model_config=model_config,
            devices=[devices[agent] or str(policies[agent].device) for agent in agents],
            prompt_overflow=policies[agents[0]].prompt_overflow,
        )
        return {agent: policy.frozen_copy() for agent, policy in loaded.items()}, None
    copies = _copies(policies, devices)
    lag = 0 if kind == "current_copy" else options.comparator_history_k or 1
    return copies, PolicyHistory(policies, copies, lag)


def _by_agent(
    option: str, or_one: str, values: str | Sequence[str] | None, team: Mapping[AgentID, HFPolicy]
) -> dict[AgentID, str | None]:
    """Each agent's own of one value for all or one for each."""
    if values is None or isinstance(values, str):
        return dict.fromkeys(team, values)
    if len(values) != len(team):
        raise ValueError(f"{option} must be {or_one}one for each of {len(team)} agents, got {list(values)}")
    return dict(zip(team, values, strict=True))


def _copies(policies: Mapping[AgentID, HFPolicy], devices: Mapping[AgentID, str | None]) -> dict[AgentID, HFPolicy]:
    """A frozen copy of each distinct policy, on the device of its first agent."""
    made: dict[int, HFPolicy] = {}
    for agent, policy in policies.items():
        if id(policy) not in made:
            made[id(policy)] = policy.frozen_copy(devices[agent])
    return {agent: made[id(policy)] for agent, policy in policies.items()}

"""Who plans what: the slots of a plan, and how they are shared out to the agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, TypeVar, get_args

from llm_envs.task import agent_names
from llm_envs.types import AgentID

_T = TypeVar("_T")

Slot: TypeAlias = tuple[int, str]
"""(day from 1, field)."""

LOGISTICS = ("current_city", "transportation", "accommodation")
MEALS = ("breakfast", "lunch", "dinner")
EXPERIENCE = ("breakfast", "attraction", "lunch", "dinner")
ROLES = {"logistics": LOGISTICS, "experience": EXPERIENCE}
SLOT_FIELDS = ("current_city", "transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
"""Of a day, in TravelPlanner's order."""

RoleMode: TypeAlias = Literal["partitioned_roles", "soft_roles", "same_prompt"]


@dataclass(frozen=True)
class Team:
    """The agents and their parts.

    One agent plans everything. Of several the first half (rounded down) plans logistics, the others experience. Within a role
    whole fields are dealt out in consecutive groups; where a role has more agents than fields, its fields are dealt out to as many
    agents each as possible, who share a field's days in consecutive groups. Groups are as even as possible, larger ones first.

    Attributes:
        agents: their names.
        role_mode: what the parts mean. `partitioned_roles`: an agent's answer may have as many slots as its part;
            `soft_roles`: the part is a proposal; `same_prompt`: nobody hears of parts.

    Raises:
        ValueError: for an unknown mode, or a name of one role in the other's place.
    """

    agents: tuple[AgentID, ...]
    role_mode: RoleMode

    def __post_init__(self) -> None:
        if self.role_mode not in get_args(RoleMode):
            raise ValueError(f"role_mode must be one of {', '.join(get_args(RoleMode))}, got {self.role_mode!r}")
        for number, agent in enumerate(self.agents):
            word = agent.rpartition("_")[0]
            if word in ROLES and word != self.role(number):
                raise ValueError(
                    f"agents: of {len(self.agents)} the first {len(self.agents) // 2} plan logistics, the others experience; "
                    f"{agent!r} is number {number + 1}"
                )

    @property
    def binding(self) -> bool:
        """Whether an agent may fill no more slots than its part has."""
        return self.role_mode == "partitioned_roles" or len(self.agents) == 1

    def role(self, agent: int) -> str:
        """The role of the agent with this number; "planner" for a single agent."""
        if len(self.agents) == 1:
            return "planner"
        return "logistics" if agent < len(self.agents) // 2 else "experience"

    def part(self, agent: int, days: int) -> tuple[Slot, ...]:
        """The slots of the agent with this number, in order of days.

        Raises:
            ValueError: if a role has more agents than slots.
        """
        if len(self.agents) == 1:
            return all_slots(days)
        logistics = len(self.agents) // 2
        if agent < logistics:
            slots = _shares(LOGISTICS, logistics, days)[agent]
        else:
            slots = _shares(EXPERIENCE, len(self.agents) - logistics, days)[agent - logistics]
        return tuple(sorted(slots, key=lambda slot: (slot[0], SLOT_FIELDS.index(slot[1]))))

    def parts(self, days: int) -> list[tuple[Slot, ...]]:
        """Every agent's slots."""
        return [self.part(agent, days) for agent in range(len(self.agents))]

    def most_slots(self, agent: int, days: int) -> int:
        """How many slots an agent's answer may have."""
        return len(self.part(agent, days)) if self.binding else len(SLOT_FIELDS) * days


def team_of(agents: int | Sequence[AgentID], role_mode: RoleMode) -> Team:
    """The team; for a number `planner_0` or `logistics_0`, …, `experience_0`, …."""
    if isinstance(agents, int) and not isinstance(agents, bool) and agents > 1:
        logistics = agents // 2
        agents = [f"logistics_{k}" for k in range(logistics)] + [f"experience_{k}" for k in range(agents - logistics)]
    return Team(agent_names(["planner_0"] if agents == 1 and not isinstance(agents, bool) else agents), role_mode)


def all_slots(days: int) -> tuple[Slot, ...]:
    """Every slot of a plan."""
    return tuple((day, field) for day in range(1, days + 1) for field in SLOT_FIELDS)


def _shares(fields: Sequence[str], agents: int, days: int) -> list[list[Slot]]:
    if agents <= len(fields):
        return [[(day, field) for field in group for day in range(1, days + 1)] for group in groups_of(fields, agents)]
    if agents > len(fields) * days:
        raise ValueError(f"{agents} agents cannot share {', '.join(fields)} of {days} days, which are {len(fields) * days} slots")
    shares: list[list[Slot]] = []
    for field, sharing in zip(fields, groups_of(range(agents), len(fields)), strict=True):
        shares += [[(day, field) for day in group] for group in groups_of(range(1, days + 1), len(sharing))]
    return shares


def groups_of(things: Sequence[_T], count: int) -> list[Sequence[_T]]:
    """The things in so many consecutive groups, as even as possible, the larger ones first."""
    size, larger = divmod(len(things), count)
    ends = [number * size + min(number, larger) for number in range(count + 1)]
    return [things[start:end] for start, end in pairwise(ends)]

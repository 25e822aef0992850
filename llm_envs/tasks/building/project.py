"""What both building tasks share: judging a turn, and the prompts of the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from llm_envs.tasks.building.commands import Cell
from llm_envs.tasks.building.materials import Grid
from llm_envs.tasks.building.world import Report, Rules, World, built
from llm_envs.tasks.turns import turn_weight
from llm_envs.types import AgentID, Item, State

TargetShown: TypeAlias = Literal["all", "split", "first", "none"]
"""Who sees the target: everybody all of it; everybody a part of his own; the first agent alone; nobody."""

KEPT = "What stands is kept."
TAKEN_AWAY = "Everything is taken away again: build it anew. This is about what stood."

REJECTED_SHOWN = 5
"""Lines that a prompt lists as rejected."""


@dataclass(frozen=True)
class Score:
    """How good a world is.

    Attributes:
        paid: the terms of the reward, before they are weighted by turn; with `factors` their sum is in [0, 1].
        factors: what each of them counts.
        iou: of the cells that are not air.
        solved: whether nothing is wrong.
    """

    paid: Mapping[str, float]
    factors: Mapping[str, float]
    iou: float
    solved: bool

    @property
    def total(self) -> float:
        """The score of the world. In [0, 1]."""
        return sum(self.factors[term] * value for term, value in self.paid.items())


class Project(Protocol):
    """One building task for a certain team."""

    @property
    def agents(self) -> tuple[AgentID, ...]:
        """The team."""
        ...

    @property
    def num_turns(self) -> int:
        """Turns of an episode."""
        ...

    @property
    def keep_world(self) -> bool:
        """Whether a turn goes on with what the turns before have built."""
        ...

    def rules(self, item: Item) -> Rules:
        """What the agents may do on this row."""
        ...

    def target(self, item: Item) -> Grid:
        """What is to be built on this row."""
        ...

    def score(self, item: Item, world: World) -> Score:
        """How good a world is."""
        ...


def world_at(project: Project, state: State) -> World:
    """The world that the next turn starts from: what was built before if the world is kept, else an empty one."""
    turns = [tuple(turn.actions[agent] for agent in project.agents) for turn in state.history] if project.keep_world else []
    return built(project.rules(state.item), turns)


def last_world(project: Project, state: State) -> World:
    """The world as the last turn left it, also if the next one starts from an empty one; empty before the first."""
    turns = [tuple(turn.actions[agent] for agent in project.agents) for turn in state.history]
    return built(project.rules(state.item), turns if project.keep_world else turns[-1:])


@dataclass(frozen=True)
class Judge:
    """The reward: all terms of the world after the turn, those that are paid weighted by what the turn counts. Sum in [0, 1].

    `rejected` is each agent's number of lines that were no command or could not be obeyed.
    """

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    project: Project

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[dict[str, object]]:
        """The terms of each joint response."""
        (item,) = batch_items
        rules, before = self.project.rules(item), world_at(self.project, states[0])
        rows: list[dict[str, object]] = []
        for texts in zip(*responses, strict=True):
            world = before.copy()
            reports = world.play(rules, texts)
            score = self.project.score(item, world)
            weight = turn_weight(score.solved, states[0].turn + 1, self.project.num_turns)
            rows.append(
                {
                    **{term: value * weight for term, value in score.paid.items()},
                    "iou": score.iou,
                    "solved": float(score.solved),
                    "rejected": [len(report.rejected) for report in reports],
                }
            )
        return rows


ProjectT = TypeVar("ProjectT", bound=Project)


@dataclass(frozen=True)
class Scene(Generic[ProjectT]):
    """A turn that is over: what feedback may be written from.

    Attributes:
        project: the task.
        item: the row.
        rules: of the row.
        target: of the row.
        world: after the turn.
        reports: what became of each agent's text.
    """

    project: ProjectT
    item: Item
    rules: Rules
    target: Grid
    world: World
    reports: Sequence[Report]

    @property
    def num_agents(self) -> int:
        """Size of the team."""
        return len(self.project.agents)


Feedback: TypeAlias = Callable[[Scene[Any], int], str]
"""Scene and number of an agent → what the agent is told."""


@dataclass(frozen=True)
class NextTurn:
    """The transition: every agent's next prompt, None when the target stands.

    Attributes:
        project: the task.
        feedback: writes what an agent is told about the world.
        original_prompt: whether the first prompt follows again.
        previous_response: whether the agent's last text follows.
    """

    project: Project
    feedback: Feedback
    original_prompt: bool
    previous_response: bool

    def __call__(
        self,
        item: Item,
        agent_completions: Sequence[str],
        prompt_history_per_agent: Sequence[Sequence[str]],
        turn: int,
        state: State,
    ) -> list[str] | None:
        """One prompt for each agent."""
        rules, world = self.project.rules(item), world_at(self.project, state)
        reports = world.play(rules, agent_completions)
        if self.project.score(item, world).solved:
            return None
        scene = Scene(self.project, item, rules, self.project.target(item), world, reports)
        stands = KEPT if self.project.keep_world else TAKEN_AWAY
        prompts = []
        for agent, text in enumerate(agent_completions):
            parts = [f"Turn {turn + 1} of {self.project.num_turns}. {stands}", self.feedback(scene, agent)]
            if "kill" in rules.verbs and not world.killed:
                parts.append("Nobody has killed the spiders.")
            parts += rejections(reports[agent])
            if self.previous_response:
                parts.append(f"You wrote:\n{text}")
            if self.original_prompt:
                parts.append(prompt_history_per_agent[agent][0])
            prompts.append("\n\n".join(parts))
        return prompts


def rejections(report: Report) -> list[str]:
    """One part of a prompt that lists the first rejected lines with their reasons; none without any."""
    if not report.rejected:
        return []
    lines = [f"line {one.line}, {one.text[:60]!r}: {one.reason}" for one in report.rejected[:REJECTED_SHOWN]]
    more = len(report.rejected) - len(lines)
    return ["\n".join(["These lines of yours did nothing:", *lines, *([f"and {more} more"] if more else [])])]


def score_feedback(scene: Scene[Any], agent: int) -> str:
    """The score of the world as it stands, to four decimals."""
    return f"The score of what you built is {scene.project.score(scene.item, scene.world).total:.4f} of 1."


def share_of(cell: Cell, num_agents: int) -> int:
    """The agent that is told about a cell: (x + y + z) modulo their number, so that neighbours go to different agents."""
    return sum(cell) % num_agents


def span(total: int, shares: int, number: int) -> range:
    """The numbers from 0 to `total` that belong to one of `shares` neighbouring parts, as equal as they can be."""
    return range(number * total // shares, (number + 1) * total // shares)


def shown_part(target_shown: TargetShown, total: int, num_agents: int, agent: int) -> range:
    """The columns or layers of the target, out of `total`, that an agent sees."""
    if target_shown == "split":
        return span(total, num_agents, agent)
    sees = target_shown == "all" or (target_shown == "first" and agent == 0)
    return range(total if sees else 0)


def refused_with_items(defaults: Mapping[str, object], **options: object) -> None:
    """Refuse options that make rows, beside own rows.

    Args:
        defaults: of the task's options; these values pass.
        options: as they were given.

    Raises:
        ValueError: naming the option.
    """
    for option, value in options.items():
        if (tuple(value) if isinstance(value, list) else value) != defaults[option]:
            raise ValueError(f"{option}={value!r} is about rows that are made here; leave it out with items of your own")


SHOWN = get_args(TargetShown)


def others_of(project: Project, agent: int) -> str:
    """The names of the other agents, joined; empty for a team of one."""
    others = [name for number, name in enumerate(project.agents) if number != agent]
    return f"{', '.join(others[:-1])} and {others[-1]}" if len(others) > 1 else "".join(others)


def order_of(project: Project) -> str:
    """A sentence that says whose commands run first; empty for a team of one."""
    return f" The commands of {', then '.join(project.agents)} run in this order." if len(project.agents) > 1 else ""

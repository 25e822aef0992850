"""`travel-v0`: planners of one trip fill slots of their own, so that the whole plan is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args

from llm_envs.rewards import terms
from llm_envs.task import Task
from llm_envs.tasks.options import checked_choice, checked_count, checked_flags
from llm_envs.tasks.sources import HubData, Source, Sources, split_rows
from llm_envs.tasks.travel.answers import write_answer
from llm_envs.tasks.travel.feedback import MODES, Feedback, Mode
from llm_envs.tasks.travel.generated import CITIES, Generated, generated_rows
from llm_envs.tasks.travel.judge import LOGGED, WEIGHTS, Judge
from llm_envs.tasks.travel.prompts import Prompt
from llm_envs.tasks.travel.solver import cheapest_plan
from llm_envs.tasks.travel.team import RoleMode, Team, groups_of, team_of
from llm_envs.tasks.travel.travelplanner import convert_row
from llm_envs.tasks.travel.trips import FIELDS, LEVELS, read_trip
from llm_envs.tasks.travel.world import Size
from llm_envs.types import AgentID, Item

HubPart: TypeAlias = Literal["train", "validation"]


def task(
    *,
    agents: int | Sequence[AgentID] = 2,
    role_mode: RoleMode = "partitioned_roles",
    hints: bool = False,
    num_turns: int = 1,
    feedback: Mode = "checks",
    original_prompt: bool = True,
    previous_response: bool = True,
    source: Source = "builtin",
    path: str | None = None,
    hub_part: HubPart = "train",
    days: Sequence[int] | None = None,
    levels: Sequence[str] | None = None,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
    seed: int = 0,
    train_rows: int = 64,
    eval_rows: int = 16,
    cities: int = 30,
    rooms: int = 6,
    restaurants: int = 8,
    sights: int = 4,
    spare_cities: int = 0,
    margin: float = 0.3,
) -> Task:
    """Planners of one trip fill slots of their own: where to be and to sleep, what to eat and to see.

    `logistics_0` says where, how and in which room, `experience_0` meals and sights. Each reads the request and the part of the
    catalogue that its slots need, and writes a JSON list of
    `{"day": 1, "field": "dinner", "value": "restaurant, city"}`. Answers are merged: slots with different values are emptied, an
    answer that is no such list or has too many slots counts as empty. With G the share of needed values that are there and in the
    catalogue, a turn scores

    * 0.25 · grounding: F1 of G and of the share of values that are in the catalogue;
    * 0.25 · common_sense: G · share of the eight checks that hold (`checks.COMMON_SENSE`);
    * 0.10 · hard: G · share of the request's wishes that hold (cuisine, room rule, room type, transport);
    * 0.10 · budget: G · (1 within the budget, falling to 0 at twice the budget);
    * 0.10 · collaboration: what the weakest agent did of its part · (1 − overlap);
    * 0.20 · success: everything holds, and every agent did its part.

    `solved` (as success), `format`, `overlap`, `conflicts` and `cost` are logged. With several turns a score is divided by their
    number; the episode ends when solved, which is paid for the turns it saves as well.

    Range: rewards and returns in [0, 1], shared by the team.

    Args:
        agents: their number or names; the first half plans logistics (`Team`).
        role_mode: `partitioned_roles`, `soft_roles` or `same_prompt`.
        hints: tell a route that works, shares of the budget and the rules.
        num_turns: tries.
        feedback: what is said between turns: `plain` (nothing), `passed` (which terms hold), `checks` (what failed in one's slots).
        original_prompt: repeat the first prompt in later ones.
        previous_response: show an agent its last answer.
        source: "builtin" (made-up worlds), "path" or "hub" (rows of TravelPlanner).
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        hub_part: which rows of TravelPlanner. 45 are meant to be trained on, the 180 of validation to be measured on.
        days: lengths of trips, all unless given; made-up ones are of 3, 5 and 7 days.
        levels: of easy, medium, hard; all unless given.
        eval_ids: ids of the evaluation rows.
        eval_share: share of rows for evaluation, by their ids; a quarter of rows that are not made up.
        seed: of the made-up worlds; one for training, another for evaluation.
        train_rows: made-up rows to train on.
        eval_rows: made-up rows for evaluation.
        cities: of a made-up world.
        rooms: of a made-up city.
        restaurants: of a made-up city.
        sights: of a made-up city.
        spare_cities: made-up cities in a catalogue beyond those that must be visited.
        margin: by what share a made-up budget is above the cheapest plan's cost.
    """
    team = team_of(agents, role_mode)
    checked_flags(hints=hints, original_prompt=original_prompt, previous_response=previous_response)
    checked_choice("feedback", feedback, list(MODES))
    checked_count("num_turns", num_turns, 1)
    made_up = Generated(
        seed=seed,
        train_rows=train_rows,
        eval_rows=eval_rows,
        size=Size(cities, rooms, restaurants, sights),
        days=tuple(CITIES if days is None else days),
        levels=tuple(LEVELS if levels is None else levels),
        spare_cities=spare_cities,
        margin=margin,
    )
    if source == "builtin" and eval_ids is None and eval_share is None:
        eval_ids = [row["id"] for row in generated_rows(made_up)[1]]
    rows = chosen_rows(sources(made_up, hub_part).rows(source, path), days, levels)
    train, held = split_rows(rows, "id", eval_ids=eval_ids, eval_share=eval_share)
    for length in sorted({row["days"] for row in rows}):
        team.parts(length)
    judge = Judge(team, num_turns)
    return Task(
        name="travel-v0",
        items=train,
        eval_items=held,
        agents=team.agents,
        formatters=[Prompt(team, agent, hints) for agent in range(len(team.agents))],
        reward=terms(judge, **WEIGHTS, **dict.fromkeys(LOGGED, 0.0)),
        transition=Feedback(judge, feedback, original_prompt, previous_response) if num_turns > 1 else None,
        num_turns=num_turns,
        external_prompt_passthrough=True,
        reference=Reference(team),
    )


def sources(made_up: Generated, hub_part: HubPart) -> Sources:
    """Where the rows come from.

    Raises:
        ValueError: for a part of the hub's data set that it does not have.
    """
    checked_choice("hub_part", hub_part, get_args(HubPart))
    return Sources(
        family="travel-v0",
        builtin=partial(_all_rows, made_up),
        fields=FIELDS,
        hub=HubData("osunlp/TravelPlanner", hub_part, hub_part),
        convert=_checked_row,
    )


def _all_rows(made_up: Generated) -> list[Item]:
    train, held = generated_rows(made_up)
    return [*train, *held]


def _checked_row(row: Item) -> Item:
    converted = convert_row(row)
    read_trip(converted)
    return converted


def chosen_rows(rows: Sequence[Item], days: Sequence[int] | None, levels: Sequence[str] | None) -> list[Item]:
    """The rows of these lengths and levels, all for None.

    Raises:
        ValueError: if there are none.
    """
    chosen = [row for row in rows if (days is None or row["days"] in days) and (levels is None or row.get("level") in levels)]
    if not chosen:
        there = sorted({(row["days"], row.get("level")) for row in rows}, key=str)
        raise ValueError(f"no row is of days={days!r} and levels={levels!r}; there are {there}")
    return chosen


@dataclass(frozen=True)
class Reference:
    """A best joint answer: the cheapest plan, each agent its part. Where nobody hears of parts, its slots are dealt out evenly."""

    team: Team

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent.

        Raises:
            ValueError: if no plan keeps all rules and wishes.
        """
        trip = read_trip(item)
        solution = cheapest_plan(trip)
        if solution is None:
            raise ValueError(f"no plan keeps all rules and wishes of the request {trip.query!r}")
        if self.team.role_mode == "same_prompt" and not self.team.binding:
            parts = groups_of(sorted(solution.slots), len(self.team.agents))
        else:
            parts = self.team.parts(trip.days)
        return [write_answer(solution.slots, part) for part in parts]

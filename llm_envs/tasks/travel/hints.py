"""The scaffold that may be put into prompts: a route that works, shares of the budget, and what is looked at.

It gives away rules that TravelPlanner leaves to be found out: nothing measured with it may be compared with results without.
"""

from __future__ import annotations

from llm_envs.tasks.travel.solver import Solution, cheapest_plan
from llm_envs.tasks.travel.team import Team
from llm_envs.tasks.travel.trips import Trip

RULES = (
    "No restaurant and no sight twice. Everything is in the city of its day. Names are copied from the lists above. "
    "Self-driving goes with neither flights nor taxis. A room is taken for at least its fewest nights in a row."
)


def hints_for(team: Team, agent: int, trip: Trip) -> str:
    """What is said to an agent with this number.

    Raises:
        ValueError: if the trip cannot be planned at all.
    """
    solution = cheapest_plan(trip)
    if solution is None:
        raise ValueError(f"no plan keeps all rules and wishes of the request {trip.query!r}, so there are no hints for it")
    days = "\n".join(f"- day {day}: {_day(day, solution, trip)}" for day in range(1, trip.days + 1))
    route = f"A route that works, and what each day needs:\n{days}"
    return f"{route}\n{_share(team, agent, solution, trip)}\nRules: {RULES}{_duties(trip)}"


def _day(day: int, solution: Solution, trip: Trip) -> str:
    needs = ["transportation"] if day in solution.rides else ["breakfast", "attraction", "lunch", "dinner"]
    needs += ["accommodation"] if day < trip.days else []
    return f"{solution.slots[day, 'current_city']}; {', '.join(needs)}"


def _share(team: Team, agent: int, solution: Solution, trip: Trip) -> str:
    """Each role's least cost and its share of the budget: what is left over is halved, so that the shares make the budget."""
    spare = max(0.0, trip.budget - solution.cost) / 2
    parts = {"logistics": ("rides and rooms", solution.logistics), "experience": ("meals", solution.meals)}
    said = [
        f"{what} for all cost at least {least:g} and should cost at most {least + spare:g}"
        for role, (what, least) in parts.items()
        if not team.binding or team.role(agent) in (role, "planner")
    ]
    return f"Budget: {'; '.join(said)}."


def _duties(trip: Trip) -> str:
    wishes = trip.wishes
    duties = [f"a meal of {cuisine}" for cuisine in wishes.cuisines]
    duties += [f"only rooms that allow {wishes.house_rule}"] if wishes.house_rule else []
    duties += [f"only rooms of the type {wishes.room_type}"] if wishes.room_type else []
    duties += [wishes.transportation] if wishes.transportation else []
    return f" Wishes: {'; '.join(duties)}." if duties else ""

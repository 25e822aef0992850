"""Guards the made-up worlds of travel-v0: every request can be solved, the solver finds the cheapest plan, rows are apart."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import llm_envs
from llm_envs.tasks.travel import travel
from llm_envs.tasks.travel.answers import write_answer
from llm_envs.tasks.travel.checks import COMMON_SENSE, check_plan, wished
from llm_envs.tasks.travel.generated import CITIES, Generated, generated_rows, rows_in
from llm_envs.tasks.travel.itinerary import read_days, total_cost
from llm_envs.tasks.travel.judge import Judge
from llm_envs.tasks.travel.solver import cheapest_plan
from llm_envs.tasks.travel.team import MEALS, team_of
from llm_envs.tasks.travel.trips import HOUSE_RULES, LEVELS, ROOM_TYPES, fold_city, read_trip
from llm_envs.tasks.travel.world import CUISINES, Size, build_world

SMALL = Size(cities=10, rooms=3, restaurants=3, sights=1)


def solved_share(rows):
    """Share of the rows on which the solver's plan, in two parts, earns 1."""
    team = team_of(2, "partitioned_roles")
    judge = Judge(team, 1)
    solved = 0
    for row in rows:
        trip = read_trip(row)
        solution = cheapest_plan(trip)
        verdict = judge.verdict([write_answer(solution.slots, part) for part in team.parts(trip.days)], trip)
        assert total_cost(verdict.days, trip.people) == pytest.approx(solution.cost)
        solved += verdict.score == 1.0
    return solved / len(rows)


def test_the_solver_earns_the_most_on_200_requests():
    """Ten worlds for training and ten for evaluation, every length and level."""
    rows = []
    for seed in range(10):
        train, held = generated_rows(Generated(seed=seed, train_rows=18, eval_rows=2, size=Size(cities=15)))
        rows += [*train, *held]
    assert len(rows) == 200
    assert {(row["days"], row["level"]) for row in rows} == set(itertools.product(CITIES, LEVELS))
    assert solved_share(rows) == 1.0


@pytest.mark.slow
def test_the_solver_earns_the_most_for_200_seeds():
    rows = []
    for seed in range(200):
        train, held = generated_rows(Generated(seed=seed, train_rows=9, eval_rows=1))
        rows += [*train, *held]
    assert solved_share(rows) == 1.0


@pytest.mark.parametrize(
    "options", [{"margin": 0.0}, {"size": SMALL, "margin": 0.0}, {"spare_cities": 2}, {"spare_cities": 1}], ids=str
)
def test_without_a_margin_in_small_worlds_and_with_more_to_choose_from(options):
    rows = [*itertools.chain(*generated_rows(Generated(seed=3, train_rows=9, eval_rows=3, **options)))]
    assert solved_share(rows) == 1.0


def naive_least_cost(trip):
    """The cheapest of all plans that go on each day from where they were, tried one by one; None if there is none."""
    best = None
    for slots in all_plans(trip, 1, trip.org):
        days = read_days(slots, trip)
        cost = total_cost(days, trip.people)
        if (best is None or cost < best) and all(holds for name, holds in check_plan(days, trip).items() if name != "budget"):
            best = cost
    return best


def all_plans(trip, day, here):
    """From this day on: any ride, or three meals and a sight, and any room where the day ends."""
    if day > trip.days:
        yield {}
        return
    starts = [
        (here, {"current_city": here, "attraction": f"S, {here}", **dict(zip(MEALS, eaten, strict=True))})
        for eaten in itertools.combinations([one.text for one in trip.restaurants if one.city == here], 3)
    ]
    starts += [
        (ride.dest, {"current_city": f"from {here} to {ride.dest}", "transportation": ride.text})
        for ride in trip.rides
        if ride.org == here
    ]
    for there, values in starts:
        for slept in [one.text for one in trip.rooms if one.city == there] if day < trip.days else ["-"]:
            today = {**values, "accommodation": slept}
            for later in all_plans(trip, day + 1, there):
                yield {**{(day, field): value for field, value in today.items() if value != "-"}, **later}


def small_trip(rng, days, cities):
    """A trip with little to choose from, and wishes by chance; flights on any of its days."""
    names = ["Home", *("Ost", "West")[:cities]]
    dates = [f"2027-05-0{day}" for day in range(1, days + 1)]
    pairs = list(itertools.permutations(names, 2))
    price = lambda: int(rng.integers(1, 50))  # noqa: E731
    kinds = sorted({kind for kinds in ROOM_TYPES.values() for kind in kinds})
    catalogue = {
        "flights": [
            {"number": f"F{n}", "from": a, "to": b, "date": str(rng.choice(dates)), "price": price()}
            for n, (a, b) in enumerate(pairs)
        ],
        "drives": [{"from": a, "to": b, "self-driving": price(), "taxi": price()} for a, b in pairs if rng.random() < 0.7],
        "rooms": [
            {
                "name": f"R{n}",
                "city": city,
                "price": price(),
                "type": str(rng.choice(kinds)),
                "forbids": [rule for rule in HOUSE_RULES if rng.random() < 0.2],
                "min_nights": int(rng.integers(1, 3)),
                "occupancy": int(rng.integers(1, 4)),
            }
            for city in names[1:]
            for n in range(2)
        ],
        "restaurants": [
            {"name": f"E{n}", "city": city, "price": price(), "cuisines": [str(rng.choice(CUISINES[:3]))]}
            for city in names[1:]
            for n in range(5 - cities)
        ],
        "sights": [{"name": "S", "city": city} for city in names[1:]],
    }
    wishes = {"house rule": "pets" if rng.random() < 0.3 else None, "room type": "not shared room" if rng.random() < 0.3 else None}
    wishes["cuisine"] = [CUISINES[0]] if rng.random() < 0.5 else None
    wishes["transportation"] = str(rng.choice(["no flight", "no self-driving"])) if rng.random() < 0.3 else None
    return read_trip(
        {
            "query": "",
            "org": "Home",
            "dest": "",
            "days": days,
            "visiting_city_number": cities,
            "date": dates,
            "people_number": int(rng.integers(1, 7)),
            "budget": 0,
            "local_constraint": wishes,
            "catalogue": catalogue,
        }
    )


@pytest.mark.parametrize(("days", "cities", "seeds"), [(3, 1, 8), (3, 2, 12), pytest.param(4, 2, 8, marks=pytest.mark.slow)])
def test_no_plan_is_cheaper_than_the_solvers(days, cities, seeds):
    """The naive search eats nothing on days of travel; the solver may, for a wished cuisine."""
    compared = 0
    for seed in range(seeds):
        trip = small_trip(np.random.default_rng(seed), days, cities)
        solution, least = cheapest_plan(trip), naive_least_cost(trip)
        if solution is not None:
            assert all(holds for name, holds in check_plan(read_days(solution.slots, trip), trip).items() if name != "budget")
        if least is not None:
            assert solution is not None
            extra = any(field in MEALS and day in solution.rides for day, field in solution.slots)
            assert solution.cost <= least if extra else solution.cost == pytest.approx(least)
            compared += not extra
        elif not trip.wishes.cuisines:
            assert solution is None
    assert compared


def test_a_cuisine_that_only_a_day_of_travel_has_room_for():
    """Four cuisines, and three meals on the only day in the city: the fourth is eaten on the day of arrival."""
    row = {
        "query": "",
        "org": "Home",
        "dest": "",
        "days": 3,
        "visiting_city_number": 1,
        "date": ["2027-05-01", "2027-05-02", "2027-05-03"],
        "people_number": 1,
        "budget": 0,
        "local_constraint": {"cuisine": ["A", "B", "C", "D"]},
        "catalogue": {
            "flights": [],
            "drives": [{"from": "Home", "to": "Ost", "taxi": 1}, {"from": "Ost", "to": "Home", "taxi": 1}],
            "rooms": [
                {"name": "R", "city": "Ost", "price": 1, "type": "Private room", "forbids": [], "min_nights": 1, "occupancy": 1}
            ],
            "restaurants": [{"name": kind, "city": "Ost", "price": n + 1, "cuisines": [kind]} for n, kind in enumerate("ABCD")],
            "sights": [{"name": "S", "city": "Ost"}],
        },
    }
    solution = cheapest_plan(read_trip(row))
    assert solution.cost == 2 + 2 + 10
    assert sorted(slot for slot in solution.slots if slot[1] in MEALS) == [
        (1, "dinner"),
        (2, "breakfast"),
        (2, "dinner"),
        (2, "lunch"),
    ]


def test_wishes_by_level():
    train, held = generated_rows(Generated(train_rows=45))
    counts = {level: {len(wished(read_trip(row))) for row in (*train, *held) if row["level"] == level} for level in LEVELS}
    assert counts == {"easy": {0}, "medium": {1}, "hard": {3}}
    assert all(row["local_constraint"]["transportation"] is None for row in train if row["level"] != "hard")
    seen = {name for row in train for name, wish in row["local_constraint"].items() if wish}
    assert seen == {"house rule", "cuisine", "room type", "transportation"}


def test_training_and_evaluation_rows_are_apart():
    """Other requests, other worlds: even a room or a flight that has the same name has another price or rule."""
    task = travel.task(train_rows=40, eval_rows=20)
    queries = [row["query"] for row in (*task.items, *task.eval_items)]
    assert len(set(queries)) == 60
    for kind in ("flights", "rooms", "restaurants"):
        train, held = (
            {json.dumps(one, sort_keys=True) for row in rows for one in row["catalogue"][kind]}
            for rows in (task.items, task.eval_items)
        )
        assert not train & held


def test_rows_depend_on_the_seed_and_options_alone():
    options = Generated(seed=5, train_rows=4, eval_rows=2)
    first = generated_rows(options)
    generated_rows.cache_clear()
    assert generated_rows(options) == first
    other, _ = generated_rows(Generated(seed=6, train_rows=4, eval_rows=2))
    assert not {row["query"] for row in other} & {row["query"] for row in first[0]}
    assert generated_rows(Generated(seed=5, train_rows=3, eval_rows=1))[0] == first[0][:3]


def test_flights_do_not_depend_on_when_they_are_asked_for():
    world = build_world((0, 0), SMALL)
    a, b, c = world.cities[:3]
    flights = world.flights(a, b, "d", 3, 2)
    world.flights(b, c, "d", 3, 2)
    assert world.flights(a, b, "d", 3, 2) == flights
    assert world.flights(a, b, "d", 4, 2) != flights
    numbers = [
        one["number"]
        for a, b in itertools.permutations(world.cities, 2)
        for d in range(0, 84, 14)
        for one in world.flights(a, b, "", d, 1)
    ]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("size", [Size(), SMALL, Size(cities=100, rooms=20, restaurants=20, sights=20)], ids=str)
def test_worlds_of_every_size(size):
    world = build_world((1,), size)
    assert len(set(world.cities)) == size.cities
    assert sorted(itertools.chain(*world.regions.values())) == sorted(world.cities)
    assert min(map(len, world.regions.values())) >= 5
    assert not set(world.regions) & set(world.cities)
    for city in world.cities:
        for places, count in ((world.rooms, size.rooms), (world.restaurants, size.restaurants), (world.sights, size.sights)):
            assert len({one["name"] for one in places[city]}) == count
            assert {one["city"] for one in places[city]} == {city}
        assert any(one["min_nights"] == 1 for one in world.rooms[city])


def test_drives_are_by_the_kilometre():
    world = build_world((0, 0), SMALL)
    drives = [drive for a, b in itertools.permutations(world.cities, 2) if (drive := world.drive(a, b)) is not None]
    assert drives
    assert all(drive["self-driving"] == drive["taxi"] // 20 and 20 <= drive["taxi"] <= 1200 for drive in drives)
    assert [world.drive(drive["to"], drive["from"])["taxi"] for drive in drives] == [drive["taxi"] for drive in drives]


def test_sizes_make_the_catalogue():
    (row,) = travel.task(train_rows=1, eval_rows=1, days=[5], levels=["hard"], rooms=4, restaurants=9, sights=2).items
    assert {kind: len(row["catalogue"][kind]) for kind in ("rooms", "restaurants", "sights")} == {
        "rooms": 8,
        "restaurants": 18,
        "sights": 4,
    }
    (wider,) = travel.task(train_rows=1, eval_rows=1, days=[5], levels=["hard"], spare_cities=2).items
    assert len({fold_city(one["city"]) for one in wider["catalogue"]["rooms"]}) == 4
    assert len(read_trip(wider).visitable) == 4
    assert wider["visiting_city_number"] == 2


def test_a_world_with_too_little_says_so():
    world = build_world((0,), SMALL)
    empty = dataclasses.replace(world, rooms={city: [] for city in world.cities})
    with pytest.raises(
        ValueError, match=r"no easy request of 3 days was found in 200 tries: make the world larger, Size\(cities=10"
    ):
        rows_in(empty, 1, Generated(size=SMALL), "train")


def test_prompts_of_bundled_rows_say_no_rules():
    env = llm_envs.make("travel-v0")
    for item in env.items:
        for text in env.initial(item, (0,)).observations.values():
            assert "A route that works" not in text
            assert "Rules:" not in text
            assert "should cost at most" not in text


@pytest.mark.parametrize("role_mode", ["partitioned_roles", "soft_roles", "same_prompt"])
@pytest.mark.parametrize("agents", [1, 2, 3, 7, 12])
def test_the_reference_earns_1_for_every_team(agents, role_mode):
    task = travel.task(agents=agents, role_mode=role_mode, train_rows=9, eval_rows=1)
    env = llm_envs.TaskEnv(task)
    for item in task.items:
        action = dict(zip(env.possible_agents, task.reference(item), strict=True))
        (transition,) = env.branch(env.initial(item, (0,)), [action])
        assert set(transition.rewards.values()) == {1.0}


def test_lengths_are_as_the_page_says():
    """Longest prompts and reference answers of the bundled rows, in characters, rounded up to hundreds."""
    page = (Path(__file__).parents[2] / "docs" / "tasks" / "travel.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| (\d) \| ([\d ]+) \| ([\d ]+) \| ([\d ]+) \|$", page, re.MULTILINE)
    assert [int(days) for days, *_ in said] == list(CITIES)
    two, one = llm_envs.make("travel-v0"), llm_envs.make("travel-v0", agents=1)
    for days, *stated in said:
        rows = [row for row in two.items if row["days"] == int(days)]
        both = [two.initial(row, (0,)).observations for row in rows]
        found = [max(len(read[agent]) for read in both) for agent in ("logistics_0", "experience_0")]
        found.append(max(len(one.initial(row, (0,)).observations["planner_0"]) for row in rows))
        assert [int(number.replace(" ", "")) for number in stated] == [-(-length // 100) * 100 for length in found]


def test_names_of_checks():
    assert list(COMMON_SENSE) == [
        "route",
        "restaurants",
        "sights",
        "minimum nights",
        "transport",
        "current city",
        "reference",
        "complete",
    ]

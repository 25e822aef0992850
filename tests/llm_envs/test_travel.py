"""Guards travel-v0: parts, answers and their merger, every check and cost, the reward by hand, prompts, turns, and bad options."""

from __future__ import annotations

import copy
import itertools
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.env import TaskEnv
from llm_envs.tasks.travel import travel
from llm_envs.tasks.travel.answers import merge, read_answer, write_answer
from llm_envs.tasks.travel.checks import COMMON_SENSE, HARD, check_plan
from llm_envs.tasks.travel.itinerary import read_days, total_cost
from llm_envs.tasks.travel.judge import WEIGHTS, Judge
from llm_envs.tasks.travel.team import SLOT_FIELDS, all_slots, team_of
from llm_envs.tasks.travel.trips import read_trip
from llm_envs.testing import check_task

DAYS = ["2027-05-01", "2027-05-02", "2027-05-03"]


def restaurant(name, city, price, *cuisines):
    return {"name": name, "city": city, "price": price, "cuisines": list(cuisines)}


def room(name, price, kind, forbids, min_nights, occupancy):
    fields = ("name", "city", "price", "type", "forbids", "min_nights", "occupancy")
    return dict(zip(fields, (name, "Bel", price, kind, forbids, min_nights, occupancy), strict=True))


ROW = {
    "id": "by hand",
    "query": "From Arn to Bel and back.",
    "org": "Arn",
    "dest": "Bel",
    "days": 3,
    "visiting_city_number": 1,
    "date": DAYS,
    "people_number": 5,
    "budget": 400,
    "local_constraint": {
        "cuisine": ["French"],
        "house rule": "pets",
        "room type": "not shared room",
        "transportation": "no flight",
    },
    "level": "hard",
    "catalogue": {
        "flights": [
            {"number": "F1", "from": "Arn", "to": "Bel", "date": DAYS[0], "price": 50},
            {"number": "F2", "from": "Bel", "to": "Arn", "date": DAYS[2], "price": 60},
        ],
        "drives": [
            {"from": "Arn", "to": "Bel", "self-driving": 20, "taxi": 100},
            {"from": "Bel", "to": "Arn", "self-driving": 20, "taxi": 100},
        ],
        "rooms": [
            room("Loft", 40, "Entire home/apt", ["smoking"], 1, 4),
            room("Hut, small", 1, "Private room", [], 3, 2),
            room("Bunk", 2, "Shared room", ["pets"], 2, 1),
        ],
        "restaurants": [
            restaurant("Pan", "Bel", 5, "Italian"),
            restaurant("Pot", "Bel", 6, "Chinese", "Italian"),
            restaurant("Jug", "Bel", 7, "French"),
            restaurant("Cup", "Bel", 4, "Italian"),
            restaurant("Inn", "Arn", 1, "French"),
        ],
        "sights": [{"name": "Mill", "city": "Bel"}, {"name": "Wall, old", "city": "Bel"}],
    },
}
PLAN = {
    (1, "current_city"): "from Arn to Bel",
    (1, "transportation"): "Self-driving, from Arn to Bel",
    (1, "accommodation"): "Loft, Bel",
    (2, "current_city"): "Bel",
    (2, "breakfast"): "Pan, Bel",
    (2, "attraction"): "Mill, Bel;Wall, old, Bel;",
    (2, "lunch"): "Cup, Bel",
    (2, "dinner"): "Jug, Bel",
    (2, "accommodation"): "Loft, Bel",
    (3, "current_city"): "from Bel to Arn",
    (3, "transportation"): "Self-driving, from Bel to Arn",
}
"""Costs 2 · 20 for one car, 2 · 2 · 40 for two lofts, and 5 · (5 + 4 + 7): 280 of 400. 11 values are needed, 7 of logistics."""

TRIP = read_trip(ROW)
PAIR = team_of(2, "partitioned_roles")


def row(**changes):
    return {**copy.deepcopy(ROW), **changes}


def plan(**changes):
    """The plan with other values: `lunch_2="…"`; None takes one away."""
    changed = dict(PLAN)
    for name, value in changes.items():
        field, _, day = name.rpartition("_")
        changed[int(day), field] = value
    return {slot: value for slot, value in changed.items() if value is not None}


def texts_of(slots, team=PAIR):
    return [write_answer(slots, part) for part in team.parts(3)]


def verdict_on(texts, team=PAIR, item=ROW):
    return Judge(team, 1).verdict(texts, read_trip(item))


# ---- parts ----


def test_parts_of_one_and_two():
    assert team_of(1, "soft_roles").agents == ("planner_0",)
    assert team_of(1, "partitioned_roles").part(0, 3) == all_slots(3)
    assert PAIR.agents == ("logistics_0", "experience_0")
    assert PAIR.part(0, 2) == tuple((day, field) for day in (1, 2) for field in ("current_city", "transportation", "accommodation"))
    assert PAIR.part(1, 1) == ((1, "breakfast"), (1, "attraction"), (1, "lunch"), (1, "dinner"))


def test_parts_of_five_are_fields_and_of_more_are_days():
    five = team_of(5, "partitioned_roles")
    assert five.agents == ("logistics_0", "logistics_1", "experience_0", "experience_1", "experience_2")
    assert [{field for _, field in part} for part in five.parts(3)] == [
        {"current_city", "transportation"},
        {"accommodation"},
        {"breakfast", "attraction"},
        {"lunch"},
        {"dinner"},
    ]
    nine = team_of(9, "partitioned_roles")  # 4 for the 3 fields of logistics, 5 for the 4 of experience
    assert nine.part(0, 3) == ((1, "current_city"), (2, "current_city"))
    assert nine.part(1, 3) == ((3, "current_city"),)
    assert nine.part(2, 3) == ((1, "transportation"), (2, "transportation"), (3, "transportation"))
    assert nine.part(4, 3) == ((1, "breakfast"), (2, "breakfast"))


@pytest.mark.parametrize("agents", range(1, 20))
@pytest.mark.parametrize("days", [3, 5, 7])
def test_parts_are_a_division(agents, days):
    parts = team_of(agents, "partitioned_roles").parts(days)
    assert sorted(itertools.chain(*parts)) == sorted(all_slots(days))
    assert all(parts)


def test_names_of_agents_and_teams_that_cannot_be():
    assert team_of(["a_0", "b_0", "c_0"], "same_prompt").role(1) == "experience"
    with pytest.raises(ValueError, match="the first 1 plan logistics, the others experience; 'experience_0' is number 1"):
        team_of(["experience_0", "logistics_0"], "partitioned_roles")
    with pytest.raises(ValueError, match="10 agents cannot share current_city, transportation, accommodation of 3 days"):
        travel.task(agents=20)
    with pytest.raises(ValueError, match="agents must be at least 1, got 0"):
        travel.task(agents=0)
    with pytest.raises(ValueError, match="agents must be at least 1, got True"):
        travel.task(agents=True)


# ---- answers ----

ENTRY = '{"day": 1, "field": "lunch", "value": " Pan, Bel "}'


@pytest.mark.parametrize(
    "text",
    [f"[{ENTRY}]", f" \n[{ENTRY}]\n", f"```json\n[{ENTRY}]\n```", f"Here it is:\n```\n[{ENTRY}]```\nGood luck."],
    ids=["plain", "spaces", "fence", "fence in words"],
)
def test_answers_that_are_read(text):
    assert read_answer(text, 3, 9).slots == {(1, "lunch"): "Pan, Bel"}
    assert read_answer(text, 3, 9).problem == ""


@pytest.mark.parametrize("value", ["-", "", " - "])
def test_empty_values(value):
    answer = read_answer(json.dumps([{"day": 1, "field": "lunch", "value": value}]), 3, 9)
    assert (answer.slots, answer.problem) == ({}, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no JSON"),
        (f"Here it is: [{ENTRY}]", "is no JSON"),
        (f"```\n[{ENTRY}]\n```\n```\n[{ENTRY}]\n```", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[" + "9" * 5000 + "]", "is no JSON"),
        (ENTRY, "is no JSON list"),
        ("[1]", "has an entry that is no slot"),
        ('[{"day": 1, "field": "lunch"}]', "has an entry that is no slot"),
        ('[{"day": 1, "field": "lunch", "value": "-", "note": ""}]', "has an entry that is no slot"),
        ('[{"day": 1, "field": "lunch", "value": null}]', "has an entry that is no slot"),
        ('[{"day": 1, "field": "tea", "value": "-"}]', "has an entry that is no slot"),
        ('[{"day": 1, "field": ["lunch"], "value": "-"}]', "has an entry that is no slot"),
        ('[{"day": 0, "field": "lunch", "value": "-"}]', "has an entry that is no slot"),
        ('[{"day": 4, "field": "lunch", "value": "-"}]', "has an entry that is no slot"),
        ('[{"day": true, "field": "lunch", "value": "-"}]', "has an entry that is no slot"),
        ('[{"day": "1", "field": "lunch", "value": "-"}]', "has an entry that is no slot"),
        (f"[{ENTRY}, {ENTRY}]", "has a slot twice"),
        (f"[{','.join([ENTRY] * 10)}]", "has more than 9 slots"),
    ],
)
def test_answers_that_are_rejected_whole(text, problem):
    answer = read_answer(text, 3, 9)
    assert (answer.slots, answer.problem) == ({}, problem)


def test_a_written_answer_is_read_again():
    text = write_answer(PLAN, PAIR.part(0, 3))
    assert text.startswith('[{"day": 1, "field": "current_city", "value": "from Arn to Bel"},\n')
    assert read_answer(text, 3, 9).slots == {slot: value for slot, value in PLAN.items() if slot in PAIR.part(0, 3)}
    assert read_answer(write_answer({}, []), 3, 9).slots == {}


def entries(**values):
    return json.dumps([{"day": int(name[-1]), "field": name[:-2], "value": value} for name, value in values.items()])


def test_merging_counts_overlap_and_removes_conflicts():
    """Seven values in four slots: three beyond the first. Case and spaces make no conflict; a single answer can be no overlap."""
    team = team_of(3, "same_prompt")
    texts = [
        entries(lunch_1="Pan, Bel", dinner_1="Pot, Bel", lunch_2="Jug, Bel"),
        entries(lunch_1="pan,  bel", dinner_1="Pan, Bel"),
        entries(lunch_1="PAN, BEL", dinner_2="-", breakfast_3="Cup, Bel"),
    ]
    merged = merge(texts, team, 3)
    assert merged.slots == {(1, "lunch"): "Pan, Bel", (2, "lunch"): "Jug, Bel", (3, "breakfast"): "Cup, Bel"}
    assert merged.writers == {(1, "lunch"): (0, 1, 2), (2, "lunch"): (0,), (3, "breakfast"): (2,)}
    assert merged.conflicts == ((1, "dinner"),)
    assert merged.overlap == 3 / 7
    assert merge(["", "", ""], team, 3).overlap == 0.0


def test_an_answer_of_more_slots_than_the_part_is_rejected_where_parts_bind():
    everything = write_answer(PLAN, all_slots(3))
    assert merge([everything, "[]"], PAIR, 3).answers[0].problem == "has more than 9 slots"
    assert merge([everything, "[]"], team_of(2, "soft_roles"), 3).slots == PLAN


@given(st.permutations(range(3)))
def test_merging_does_not_depend_on_the_order_of_agents(order):
    team = team_of(3, "soft_roles")
    texts = [entries(lunch_1="a, b", dinner_1="x"), entries(lunch_1="a, b"), entries(dinner_1="y", lunch_3="z")]
    merged = merge(texts, team, 3)
    again = merge([texts[n] for n in order], team, 3)
    assert (again.slots, again.conflicts, again.overlap) == (merged.slots, merged.conflicts, merged.overlap)


# ---- checks and costs ----


def failing(slots, item=ROW):
    trip = read_trip(item)
    return {name for name, holds in check_plan(read_days(slots, trip), trip).items() if not holds}


def test_everything_holds_of_the_plan():
    assert set(check_plan(read_days(PLAN, TRIP), TRIP)) == {*COMMON_SENSE, "budget", *HARD}
    assert failing(PLAN) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"current_city_2": None}, {"route", "current city", "complete"}),
        ({"current_city_2": "Arn"}, {"route", "current city"}),
        ({"current_city_2": "Nowhere"}, {"route", "current city", "reference"}),
        ({"current_city_2": "Bel(Region)"}, set()),
        ({"current_city_2": "from Bel to Bel"}, {"route", "current city", "reference"}),
        ({"current_city_1": "Bel"}, {"route", "current city", "complete"}),
        ({"current_city_3": "Bel"}, {"route", "current city", "complete"}),
        ({"current_city_1": "FROM arn TO bel"}, set()),
        ({"lunch_2": "Pan, Bel"}, {"restaurants"}),
        ({"lunch_2": "pan, bel"}, {"restaurants"}),
        ({"lunch_2": None}, {"complete"}),
        ({"lunch_2": "Kiosk, Bel"}, {"reference"}),
        ({"lunch_2": "Cup"}, {"current city", "reference"}),
        ({"lunch_2": "Inn, Arn"}, {"current city"}),
        ({"breakfast_1": "Inn, Arn"}, set()),
        ({"dinner_2": "Pot, Bel"}, {"cuisine"}),
        ({"dinner_2": "Pot, Bel", "lunch_1": "Inn, Arn"}, {"cuisine"}),
        ({"attraction_2": "Mill, Bel; mill, Bel"}, {"sights"}),
        ({"attraction_1": "Mill, Bel"}, {"sights"}),
        ({"attraction_2": "Mill, Bel; Tower, Bel"}, {"reference"}),
        ({"attraction_2": ";"}, {"reference"}),
        ({"attraction_2": None}, {"complete"}),
        ({"accommodation_1": "Hut, small, Bel"}, {"minimum nights"}),
        ({"accommodation_1": "Hut, small, Bel", "accommodation_2": "Hut, small, Bel"}, {"minimum nights"}),
        ({"accommodation_1": "Bunk, Bel", "accommodation_2": "Bunk, Bel"}, {"room rule", "room type"}),
        ({"accommodation_2": None}, {"complete"}),
        ({"accommodation_2": "Loft, Arn"}, {"current city", "reference"}),
        ({"transportation_1": "Taxi, from Arn to Bel"}, {"transport", "budget"}),
        ({"transportation_1": "Taxi, from Arn to Bel", "transportation_3": "taxi, FROM bel TO arn"}, {"budget"}),
        ({"transportation_1": "Flight Number: F1, from Arn to Bel"}, {"transport", "transport wish", "budget"}),
        ({"transportation_1": "Flight Number: F2, from Arn to Bel"}, {"transport", "transport wish", "reference"}),
        ({"transportation_1": "Flight, from Arn to Bel"}, {"transport", "transport wish", "reference"}),
        ({"transportation_1": "Self-driving"}, {"current city", "reference"}),
        ({"transportation_1": "On foot, from Arn to Bel"}, {"reference"}),
        ({"transportation_1": "Self-driving, from Bel to Arn"}, {"current city"}),
        ({"transportation_2": "Self-driving, from Bel to Arn"}, {"current city"}),
        ({"transportation_3": None}, {"complete"}),
    ],
    ids=lambda value: ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_each_check_fails_where_it_should_and_no_other(changes, expected):
    assert failing(plan(**changes)) == expected


def test_a_flight_goes_on_its_day_only():
    late = row(date=["2027-05-02", "2027-05-03", "2027-05-04"], local_constraint={}, budget=9999)
    both = plan(transportation_1="Flight Number: F1, from Arn to Bel", transportation_3="Flight Number: f2, from Bel to Arn")
    assert failing(both, row(local_constraint={}, budget=9999)) == set()
    assert failing(both, late) == {"reference"}


def test_a_visit_twice_and_a_way_home_too_early_are_no_route():
    four = row(days=4, date=[*DAYS, "2027-05-04"], visiting_city_number=2)
    cities = {"current_city_1": "from Arn to Bel", "current_city_2": "from Bel to Arn", "current_city_3": "from Arn to Bel"}
    assert "route" in failing(plan(**cities, current_city_4="from Bel to Arn"), four)
    assert "route" in failing(plan(**cities, current_city_4="Arn"), four)


@pytest.mark.parametrize(
    ("wish", "kinds"),
    [
        ("entire room", {"Loft"}),
        ("private room", {"Hut, small"}),
        ("shared room", {"Bunk"}),
        ("not shared room", {"Loft", "Hut, small"}),
    ],
)
def test_types_of_rooms(wish, kinds):
    item = row(local_constraint={"room type": wish})
    for name in ("Loft", "Hut, small", "Bunk"):
        slept = plan(accommodation_1=f"{name}, Bel", accommodation_2=f"{name}, Bel")
        assert ("room type" in failing(slept, item)) == (name not in kinds)


@pytest.mark.parametrize("rule", ["parties", "smoking", "children under 10", "visitors", "pets"])
def test_every_house_rule_is_looked_at(rule):
    item = row(local_constraint={"house rule": rule})
    item["catalogue"]["rooms"][0]["forbids"] = [rule]
    assert failing(PLAN, item) == {"room rule"}
    item["catalogue"]["rooms"][0]["forbids"] = [other for other in ("smoking", "pets") if other != rule]
    assert failing(PLAN, item) == set()


@pytest.mark.parametrize(
    ("people", "changes", "cost"),
    [
        (5, {}, 2 * 20 + 2 * 2 * 40 + 5 * 16),
        (6, {}, 2 * 2 * 20 + 2 * 2 * 40 + 6 * 16),
        (4, {}, 2 * 20 + 2 * 40 + 4 * 16),
        (5, {"transportation_1": "Taxi, from Arn to Bel"}, 2 * 100 + 20 + 2 * 2 * 40 + 5 * 16),
        (5, {"transportation_1": "Flight Number: F1, from Arn to Bel"}, 5 * 50 + 20 + 2 * 2 * 40 + 5 * 16),
        (5, {"dinner_1": "Inn, Arn"}, 285),
        (5, {"lunch_2": "Nowhere, Bel"}, 260),
    ],
)
def test_costs(people, changes, cost):
    """A car takes 5, a taxi 4, the loft 4; meals and flights are for each; what is not in the catalogue costs nothing."""
    assert total_cost(read_days(plan(**changes), TRIP), people) == cost


def test_of_places_with_one_name_the_first_counts():
    item = row()
    item["catalogue"]["restaurants"].insert(0, restaurant("Cup", "Bel", 9, "French"))
    trip = read_trip(item)
    assert total_cost(read_days(PLAN, trip), 5) == 280 + 25


# ---- the reward ----


def terms_of(texts, team=PAIR, item=ROW):
    return {name: pytest.approx(value) for name, value in verdict_on(texts, team, item).terms().items()}


def test_weights():
    assert len(WEIGHTS) == 6
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)


def test_the_plan_earns_everything():
    verdict = verdict_on(texts_of(PLAN))
    assert verdict.score == 1.0
    assert verdict.terms()["cost"] == 280 / 400
    assert verdict.solved


def test_logistics_alone_by_hand():
    """7 of 11 needed values: G = 7/11, F1 = 14/18. The check of completeness fails, and one wish of four: no French meal."""
    assert terms_of([texts_of(PLAN)[0], "no"]) == {
        "grounding": 14 / 18,
        "common_sense": 7 / 11 * 7 / 8,
        "hard": 7 / 11 * 3 / 4,
        "budget": 7 / 11,
        "collaboration": 0,
        "success": 0,
        "solved": 0,
        "format": 0.5,
        "overlap": 0,
        "conflicts": 0,
        "cost": 0.5,
    }


def test_a_plan_with_one_wrong_name_by_hand():
    """10 of 11 needed values, of 11 written; 3 of 4 of experience."""
    terms = terms_of(texts_of(plan(lunch_2="Kiosk, Bel")))
    assert terms["grounding"] == 10 / 11
    assert terms["common_sense"] == 10 / 11 * 7 / 8
    assert terms["hard"] == terms["budget"] == 10 / 11
    assert terms["collaboration"] == 3 / 4
    assert terms["success"] == 0


@pytest.mark.parametrize(("budget", "paid"), [(280, 1.0), (279, 2 - 280 / 279), (224, 0.75), (140, 0.0), (100, 0.0), (0, 0.0)])
def test_the_budget_is_paid_down_to_twice_of_it(budget, paid):
    terms = terms_of(texts_of(PLAN), item=row(budget=budget))
    assert terms["budget"] == paid
    assert terms["success"] == (budget >= 280)


def test_values_that_nobody_needs_must_be_right_as_well():
    """A breakfast at home is no fault; one that is not in the catalogue lowers the precision to 11/12."""
    assert verdict_on(texts_of(plan(breakfast_1="Inn, Arn"))).score == 1.0
    terms = terms_of(texts_of(plan(breakfast_1="Kiosk, Arn")))
    assert terms["grounding"] == 2 * (11 / 12) / (11 / 12 + 1)


def test_what_others_did_is_not_an_agents_work():
    """Experience leaves its dinner to logistics, who leaves out an empty slot: the plan is right, the division is not."""
    logistics = [slot for slot in PAIR.part(0, 3) if slot != (2, "transportation")]
    experience = [slot for slot in PAIR.part(1, 3) if slot != (2, "dinner")]
    terms = terms_of([write_answer(PLAN, [*logistics, (2, "dinner")]), write_answer(PLAN, experience)])
    assert terms["common_sense"] == terms["hard"] == terms["grounding"] == 1
    assert (terms["collaboration"], terms["success"]) == (3 / 4, 0)


def test_overlap_costs_collaboration():
    """One of 12 values is a second one."""
    logistics = [slot for slot in PAIR.part(0, 3) if slot != (2, "transportation")]
    terms = terms_of([write_answer(PLAN, [*logistics, (2, "dinner")]), texts_of(PLAN)[1]])
    assert terms["overlap"] == 1 / 12
    assert (terms["collaboration"], terms["success"]) == (11 / 12, 0)


def test_division_of_work_where_nobody_has_a_part():
    """11 needed values, 2.75 are half an even share: whoever does one has done 1/2.75 of enough."""
    team = team_of(2, "same_prompt")
    slots = sorted(PLAN)
    for count, share in ((0, 0.0), (1, 1 / 2.75), (2, 2 / 2.75), (3, 1.0), (5, 1.0)):
        texts = [write_answer(PLAN, slots[count:]), write_answer(PLAN, slots[:count])]
        assert terms_of(texts, team)["collaboration"] == share
    many = team_of(12, "same_prompt")
    assert verdict_on([write_answer(PLAN, [slot]) for slot in slots] + ["[]"], many).score == 1.0


def test_a_proposed_part_is_enough_and_so_is_half_an_even_share():
    """Of five, the fourth has lunch: one needed value. Who plans rooms has two of them, and half an even share is 1.1."""
    five = team_of(5, "soft_roles")
    assert verdict_on(texts_of(PLAN, five), five).score == 1.0
    lazy = texts_of(PLAN, five)
    lazy[1] = write_answer(PLAN, [(1, "accommodation")])
    lazy[4] = write_answer(PLAN, [(2, "accommodation"), (2, "dinner")])
    assert terms_of(lazy, five)["collaboration"] == 1 / 1.1


@pytest.mark.parametrize("text", ["", "ok", "[]", "{}", "null", "-", write_answer({}, PAIR.part(0, 3))])
@pytest.mark.parametrize("role_mode", ["partitioned_roles", "soft_roles", "same_prompt"])
def test_empty_and_constant_answers_earn_nothing(text, role_mode):
    team = team_of(2, role_mode)
    assert verdict_on([text, text], team).score == 0.0


def test_a_copied_prompt_earns_nothing():
    task = travel.task(hints=True)
    env = TaskEnv(task)
    state = env.initial(task.items[0], (0,), 0)
    (transition,) = env.branch(state, [dict(state.observations)])
    assert set(transition.rewards.values()) == {0.0}


values = st.sampled_from([*PLAN.values(), "Inn, Arn", "Pot, Bel", "Bunk, Bel", "nothing", "Taxi, from Arn to Bel", "Arn"])
answers = st.dictionaries(st.tuples(st.integers(1, 3), st.sampled_from(SLOT_FIELDS)), values).map(
    lambda d: write_answer(d, list(d))
)


@settings(max_examples=40)
@given(texts=st.tuples(answers, answers), mode=st.sampled_from(["partitioned_roles", "soft_roles", "same_prompt"]))
def test_scores_lie_between_0_and_1_and_only_a_solved_trip_earns_1(texts, mode):
    verdict = verdict_on(texts, team_of(2, mode))
    terms = verdict.terms()
    assert all(0.0 <= terms[name] <= 1.0 for name in WEIGHTS)
    assert (verdict.score == 1.0) == verdict.solved
    assert verdict.score < 1.0 or all(verdict.checks.values())


@settings(max_examples=40)
@given(texts=st.tuples(st.text(max_size=20), st.text(max_size=20)))
def test_any_text_is_an_action(texts):
    assert verdict_on(texts).score == 0.0


# ---- a task of one row, in turns ----


@pytest.fixture
def folder(tmp_path):
    """A file of own rows: the one by hand, and another for evaluation."""
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([ROW, row(id="other")]))
    return str(file)


def task(folder, **options):
    return travel.task(source="path", path=folder, eval_ids=["other"], **options)


def play(task, *joints):
    """Rewards of each turn, and the last state."""
    env = TaskEnv(task)
    state, rewards = env.initial(task.items[0], (0, 0), 0), []
    for texts in joints:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        assert len(set(transition.rewards.values())) == 1
        rewards.append(transition.rewards[env.possible_agents[0]])
        state = transition.state
    return rewards, state


LOGISTICS_READS = """\
You are logistics_0, one of 2 planners of one trip. Each fills slots of its own and does not see what the others write. Yours: \
current_city, transportation, accommodation of days 1, 2, 3.

Request: From Arn to Bel and back.

Days: 1 is 2027-05-01, 2 is 2027-05-02, 3 is 2027-05-03.

Rides:
- Flight Number: F1, from Arn to Bel on 2027-05-01 | 50 a ticket
- Flight Number: F2, from Bel to Arn on 2027-05-03 | 60 a ticket
- Self-driving, from Arn to Bel | 20 a car for 5
- Taxi, from Arn to Bel | 100 a taxi for 4
- Self-driving, from Bel to Arn | 20 a car for 5
- Taxi, from Bel to Arn | 100 a taxi for 4

Rooms, price of a night:
- Loft, Bel | 40 | Entire home/apt | for 4 | at least 1 night | no smoking
- Hut, small, Bel | 1 | Private room | for 2 | at least 3 nights | all allowed
- Bunk, Bel | 2 | Shared room | for 1 | at least 2 nights | no pets

Answer with a JSON list only, one object for each slot and at most 9: {"day": 1, "field": "accommodation", "value": "-"}. The \
value "-" leaves a slot empty. Values:
- current_city: a city; "from A to B" on a day of travel
- transportation: "Flight Number: F, from A to B", "Self-driving, from A to B" or "Taxi, from A to B"
- accommodation: "room, city\""""

EXPERIENCE_READS = """\
You are experience_0, one of 2 planners of one trip. Each fills slots of its own and does not see what the others write. Yours: \
breakfast, attraction, lunch, dinner of days 1, 2, 3.

Request: From Arn to Bel and back.

Days: 1 is 2027-05-01, 2 is 2027-05-02, 3 is 2027-05-03.

Connections:
- from Arn to Bel: flight on 2027-05-01, self-driving, taxi
- from Bel to Arn: flight on 2027-05-03, self-driving, taxi

Restaurants, price of a meal for one:
- Pan, Bel | 5 | Italian
- Pot, Bel | 6 | Chinese, Italian
- Jug, Bel | 7 | French
- Cup, Bel | 4 | Italian
- Inn, Arn | 1 | French

Sights:
- Mill, Bel
- Wall, old, Bel

Answer with a JSON list only, one object for each slot and at most 12: {"day": 1, "field": "dinner", "value": "-"}. The value "-" \
leaves a slot empty. Values:
- breakfast: "restaurant, city"
- attraction: "sight, city"; several joined by ";"
- lunch: "restaurant, city"
- dinner: "restaurant, city\""""


def test_what_they_read_first(folder):
    observed = TaskEnv(task(folder)).initial(ROW, (0,)).observations
    assert observed == {"logistics_0": LOGISTICS_READS, "experience_0": EXPERIENCE_READS}


HINTS = """\
A route that works, and what each day needs:
- day 1: from Arn to Bel; transportation, accommodation
- day 2: Bel; breakfast, attraction, lunch, dinner, accommodation
- day 3: from Bel to Arn; transportation
Budget: {share}.
Rules: No restaurant and no sight twice. Everything is in the city of its day. Names are copied from the lists above. \
Self-driving goes with neither flights nor taxis. A room is taken for at least its fewest nights in a row. Wishes: a meal of \
French; only rooms that allow pets; only rooms of the type not shared room; no flight."""


def test_hints_stand_before_how_to_answer(folder):
    """120 are left of the budget beyond 200 and 80: 60 for each."""
    observed = TaskEnv(task(folder, hints=True)).initial(ROW, (0,)).observations
    shares = (
        "rides and rooms for all cost at least 200 and should cost at most 260",
        "meals for all cost at least 80 and should cost at most 140",
    )
    for agent, plain, share in zip(observed, (LOGISTICS_READS, EXPERIENCE_READS), shares, strict=True):
        before, answer = plain.split("\n\nAnswer with")
        assert observed[agent] == f"{before}\n\n{HINTS.format(share=share)}\n\nAnswer with{answer}"
    alone = TaskEnv(task(folder, hints=True, agents=1)).initial(ROW, (0,)).observations["planner_0"]
    assert HINTS.format(share="; ".join(shares)) in alone


def test_what_the_other_modes_read(folder):
    soft = TaskEnv(task(folder, role_mode="soft_roles")).initial(ROW, (0,)).observations
    assert "Yours are, as a rule: breakfast, attraction, lunch, dinner of days 1, 2, 3." in soft["experience_0"]
    same = TaskEnv(task(folder, role_mode="same_prompt", agents=3)).initial(ROW, (0,)).observations
    assert len(set(same.values())) == 1
    assert "You are one of 3 planners of one trip." in same["logistics_0"]
    for text in (*soft.values(), *same.values()):
        assert all(section in text for section in ("Rides:", "Rooms,", "Restaurants,", "Sights:", "at most 21:"))
    alone = TaskEnv(task(folder, agents=1)).initial(ROW, (0,)).observations["planner_0"]
    assert alone.startswith("You plan a trip.\n\nRequest: ")


def test_who_plans_one_field_reads_what_it_needs(folder):
    observed = TaskEnv(task(folder, agents=7)).initial(ROW, (0,)).observations
    sections = {
        agent: {name for name in ("Rides", "Connections", "Rooms", "Restaurants", "Sights") if f"\n{name}" in text}
        for agent, text in observed.items()
    }
    assert sections == {
        "logistics_0": {"Rides"},
        "logistics_1": {"Rides"},
        "logistics_2": {"Connections", "Rooms"},
        "experience_0": {"Connections", "Restaurants"},
        "experience_1": {"Connections", "Sights"},
        "experience_2": {"Connections", "Restaurants"},
        "experience_3": {"Connections", "Restaurants"},
    }
    assert "Yours: lunch of days 1, 2, 3." in observed["experience_2"]


WRONG = plan(lunch_2="Kiosk, Bel", accommodation_2=None)
AGAIN = "The trip is not planned yet. Answer again, with all of your slots."


@pytest.mark.parametrize(
    ("mode", "logistics", "experience"),
    [
        ("plain", "", ""),
        (
            "passed",
            *[
                "- grounding: does not hold\n- common sense: does not hold\n- hard constraints: holds\n- budget: holds\n"
                "- collaboration: does not hold\n\n"
            ]
            * 2,
        ),
        ("checks", "- complete (day 2): failed\n\n", "- reference (day 2): failed\n\n"),
    ],
)
def test_what_is_said_between_turns(folder, mode, logistics, experience):
    _, state = play(task(folder, num_turns=2, feedback=mode), texts_of(WRONG))
    for agent, text, plain, said in zip(
        state.observations, texts_of(WRONG), (LOGISTICS_READS, EXPERIENCE_READS), (logistics, experience), strict=True
    ):
        assert state.observations[agent] == f"{plain}\n\nYour last answer was:\n{text}\n\n{said}{AGAIN}"
    _, state = play(task(folder, num_turns=2, feedback=mode, original_prompt=False, previous_response=False), texts_of(WRONG))
    assert set(state.observations.values()) == {f"{logistics}{AGAIN}", f"{experience}{AGAIN}"}


def test_checks_speak_of_answers_that_were_not_read_and_of_overlap(folder):
    short = {"original_prompt": False, "previous_response": False, "num_turns": 2}
    _, state = play(task(folder, **short), [texts_of(PLAN)[0], "hello"])
    assert state.observations == {
        "logistics_0": f"- nothing failed in your slots\n\n{AGAIN}",
        "experience_0": f"- your answer was not read: it is no JSON\n\n{AGAIN}",
    }
    everything = write_answer(PLAN, sorted(PLAN))
    _, state = play(task(folder, role_mode="soft_roles", **short), [everything, everything])
    assert set(state.observations.values()) == {f"- overlap: slots were filled by several\n\n{AGAIN}"}


def test_returns_over_turns(folder):
    """A right plan ends the episode and is paid for the turns it saves: 1, then a third of a turn's score and ⅔."""
    three = task(folder, num_turns=3)
    rewards, state = play(three, texts_of(PLAN))
    assert (rewards, state.terminated, state.turn) == ([1.0], True, 1)
    rewards, state = play(three, texts_of(WRONG), texts_of(PLAN))
    assert rewards == pytest.approx([verdict_on(texts_of(WRONG)).score / 3, 2 / 3])
    assert state.terminated
    rewards, state = play(three, *[texts_of(WRONG)] * 3)
    assert sum(rewards) == pytest.approx(verdict_on(texts_of(WRONG)).score)
    assert state.terminated


def test_solved_is_logged_as_0_or_1_whatever_the_turn(folder):
    env = TaskEnv(task(folder, num_turns=2))
    state = env.initial(ROW, (0,))
    (wrong,) = env.branch(state, [dict(zip(env.possible_agents, texts_of(WRONG), strict=True))])
    (right,) = env.branch(wrong.state, [dict(zip(env.possible_agents, texts_of(PLAN), strict=True))])
    assert (wrong.infos["logistics_0"]["reward/solved"], right.infos["logistics_0"]["reward/solved"]) == (0.0, 1.0)
    assert right.infos["logistics_0"]["reward/success"] == 0.5


def test_the_range_is_declared_and_it_pickles(folder):
    env = pickle.loads(pickle.dumps(TaskEnv(task(folder, num_turns=2))))
    assert env.reward_range == (0.0, 1.0)
    env.reset(seed=0)
    env.step(dict.fromkeys(env.possible_agents, "a"))


@pytest.mark.parametrize(
    "options", [{"agents": 1}, {"agents": 5, "num_turns": 2}, {"role_mode": "same_prompt", "hints": True}], ids=str
)
def test_the_task_keeps_every_rule(folder, options):
    check_task(task(folder, **options))


# ---- options that cannot be ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role_mode": "roles"}, "role_mode must be one of partitioned_roles, soft_roles, same_prompt, got 'roles'"),
        ({"feedback": "level"}, "feedback must be one of plain, passed, checks, got 'level'"),
        ({"hints": 1}, "hints must be True or False, got 1"),
        ({"original_prompt": None}, "original_prompt must be True or False"),
        ({"num_turns": 0}, "num_turns must be a whole number"),
        ({"hub_part": "test"}, "hub_part must be one of train, validation, got 'test'"),
        ({"days": [4]}, "days must be some of 3, 5, 7, got"),
        ({"levels": ["easy", "odd"]}, "levels must be some of easy, medium, hard"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"train_rows": 0}, "train_rows must be a whole number of at least 1"),
        ({"eval_rows": True}, "eval_rows must be a whole number of at least 1"),
        ({"cities": 9}, "cities must be a whole number from 10 to 100, got 9"),
        ({"restaurants": 2}, "restaurants must be a whole number from 3 to 60"),
        ({"spare_cities": 3}, "spare_cities must be at most 2, got 3"),
        ({"margin": -0.1}, "margin must be a number of at least 0, got -0.1"),
        ({"source": "package"}, "source must be one of builtin, path, hub, got 'package'"),
        ({"path": "x"}, "path='x' goes with"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        travel.task(**options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"date": 7}, "'date' must hold a date for each of 'days', got 7"),
        ({"local_constraint": 7}, "'local_constraint' must be a mapping of wishes, got 7"),
        ({"local_constraint": {"cuisine": 7}}, "'cuisine' must be a list of cuisines, got 7"),
        ({"catalogue": 7}, "'catalogue' must be a mapping with flights, drives, rooms, restaurants, sights, got 7"),
        ({"catalogue": {**ROW["catalogue"], "rooms": [7]}}, "the catalogue's 'rooms' must be a list of mappings"),
        ({"days": 4}, "'date' must hold a date for each of 'days'"),
        ({"visiting_city_number": 3}, "3 cities and the way home need 4 days, got 3"),
        ({"people_number": 0}, "'people_number' must be a whole number of at least 1, got 0"),
        ({"budget": "much"}, "'budget' must be a number of at least 0, got 'much'"),
        (
            {"local_constraint": {"view": "sea"}},
            "'local_constraint' knows house rule, room type, transportation and cuisine, got 'view'",
        ),
        ({"local_constraint": {"room type": "suite"}}, "the local constraint 'room type' must be one of entire room"),
        ({"local_constraint": {"cuisine": "French"}}, "'cuisine' must be a list of cuisines, got 'French'"),
        ({"catalogue": {"flights": []}}, "'catalogue' must be a mapping with flights, drives, .*, got {'flights'"),
    ],
)
def test_rows_that_cannot_be(tmp_path, changes, message):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([ROW, row(id="other", **changes)]))
    with pytest.raises(ValueError, match=message) as error:
        travel.task(source="path", path=str(file))
    assert "row 1" in str(error.value)


def test_rows_of_a_length_or_level_that_is_not_there(folder):
    assert len(task(folder, days=[3], levels=["hard"]).items) == 1
    with pytest.raises(ValueError, match=r"no row is of days=None and levels=\['easy'\]; there are \[\(3, 'hard'\)\]"):
        task(folder, levels=["easy"])

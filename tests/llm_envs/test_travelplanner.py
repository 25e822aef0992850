"""Guards the loader of TravelPlanner's rows: tables as pandas prints them, texts of requests, and every kind of section."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.env import TaskEnv
from llm_envs.tasks.travel import travel
from llm_envs.tasks.travel.travelplanner import convert_row, read_reference, read_table


def table(columns, rows, index=None):
    """As pandas prints it: columns flush right with a space between, two behind an index, which is flush left."""
    cells = [list(columns), *[list(map(str, row)) for row in rows]]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    gap = " " if index is None else "  "
    lines = [gap.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    if index is None:
        return "\n".join(lines)
    names = ["", *map(str, index)]
    width = max(map(len, names))
    return "\n".join(f"{name:<{width}}  {line}" for name, line in zip(names, lines, strict=True))


SIGHT = ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City")
FOOD = ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City")
ROOM = ("NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy", "review rate number", "city")
FLIGHT = (
    "Flight Number",
    "Price",
    "DepTime",
    "ArrTime",
    "ActualElapsedTime",
    "FlightDate",
    "OriginCityName",
    "DestCityName",
    "Distance",
)


def reference():
    sights = [("Old Mill", 1.2, -6.7, "1 Mill Rd, Bel", "Unknown", "http://x", "Bel"), ("Wall, Part 2", 1, 2, "", "", "", "Bel")]
    foods = [
        ("Pan", 5, "Italian, Bakery", 4.5, "Bel"),
        ("Jug D", 7, "French", 0.0, "Bel"),
        ("Pot", 6, "Tea", 1.0, "Bel"),
        ("Pan", 9, "BBQ", 2.0, "Bel"),
    ]
    rooms = [
        ("Loft", 40.0, "Entire home/apt", "No smoking & No visitors", 1.0, 4, 3.0, "Bel"),
        ("Bunk", 2.0, "Shared room", "No children under 10 & No pets & No parties", 2.0, 1, 5.0, "Bel"),
    ]
    flight = ("F0000001", 50, "08:00", "09:30", "1 hours 30 minutes", "2022-03-01", "Arn", "Bel", 300.0)
    texts = {
        "Attractions in Bel": table(SIGHT, sights),
        "Restaurants in Bel": table(FOOD, foods, index=[3, 12, 345, 346]),
        "Accommodations in Bel": table(ROOM, rooms),
        "Accommodations in Cel": "There is no accommodation in this city.",
        "Flight from Arn to Bel on 2022-03-01": table(FLIGHT, [flight]),
        "Self-driving from Arn to Bel": "self-driving, from Arn to Bel, duration: 4 hours 1 min, distance: 1,446 km, cost: 72",
        "Taxi from Arn to Bel": "taxi, from Arn to Bel, duration: 4 hours 1 min, distance: 1,446 km, cost: 1446",
        "Flight from Bel to Arn on 2022-03-03": "There is no flight from Bel to Arn on 2022-03-03.",
        "Self-driving from Bel to Arn": "self-driving, from Bel to Arn, no valid information.",
        "Taxi from Bel to Arn": "taxi, from Bel to Arn, duration: 4 hours, distance: 440 km, cost: 440",
        "Taxi from Bel to Cel": "No valid information.",
    }
    return [{"Description": title, "Content": text} for title, text in texts.items()]


HUB_ROW = {
    "org": "Arn",
    "dest": "Bel",
    "days": "3",
    "visiting_city_number": "1",
    "date": "['2022-03-01', '2022-03-02', '2022-03-03']",
    "people_number": "2",
    "local_constraint": "{'house rule': 'parities', 'cuisine': ['French'], 'room type': None, 'transportation': None}",
    "budget": "2600",
    "query": "Two go from Arn to Bel.",
    "level": "hard",
    "annotated_plan": "[{}]",
    "reference_information": str(reference()),
}

CATALOGUE = {
    "flights": [{"number": "F0000001", "from": "Arn", "to": "Bel", "date": "2022-03-01", "price": 50.0}],
    "drives": [{"from": "Arn", "to": "Bel", "self-driving": 72, "taxi": 1446}, {"from": "Bel", "to": "Arn", "taxi": 440}],
    "rooms": [
        {
            "name": "Loft",
            "city": "Bel",
            "price": 40.0,
            "type": "Entire home/apt",
            "forbids": ["smoking", "visitors"],
            "min_nights": 1.0,
            "occupancy": 4,
        },
        {
            "name": "Bunk",
            "city": "Bel",
            "price": 2.0,
            "type": "Shared room",
            "forbids": ["parties", "children under 10", "pets"],
            "min_nights": 2.0,
            "occupancy": 1,
        },
    ],
    "restaurants": [
        {"name": "Pan", "city": "Bel", "price": 5.0, "cuisines": ["Italian", "Bakery"]},
        {"name": "Jug D", "city": "Bel", "price": 7.0, "cuisines": ["French"]},
        {"name": "Pot", "city": "Bel", "price": 6.0, "cuisines": ["Tea"]},
        {"name": "Pan", "city": "Bel", "price": 9.0, "cuisines": ["BBQ"]},
    ],
    "sights": [{"name": "Old Mill", "city": "Bel"}, {"name": "Wall, Part 2", "city": "Bel"}],
}


def test_a_row_of_the_hub_becomes_a_trip():
    row = convert_row(HUB_ROW)
    assert row["catalogue"] == CATALOGUE
    assert row["local_constraint"] == {"house rule": "parties", "cuisine": ["French"], "room type": None, "transportation": None}
    assert (row["days"], row["people_number"], row["budget"]) == (3, 2, 2600.0)
    assert row["date"] == ["2022-03-01", "2022-03-02", "2022-03-03"]
    assert "annotated_plan" not in row
    assert convert_row(row) is row


def test_ids_are_of_the_request():
    ids = {convert_row({**HUB_ROW, **change})["id"] for change in ({}, {"annotated_plan": "[]"}, {"days": 3}, {"budget": 2600})}
    assert len(ids) == 1
    assert convert_row({**HUB_ROW, "budget": 2700})["id"] not in ids
    assert convert_row({**HUB_ROW, "id": 7})["id"] == "7"


@pytest.fixture(params=[pytest.param("csv", marks=pytest.mark.slow), "json"])
def path(request, tmp_path):
    """Two rows, in the form of the hub's files, and with lists and numbers in the place of their texts."""
    file = tmp_path / f"rows.{request.param}"
    other = {**HUB_ROW, "query": "Others go from Arn to Bel.", "people_number": "3"}
    if request.param == "csv":
        pytest.importorskip("datasets")
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(HUB_ROW))
            writer.writeheader()
            writer.writerows([HUB_ROW, other])
    else:
        plain = {"days": 3, "date": ["2022-03-01", "2022-03-02", "2022-03-03"], "reference_information": reference()}
        file.write_text(json.dumps([{**HUB_ROW, **plain}, {**other, **plain}]))
    return str(file)


def test_its_rows_are_played(path, monkeypatch, tmp_path):
    """Home goes a taxi only, so there goes a flight; the loft for two nights (a party), three meals for each."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    task = travel.task(source="path", path=path, eval_share=0.5)
    assert len(task.items) == len(task.eval_items) == 1
    assert task.items[0]["catalogue"] == CATALOGUE
    env = TaskEnv(task)
    action = dict(zip(env.possible_agents, task.reference(task.items[0]), strict=True))
    (transition,) = env.branch(env.initial(task.items[0], (0,)), [action])
    people = task.items[0]["people_number"]
    info = transition.infos["logistics_0"]
    assert info["raw_reward"] == 1.0
    assert info["reward/cost"] == (people * 50 + 440 + 2 * 40 + people * (5 + 7 + 6)) / 2600


def section(title, text):
    return [{"Description": title, "Content": text}]


cell = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6)
words = st.lists(cell, min_size=1, max_size=3).map(" ".join)


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(words, st.integers(0, 99), words, words, words), min_size=1, max_size=4), shift=st.booleans())
def test_tables_are_read_back(rows, shift):
    """Also where spaces at the beginning were lost."""
    text = table(FOOD, rows)
    assert [tuple(row.values()) for row in read_table(text.lstrip() if shift else text, FOOD)] == [
        tuple(map(str, row)) for row in rows
    ]


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(words, st.integers(0, 99), words, words, words), min_size=1, max_size=4))
def test_tables_with_an_index_are_read_back(rows):
    text = table(FOOD, rows, index=[n * 37 for n in range(len(rows))])
    assert [tuple(row.values()) for row in read_table(text, FOOD)] == [tuple(map(str, row)) for row in rows]


@pytest.mark.parametrize("index", [True, False])
def test_tables_are_laid_as_pandas_does(index):
    pandas = pytest.importorskip("pandas")
    rows = [("Old Inn, The", 12, "Tea, Cafe", 4.5, "New Ton"), ("7 Oaks", 105, "BBQ", 0.0, "Bel"), ("9", 1, "X", 1.25, "Bel")]
    frame = pandas.DataFrame(rows, columns=list(FOOD), index=[4, 120, 7])
    read = read_table(frame.to_string(index=index), FOOD)
    assert [
        (one["Name"], float(one["Average Cost"]), one["Cuisines"], float(one["Aggregate Rating"]), one["City"]) for one in read
    ] == [(name, float(price), kinds, rating, city) for name, price, kinds, rating, city in rows]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"date": "yesterday"}, "'date' must be a Python literal, got 'yesterday'"),
        ({"people_number": "two"}, "'people_number' must be a number, got 'two'"),
        ({"local_constraint": None}, "'local_constraint' must be a mapping of wishes, got None"),
        ({"budget": None}, "'budget' must be a number, got None"),
        ({"days": "x"}, "'days' must be a number, got 'x'"),
        ({"date": 7}, "'date' must be a list of dates, got 7"),
        ({"reference_information": 7}, "'reference_information' must be a list of sections, .* got 7"),
        ({"reference_information": [7]}, "'reference_information' must be a list of sections, .* got 7"),
        ({"reference_information": section("Weather in Bel", "")}, "unknown kind of reference information: 'Weather in Bel'"),
        ({"reference_information": section("Restaurants in Bel", "none")}, "'Restaurants in Bel': expected a table with"),
        ({"reference_information": section("Taxi from A to B", "taxi: 40")}, "'Taxi from A to B': expected a drive with its cost"),
        ({"local_constraint": "{'house rule': 'cats'}"}, "'house rule' must be one of parties"),
        ({"local_constraint": "{'house rule'"}, "'local_constraint' must be a Python literal"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read_say_which_and_why(tmp_path, changes, message):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([HUB_ROW, {**HUB_ROW, **changes}]))
    with pytest.raises(ValueError, match=message) as error:
        travel.task(source="path", path=str(file))
    assert str(error.value).startswith("travel-v0, source 'path'")
    assert "row 1: " in str(error.value)


def test_a_table_with_lines_of_different_length_is_refused():
    text = table(FOOD, [("Pan", 5, "Italian", 4.5, "Bel"), ("Pot", 5, "Tea", 4.5, "Bel")])
    with pytest.raises(ValueError, match="lines of a table must be of one length"):
        read_table(text[:-1], FOOD)


def test_an_empty_section_is_none():
    assert read_reference([{"Description": "Restaurants in Bel", "Content": "There are no restaurants."}])["restaurants"] == []


def test_a_request_that_cannot_be_met_says_so_where_an_answer_is_wanted(tmp_path):
    wish = "{'house rule': None, 'cuisine': ['Mexican'], 'room type': None, 'transportation': None}"
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([{**HUB_ROW, "local_constraint": wish}, HUB_ROW]))
    task = travel.task(source="path", path=str(file), eval_share=0)
    with pytest.raises(ValueError, match=r"no plan keeps all rules and wishes of the request 'Two go from Arn to Bel\.'"):
        task.reference(task.items[0])
    assert task.eval_items is None

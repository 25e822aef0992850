"""Guards the code of messages: what is written is read as it was, and nothing else is read."""

from __future__ import annotations

import collections
import collections.abc
import datetime
import decimal
import fractions
import json
import math
import operator
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.sandbox.codec import MalformedError
from llm_envs.sandbox.mirror import Mirror


def nobody(*question: object) -> object:
    raise AssertionError(f"asked {question}")


def pair() -> tuple[Mirror, Mirror]:
    return Mirror(nobody, judges=True, operators=False), Mirror(nobody, judges=False, operators=False)


def crossed(value: object) -> object:
    writer, reader = pair()
    return reader.read(writer.write(("r", value)))[1]


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**40),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters(codec=None)),  # half characters too
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=-3))])),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.sets(HASHABLE, max_size=3),
    ),
    max_leaves=12,
)


def exact(value: object) -> object:
    """Types and values, so that 1, True and 1.0 are three things."""
    if isinstance(value, dict):
        return "dict", [(exact(key), exact(entry)) for key, entry in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, map(exact, value)))
    if isinstance(value, (list, tuple)):
        return type(value), [exact(entry) for entry in value]
    return type(value), repr(value)


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_plain_data_crosses_unchanged(value):
    assert exact(crossed(value)) == exact(value)


@pytest.mark.parametrize(
    "value",
    [
        range(2, 9, 3),
        slice(1, None, 2),
        ...,
        NotImplemented,
        int,
        ValueError,
        datetime.timedelta,
        len,
        bytearray(b"\x00\xff"),
        collections.OrderedDict([(2, 1), (1, 2)]),
        collections.defaultdict(list, {1: [2]}),
        collections.Counter("aab"),
        collections.deque([1, 2], 3),
        float("inf"),
        -0.0,
        decimal.Decimal("-0.00"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=5),
    ],
)
def test_other_kinds_of_data_cross(value):
    there = crossed(value)
    assert there == value and type(there) is type(value) and repr(there) == repr(value)


def test_nan_stays_nan():
    assert math.isnan(crossed(float("nan")))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.array([True]), np.zeros((0, 2), "i2")])
def test_arrays_cross(value):
    there = crossed(value)
    assert isinstance(there, np.ndarray) and there.dtype == value.dtype and there.shape == value.shape and (there == value).all()


@pytest.mark.parametrize("value", [np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("x"), np.datetime64("2020-01-02")])
def test_numpy_scalars_cross(value):
    there = crossed(value)
    assert type(there) is type(value) and there == value


def test_one_container_stays_one():
    inner: list[object] = [1]
    outer = crossed({"a": inner, "b": (inner, [inner])})
    assert outer["a"] is outer["b"][0] is outer["b"][1][0]  # type: ignore[index]
    inner.append(inner)
    again = crossed(inner)
    assert again[1] is again  # type: ignore[index]


def test_only_what_changed_is_sent_again():
    writer, reader = pair()
    big, small = list(range(1000)), [1]
    first = reader.read(writer.write(("r", (big, small))))[1]
    small.append(2)
    text = writer.write(("r", None))
    reader.read(text)
    assert first[1] == [1, 2] and len(text) < 60
    first[0].append(5)
    writer.read(reader.write(("r", None)))
    assert big[-1] == 5


@pytest.mark.parametrize(("one", "other"), [([1], [True]), ([1], [1.0]), ([0.0], [-0.0]), ([()], [[]])])
def test_changes_between_equal_values_are_seen(one, other):
    writer, reader = pair()
    there = reader.read(writer.write(("r", one)))[1]
    one[:] = other
    reader.read(writer.write(("r", None)))
    assert repr(there) == repr(other)


def test_objects_whose_tree_stays_are_packed_once():
    writer, reader = pair()

    class Id(int):
        pass

    many, inner = [Id(n) for n in range(500)], [5]
    value = (many, [Id(1), (Id(2), inner)])
    there = reader.read(writer.write(("r", value)))[1]
    assert len(writer.write(("r", None))) < 40
    many[3], inner[0] = Id(7), 6
    reader.read(writer.write(("r", None)))
    assert there[0][3] == 7 and there == (many, [1, (2, [6])])
    there[0][4] = there[0][5]
    writer.read(reader.write(("r", None)))
    assert many[4] is many[5]


def message(body: str, changed: str = "", classes: str = "") -> str:
    return f"[{body},[{changed}],[{classes}],[]]"


def answer(value: str, changed: str = "", classes: str = "") -> str:
    return message(f'["t","r",{value}]', changed, classes)


NUMBER = '[2,"x",[],[],true,"int",null]'


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[",
        "1",
        "[]",
        "{}",
        "[1,2,3,4]",
        '["r",[],[],[]]',
        message('["t"]'),
        message('["t",1]'),
        message('["t","r",{}]'),
        answer('["S",7]'),
        answer('["y",1]'),
        answer('["k",2]'),
        answer('["o",2,["B","int"]]'),
        answer('["B","eval"]'),
        answer('["B","os"]'),
        answer('["zz"]'),
        answer('["i","x"]'),
        answer('["b","?"]'),
        answer('["q",1,0]'),
        answer('["m","x"]'),
        answer('["d",0,0,0]'),
        answer('["a","O",[1],""]'),
        answer('["a","<i4",[9],""]'),
        answer('["N","x y",["a"],1]'),
        answer('["N","x",["fi","\\ufb01"],1,2]'),  # one name for the language
        answer('["a","f8,(",[1],""]'),
        answer('["a","(2",[1],""]'),
        answer('["e",["B","int"],["t"],"",null,["t"]]'),
        answer('["e",["B","ValueError"],["t"],"",null,["t",1]]'),
        answer('["f",["S",2]]', '[2,"list",null,[]]'),  # a list in a set
        answer("1", '[1,"list",null,[]]'),  # a number of the other side
        answer("1", '[2,"dict",null,[1]]'),
        answer("1", '[2,"module",null,[]]'),
        answer("1", '[2,"list"]'),
        answer("1", "", '[2,"x",[],[],true,null,"eval"]'),
        answer("1", "", '[1,"x",[],[],true,null,null]'),
        # objects whose class extends plain data: of another kind than the class, or with other data
        answer("1", "", '[2,"x",[],[],true,"object",null]'),
        answer('["p",4,["k",2],"text"]', "", NUMBER),
        answer('["p",4,["k",2],true]', "", NUMBER),
        answer('["p",4,["k",2],["p",6,["k",2],1]]', "", NUMBER),
        answer('["p",4,["k",2]]', "", NUMBER),
        answer('["o",4,["k",2]]', "", NUMBER),
        answer('["E",4,["k",2],["t"],"",null]', "", NUMBER),
        answer('["o",4,["k",2]]', "", '[2,"x",[],[],true,null,"ValueError"]'),
        answer('["p",4,["k",2],1]', "", '[2,"x",[],[],true,null,null]'),
        answer('["p",4,["k",2],["S",4]]', '[4,"list",null,[],["k",2]]', NUMBER),
        answer('["p",4,["k",2],null]', '[4,"list",null,[]]', '[2,"x",[],[],true,"list",null]'),
        *(
            answer("1", "", f'[2,"x",[],[],true,"tuple",null,[{one}]]')
            for one in ('["count",0]', '["_a",0]', '["a",-1]', '["a",true]', '["a"]', "[5,0]", '["a b",0]')
        ),
        answer("1", "", '[2,"x",[],[],true,"list",null,[["a",0]]]'),
        answer("1", "", '[2,"x",[],[],true,"tuple",null,[],[]]'),
        answer('["e",["k",2],["t"],"",null,["t"]]', "", '[2,"x",[],[],true,null,"ValueError"]'),
        answer('["t",' * 5000 + "1" + "]" * 5000),
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused(body):
    reader = Mirror(nobody, judges=True, operators=False)
    with pytest.raises(MalformedError):
        reader.read(body)


@settings(max_examples=30, deadline=None)
@given(VALUES, st.data())
def test_damaged_messages_are_refused_or_read_as_data(value, data):
    """Never another exception, whatever a solution does to the bytes."""
    writer, reader = pair()
    text = writer.write(("r", value))
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + data.draw(st.sampled_from('[]{}",:0eBSktyo.')) + text[position + 1 :]
    try:
        body = reader.read(damaged)
    except MalformedError:
        return
    assert isinstance(body[0], str)


def test_what_a_message_names_is_looked_up_in_a_fixed_table():
    text = json.dumps([["t", "r", ["B", "ValueError"]], [], [], []])
    assert Mirror(nobody, judges=True, operators=False).read(text) == ("r", ValueError)


BASES = {
    int: st.integers(),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=5),
    bytes: st.binary(max_size=5),
    tuple: st.lists(st.integers(), max_size=3).map(tuple),
    frozenset: st.frozensets(st.integers(), max_size=3),
    list: st.lists(st.integers(), max_size=3),
    set: st.sets(st.integers(), max_size=3),
    dict: st.dictionaries(st.text(max_size=2), st.integers(), max_size=3),
    collections.deque: st.lists(st.integers(), max_size=3).map(collections.deque),
    collections.Counter: st.dictionaries(st.text(max_size=2), st.integers(), max_size=3).map(collections.Counter),
    collections.OrderedDict: st.dictionaries(st.text(max_size=2), st.integers(), max_size=3).map(collections.OrderedDict),
    datetime.datetime: st.datetimes(timezones=st.sampled_from([None, datetime.timezone.utc])),
    datetime.date: st.dates(),
    decimal.Decimal: st.decimals(allow_nan=False, allow_infinity=False),
}
OPERATIONS = (
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.sub, operator.mul),
    *(operator.truediv, operator.mod, operator.and_, operator.or_, operator.contains, operator.getitem),
)
ALONE = (bool, len, list, hash, abs, json.dumps, sorted, operator.neg, set, iter)


def done(act, *values):
    """What came of it: a value with its class, or an exception's class."""
    try:
        result = act(*values)
    except Exception as error:
        return type(error)
    return exact(list(result)) if isinstance(result, collections.abc.Iterator) else exact(result)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(BASES)), st.data())
def test_an_object_that_extends_plain_data_is_that_data_here(base, data):
    """Whatever is done to it with plain data gives what it gives with the data itself, and nobody is asked.

    But some classes of the language make a new object of the same class, and that is made there.
    """

    def made_there(operation, number, args, options):
        assert operation == "new" and base in (collections.deque, collections.OrderedDict)
        return base(*args)

    value, other = data.draw(BASES[base]), data.draw(BASES[base] | st.integers(0, 2))
    writer, reader = Mirror(nobody, judges=False, operators=False), Mirror(made_there, judges=True, operators=False)
    original = made(type("Extended", (base,), {}), base, value)
    there = reader.read(writer.write(("r", original)))[1]
    assert isinstance(there, base) and type(there) is not base and type(there).__name__ == "Extended"
    for act in (repr, str, "{}".format):
        assert act(there) == act(original).replace(f"{type(original).__module__}.", "solution.")
    for act in ALONE:
        assert done(act, there) == done(act, value), act
    for act in OPERATIONS:
        assert done(act, there, other) == done(act, value, other), act
        assert done(act, other, there) == done(act, other, value), act


def made(extended, base, value):
    if base is datetime.datetime:
        return extended.combine(value.date(), value.timetz())
    return extended(value.year, value.month, value.day) if base is datetime.date else extended(value)


def test_what_a_description_may_name():
    """Only names of plain data, so that a solution's process cannot change what a stand-in is."""
    names = ["__class__", "__getattribute__", "__init__", "_remote_ask", "_remote_number", "__eq__", "__len__", "append", 5]
    class_ = json.dumps([2, "x", [], names, True, "list", None])
    reader = Mirror(nobody, judges=True, operators=False)
    (_, value) = reader.read(answer('["p",4,["k",2],null]', '[4,"list",null,[1],["k",2]]', class_))
    assert value == [1] and len(value) == 1 and value.__class__ is type(value) and issubclass(type(value), list)
    asked = []
    reader = Mirror(lambda *question: asked.append(question), judges=True, operators=False)
    (_, value) = reader.read(answer('["p",4,["k",2],null]', '[4,"list",null,[1],["k",2]]', class_))
    assert value.append is None and asked == [("get", 4, "append")]  # a value there: it is told; a method would not count

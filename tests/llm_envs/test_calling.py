"""Guards how users' functions are called: settled from the signature, once, in one form, with an error when the task is built."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
import types

import pytest

from llm_envs.calling import REQUIRED, SettledCall, check_arguments, function_name, keyword_options, owned

A, B = ["a0", "a1"], ["b0", "b1"]
KEYWORDS = {"batch_items": ["item"], "prompts": ["p", "q"], "states": ["s"]}


def settled(function, arguments=("A", "B"), keywords=tuple(KEYWORDS)):
    return SettledCall(function, role="reward function", arguments=arguments, keywords=keywords)


class Callable:
    def __call__(self, a, b, *, prompts):
        return a, b, prompts

    def method(self, a, b, states=None):
        return a, b, states

    @staticmethod
    def static(a, b):
        return a, b

    @classmethod
    def of_class(cls, batch_items, a, b):
        return batch_items, a, b


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def plain(a, b):
    return a, b


@decorated
def wrapped(a, b, batch_items):
    return a, b, batch_items


def three(prefix, a, b, batch_items=None):
    return prefix, a, b, batch_items


def weighted(a, b, weight, states):
    return a, b, weight, states


ITEMS, PROMPTS, STATES = KEYWORDS["batch_items"], KEYWORDS["prompts"], KEYWORDS["states"]

# Every kind of signature with what it must be handed; each function returns all that it received.
CASES = {
    "lists only": (lambda a, b: (a, b), (A, B)),
    "keyword-only": (lambda a, b, *, batch_items: (a, b, batch_items), (A, B, ITEMS)),
    "keyword-only with default": (lambda a, b, *, prompts=None: (a, b, prompts), (A, B, PROMPTS)),
    "positional-or-keyword with default": (lambda a, b, batch_items=None: (a, b, batch_items), (A, B, ITEMS)),
    "positional-or-keyword without default": (lambda a, b, batch_items: (a, b, batch_items), (A, B, ITEMS)),
    "prompts first": (lambda prompts, a, b: (prompts, a, b), (PROMPTS, A, B)),
    "items in the middle": (lambda a, batch_items, b: (a, batch_items, b), (A, ITEMS, B)),
    "all keywords": (
        lambda a, b, prompts, batch_items, states: (a, b, prompts, batch_items, states),
        (A, B, PROMPTS, ITEMS, STATES),
    ),
    "args": (lambda *lists: lists, (A, B)),
    "args and keyword": (lambda *lists, batch_items: (lists, batch_items), ((A, B), ITEMS)),
    "args and kwargs": (lambda *lists, **keywords: (lists, keywords), ((A, B), KEYWORDS)),
    "one and args": (lambda a, *rest: (a, rest), (A, (B,))),
    "prompts and args": (lambda prompts, *lists: (prompts, lists), (PROMPTS, (A, B))),
    "default keyword and args": (lambda batch_items=None, *lists: (batch_items, lists), (ITEMS, (A, B))),
    "more named than lists, and args": (lambda a, b, c=7, *rest: (a, b, c, rest), (A, B, 7, ())),
    "kwargs": (lambda a, b, **keywords: (a, b, keywords), (A, B, KEYWORDS)),
    "named and kwargs": (
        lambda a, b, states, **keywords: (a, b, states, keywords),
        (A, B, STATES, {"batch_items": ITEMS, "prompts": PROMPTS}),
    ),
    "kwargs of another name": (lambda a, b, **batch_items: (a, b, batch_items), (A, B, KEYWORDS)),
    "own default": (lambda a, b, weight=0.5: (a, b, weight), (A, B, 0.5)),
    "own keyword-only default": (lambda a, b, *, weight=0.5: (a, b, weight), (A, B, 0.5)),
    "all have defaults": (lambda a=None, b=None, batch_items=None: (a, b, batch_items), (A, B, ITEMS)),
    "own default before a list": (lambda a, batch_items=None, b=None: (a, batch_items, b), (A, ITEMS, B)),
    "positional-only": (lambda a, b, /: (a, b), (A, B)),
    "positional-only and keyword": (lambda a, b, /, prompts: (a, b, prompts), (A, B, PROMPTS)),
    "positional-only keyword": (lambda prompts, /, a, b: (prompts, a, b), (PROMPTS, A, B)),
    "partial, keyword bound": (functools.partial(weighted, weight=2), (A, B, 2, STATES)),
    "partial, position bound": (functools.partial(three, "x"), ("x", A, B, ITEMS)),
    "partial of a partial": (functools.partial(functools.partial(three, "x"), batch_items=None), ("x", A, B, ITEMS)),
    "callable object": (Callable(), (A, B, PROMPTS)),
    "method": (Callable().method, (A, B, STATES)),
    "static method": (Callable.static, (A, B)),
    "class method": (Callable.of_class, (ITEMS, A, B)),
    "decorated": (wrapped, (A, B, ITEMS)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_signature_gets_what_it_wants(name):
    function, expected = CASES[name]
    assert settled(function)([A, B], KEYWORDS) == expected


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda a, b, btach_items: 0,
            "requires 'btach_items', which it would not be given: it gets A, B and may name batch_items, prompts",
        ),
        (lambda a, b, *, reference: 0, "requires 'reference'"),
        (lambda a, b, c, d: 0, "requires 'c', 'd'"),
        (lambda a: 0, "takes 1 of the 2 arguments it is given: A, B"),
        (lambda: 0, "takes 0 of the 2"),
        (lambda prompts, a: 0, "takes 1 of the 2"),
        (lambda *, a, b: 0, "requires 'a', 'b'"),
        (functools.partial(plain, a=A), "requires 'b'"),
        (max, "signature cannot be read"),
        ("reward", "reward function must be callable, got 'reward'"),
        (None, "reward function must be callable, got None"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused(function, message):
    with pytest.raises(TypeError) as error:
        settled(function)
    assert message in str(error.value)
    assert str(error.value).startswith("reward function")


def test_async_functions_are_refused():
    async def judged(a, b):
        return [0.0]

    class Judge:
        async def __call__(self, a, b):
            return [0.0]

    async def streamed(a, b):
        yield 0.0

    for function in (judged, Judge(), streamed, functools.partial(streamed)):
        with pytest.raises(TypeError, match="is async"):
            settled(function)


def test_a_type_error_inside_is_never_answered_by_another_call():
    calls = []

    def broken(a, b, batch_items=None):
        calls.append(batch_items)
        raise TypeError("takes 2 positional arguments but 3 were given")  # looks like a wrong call

    with pytest.raises(TypeError, match="takes 2 positional"):
        settled(broken)([A, B], KEYWORDS)
    assert calls == [ITEMS]


def test_keywords_left_out_leave_the_default():
    def formatter(item, external_prompts="own"):
        return item, external_prompts

    call = settled(formatter, ["the item"], ["external_prompts"])
    assert call(["row"], {}) == ("row", "own")
    assert call(["row"], {"external_prompts": None}) == ("row", None)
    assert call.required == frozenset()
    # In front of *args a default is handed over by position, as nothing else could be.
    starred = settled(lambda external_prompts="own", *items: (external_prompts, items), ["the item"], ["external_prompts"])
    assert starred(["row"], {}) == ("own", ("row",))


def test_takes_and_required():
    call = settled(lambda a, b, states, *, prompts=None: 0)
    assert [call.takes(keyword) for keyword in KEYWORDS] == [False, True, True]
    assert call.required == {"states"}
    assert settled(lambda a, b, **keywords: 0).takes("states")


@pytest.mark.parametrize(
    "function", [plain, wrapped, functools.partial(three, "x"), Callable(), Callable().method, Callable.static]
)
def test_a_settled_call_survives_copies(function):
    call = settled(function)
    for twin in (pickle.loads(pickle.dumps(call)), copy.deepcopy(call), copy.copy(call)):
        assert twin([A, B], KEYWORDS) == call([A, B], KEYWORDS)
        assert twin.name == call.name


def test_arguments_are_checked_where_the_signature_can_be_read():
    for fits in (plain, functools.partial(three, "x"), print, max):  # nobody can read max's
        check_arguments(fits, "score", "the prompts", "the completions")
    with pytest.raises(TypeError, match=r"score 'three' requires 'b', .*: it gets the prompts, the completions and nothing else"):
        check_arguments(three, "score", "the prompts", "the completions")
    with pytest.raises(TypeError, match="score 'plain' takes 2 of the 3 arguments it is given"):
        check_arguments(plain, "score", "one", "two", "three")
    with pytest.raises(TypeError, match="score must be callable, got 'plain'"):
        check_arguments("plain", "score")


def test_what_is_owned_can_be_changed_alone():
    lock = threading.Lock()  # cannot be copied
    row = {"nested": {"list": [1, (2, [3])], "set": {4}}, "lock": lock}
    mine = owned(types.MappingProxyType(row))
    assert mine == row
    assert mine["lock"] is lock
    mine["nested"]["list"][1][1].append(5)
    mine["nested"]["set"].clear()
    assert row["nested"] == {"list": [1, (2, [3])], "set": {4}}


def test_names_in_messages():
    assert function_name(plain) == "'plain'"
    assert function_name(functools.partial(functools.partial(plain, 1), 2)) == "'plain'"
    assert function_name(Callable()) == "'Callable'"
    assert function_name(Callable().method) == "'Callable.method'"
    assert function_name(Callable) == "'Callable'"


def test_options_of_a_factory():
    def factory(size, *, turns=2, **more):
        return size, turns, more

    options = keyword_options(factory)
    assert options.defaults == {"size": REQUIRED, "turns": 2}
    assert options.open_ended
    assert not keyword_options(plain).open_ended
    with pytest.raises(TypeError, match="needs 'a' by position"):
        keyword_options(lambda a, /: a)
    with pytest.raises(TypeError, match="cannot be read"):
        keyword_options(max)

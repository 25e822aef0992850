"""Guards what a reward function may return, what an error about it says, and that rewards are counted as they were given."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from llm_envs.rewards import (
    RewardError,
    RewardProcessors,
    Rewards,
    declared_range,
    processed,
    reward_rows,
    scaled,
    set_reward_range,
    terms,
)
from llm_envs.types import State, Turn

AGENTS = ("writer_0", "critic_0")
STATE = State(
    item={"prompt": "p", "answer": 3},
    observations={"writer_0": "write", "critic_0": "criticise"},
    history=(Turn(dict.fromkeys(AGENTS, "x"), dict.fromkeys(AGENTS, "y"), dict.fromkeys(AGENTS, 0.0)),),
    item_index=4,
)
TWO = [{"writer_0": "w0", "critic_0": "c0"}, {"writer_0": "w1", "critic_0": "c1"}]


def both(*numbers):
    """The rows of rewards that the whole team shares."""
    return [dict.fromkeys(AGENTS, float(number)) for number in numbers]


def rows(*pairs):
    return [dict(zip(AGENTS, map(float, pair), strict=True)) for pair in pairs]


# ---- what may be returned (BC-07) ----


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([1, 0], both(1, 0)),
        ([True, False], both(1, 0)),
        ((0.5, -2.5), both(0.5, -2.5)),
        (np.array([1.0, 0.25], dtype=np.float32), both(1, 0.25)),
        ([np.float32(1), np.int64(3)], both(1, 3)),
        ([np.array(1.0), np.array(2)], both(1, 2)),
        (np.array([True, False]), both(1, 0)),
    ],
)
def test_k_numbers_are_shared_by_the_team(returned, expected):
    assert reward_rows(returned, 2, AGENTS) == expected


@pytest.mark.parametrize(
    "returned",
    [
        [[1, 2], [3, 4], [5, 6]],
        [(1, 2), np.array([3, 4]), [5.0, 6.0]],
        np.array([[1, 2], [3, 4], [5, 6]]),
        [{"writer_0": 1, "critic_0": 2}, {"critic_0": 4, "writer_0": 3}, [5, 6]],
    ],
)
def test_k_sequences_or_mappings_are_per_agent(returned):
    assert reward_rows(returned, 3, AGENTS) == rows((1, 2), (3, 4), (5, 6))


def test_k_equal_to_n_is_not_ambiguous():
    """K = n = 2: two numbers are one for each joint response, not one for each agent; per agent takes two sequences."""
    assert reward_rows([1, 2], 2, AGENTS) == rows((1, 1), (2, 2))
    assert reward_rows([[1, 2], [3, 4]], 2, AGENTS) == rows((1, 2), (3, 4))


def test_one_joint_response():
    """K = 1: n numbers are one for each agent; a single one is the team's; a single sequence or mapping is per agent."""
    assert reward_rows([1, 2], 1, AGENTS) == rows((1, 2))
    assert reward_rows(np.array([1, 2]), 1, AGENTS) == rows((1, 2))
    assert reward_rows([5], 1, AGENTS) == rows((5, 5))
    assert reward_rows([[1, 2]], 1, AGENTS) == rows((1, 2))
    assert reward_rows([{"critic_0": 2, "writer_0": 1}], 1, AGENTS) == rows((1, 2))
    assert reward_rows([7], 1, ["solo_0"]) == [{"solo_0": 7.0}]
    assert reward_rows([[7], [8]], 2, ["solo_0"]) == [{"solo_0": 7.0}, {"solo_0": 8.0}]


def test_tensors_are_detached_floats():
    torch = pytest.importorskip("torch")
    graph = torch.tensor([1.0, 0.5], requires_grad=True) * 2
    for returned in (graph, [graph[0], graph[1]], graph.to(torch.bfloat16), torch.stack([graph, graph], dim=1)):
        found = reward_rows(returned, 2, AGENTS)
        assert found == both(2, 1)
        assert {type(value) for row in found for value in row.values()} == {float}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2, 3], "ValueError: expected 2 rewards, one for each joint response, got 3: [1, 2, 3]"),
        ([1], "ValueError: expected 2 rewards, one for each joint response, got 1: [1]"),
        ([], "ValueError: expected 2 rewards, one for each joint response, got 0"),
        (np.zeros((2, 3)), "ValueError: expected 2 rewards, one for each agent, got 3"),
        ([[1, 2], [3]], "ValueError: expected 2 rewards, one for each agent, got 1: [3]"),
        ([{"writer_0": 1}, {"writer_0": 1}], "expected a reward for each of writer_0, critic_0, got {'writer_0': 1}"),
        (1.0, "TypeError: expected 2 rewards as a list, tuple, array or tensor, got float: 1.0"),
        (np.array(1.0), "TypeError: expected 2 rewards as a list"),
        (None, "TypeError: expected 2 rewards as a list, tuple, array or tensor, got NoneType: None"),
        ("10", "TypeError: expected 2 rewards as a list, tuple, array or tensor, got str: '10'"),
        ({"writer_0": 1, "critic_0": 2}, "TypeError: expected 2 rewards as a list"),
        ((number for number in (1.0, 2.0)), "TypeError: expected 2 rewards as a list, tuple, array or tensor, got generator"),
        ([1, None], "TypeError: a reward must be a number, got NoneType: None"),
        ([1, "2"], "TypeError: a reward must be a number, got str: '2'"),
        ([1, 2j], "TypeError: a reward must be a number, got complex"),
        ([1, Fraction(1, 2)], "TypeError: a reward must be a number, got Fraction"),
        ([1, math.nan], "ValueError: a reward must be finite, got nan"),
        ([1, -math.inf], "ValueError: a reward must be finite, got -inf"),
        (np.array([1, np.nan], dtype=np.float32), "ValueError: a reward must be finite, got nan"),
        ([10**400, 1], "OverflowError"),
    ],
)
def test_anything_else_is_an_error_that_says_where(returned, message):
    def my_reward(writer, critic):
        return returned

    with pytest.raises(RewardError) as error:
        Rewards(my_reward, AGENTS)(STATE, TWO)
    text = str(error.value)
    assert message in text
    assert "my_reward" in text
    assert "item 4, turn 2" in text
    assert "[['w0', 'w1'], ['c0', 'c1']]" in text


def test_an_exception_inside_is_no_reward_and_keeps_its_cause():
    calls = []

    def my_reward(writer, critic):
        calls.append(1)
        raise TypeError("unsupported operand")

    with pytest.raises(RewardError, match=r"my_reward.* on item 4, turn 2, completions .*TypeError: unsupported operand") as error:
        Rewards(my_reward, AGENTS)(STATE, TWO)
    assert isinstance(error.value.__cause__, TypeError)
    assert calls == [1], "a failed reward must not be asked again in another form"


def test_an_error_shows_a_row_from_elsewhere_and_cuts_long_completions():
    state = State(item={"prompt": "only row"}, observations=STATE.observations)
    long = [{"writer_0": "w" * 5000, "critic_0": "c"}]
    with pytest.raises(RewardError) as error:
        Rewards(lambda writer, critic: "bad", AGENTS)(state, long)
    assert "item {'prompt': 'only row'}, turn 1" in str(error.value)
    assert len(str(error.value)) < 1000


def test_an_exit_inside_is_a_failure():
    """Code that a model wrote may call exit(0); that must not end the run as if it had succeeded."""

    def exits(*arguments):
        raise SystemExit(0)

    with pytest.raises(RewardError, match=r"exits' on item 4, turn 2.*SystemExit: 0") as error:
        Rewards(exits, AGENTS)(STATE, TWO)
    assert isinstance(error.value.__cause__, SystemExit)
    with pytest.raises(RewardError, match=r"reward processor .*SystemExit: 0"):
        processed(exits, {"writer_0": 1.0}, STATE)


def test_interrupts_pass_through():
    def stopped(writer, critic):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Rewards(stopped, AGENTS)(STATE, TWO)


# ---- what the function is given ----


def test_one_call_with_one_list_for_each_agent():
    seen = []

    def reward(writer, critic, batch_items, prompts, states):
        seen.append((writer, critic, batch_items, prompts, states))
        return [0.0] * len(writer)

    Rewards(reward, AGENTS)(STATE, TWO)
    assert seen == [(["w0", "w1"], ["c0", "c1"], [{"prompt": "p", "answer": 3}], ["write", "criticise"], [STATE, STATE])]


def test_a_function_may_spoil_what_it_is_given():
    def rude(writer, critic, batch_items, prompts):
        writer.clear()
        prompts.clear()
        batch_items[0].clear()
        return [1.0, 2.0]

    before = copy.deepcopy(STATE)
    second = []
    rewards = Rewards(
        {"rude": rude, "later": lambda writer, critic, batch_items: second.append((writer, batch_items)) or [0, 0]}, AGENTS
    )
    assert [score.total for score in rewards(STATE, TWO)] == both(1, 2)
    assert before == STATE
    assert second == [(["w0", "w1"], [{"prompt": "p", "answer": 3}])]


def test_a_function_that_cannot_be_called_is_refused_when_built():
    with pytest.raises(
        TypeError, match=r"takes 1 of the 2 arguments it is given: the list of writer_0's completions, the list of critic_0"
    ):
        Rewards(lambda completions: [0], AGENTS)
    with pytest.raises(TypeError, match=r"reward term 'style' .*requires 'btach_items'"):
        Rewards({"length": lambda a, b: [0], "style": lambda a, b, btach_items: [0]}, AGENTS)
    for empty in ({}, {1: lambda a, b: [0]}):
        with pytest.raises(ValueError, match="reward must be a function or at least one named term"):
            Rewards(empty, AGENTS)


# ---- terms and processors ----


def test_named_terms_are_summed_and_each_is_kept():
    """1 + 0.1 = 1.1 and 2 + 0.2 = 2.2 for writer_0; 3 and 3 for critic_0, whose style is 3 − 1 = 2 and 3 − 2 = 1."""
    rewards = Rewards({"length": lambda a, b: [1, 2], "style": lambda a, b: [[0.1, 2], [0.2, 1]]}, AGENTS)
    scores = rewards(STATE, TWO)
    assert [score.total for score in scores] == [{"writer_0": 1.1, "critic_0": 3.0}, {"writer_0": 2.2, "critic_0": 3.0}]
    assert scores[0].terms == {"length": {"writer_0": 1.0, "critic_0": 1.0}, "style": {"writer_0": 0.1, "critic_0": 2.0}}
    assert Rewards(lambda a, b: [1, 2], AGENTS)(STATE, TWO)[0].terms == {}


def test_the_sum_does_not_depend_on_the_order_of_terms():
    """1e16 + 1 − 1e16 is 1; added from the left in floats it would be 0."""
    values = {"big": 1e16, "one": 1.0, "minus": -1e16}
    for order in (["big", "one", "minus"], ["one", "minus", "big"]):
        rewards = Rewards({term: (lambda a, b, v=values[term]: [v, v]) for term in order}, AGENTS)
        assert rewards(STATE, TWO)[0].total == dict.fromkeys(AGENTS, 1.0)


def test_a_scaled_term_is_logged_as_it_is():
    """1 + 0.5 · 4 = 3; the term says 4."""
    rewards = Rewards({"solved": lambda a, b: [1, 1], "length": scaled(0.5, lambda a, b: [4, 4]), "style": scaled(0, len2)}, AGENTS)
    score = rewards(STATE, TWO)[0]
    assert score.total == dict.fromkeys(AGENTS, 3.0)
    assert score.terms["length"] == dict.fromkeys(AGENTS, 4.0)
    assert score.terms["style"] == dict.fromkeys(AGENTS, 2.0)


@pytest.mark.parametrize(
    "terms",
    [
        {"big": scaled(1e300, lambda a, b: [1e300, 0])},
        {"big": lambda a, b: [0, 1.7e308], "too": lambda a, b: [0, 1.7e308]},
        {"big": scaled(1e300, lambda a, b: [1e300, 0]), "less": scaled(-1e300, lambda a, b: [1e300, 0])},
    ],
)
def test_a_sum_that_is_not_finite_is_an_error(terms):
    with pytest.raises(RewardError, match=r"sum of the reward's terms \(big.*\) on item 4, turn 2, completions"):
        Rewards(terms, AGENTS)(STATE, TWO)


def len2(a, b):
    return [2.0, 2.0]


def test_processors():
    assert RewardProcessors.scale(0.5)(3.0) == 1.5
    assert RewardProcessors.shift(-4)(3.0) == -1.0
    both_ways = RewardProcessors.compose(RewardProcessors.scale(2), RewardProcessors.shift(1))
    assert both_ways(3.0) == 7.0  # 2·3 + 1, not 2·(3 + 1)
    assert RewardProcessors.compose()(3.0) == 3.0
    assert pickle.loads(pickle.dumps(both_ways))(3.0) == 7.0
    assert processed(both_ways, {"writer_0": 3.0, "critic_0": 0.0}, STATE) == {"writer_0": 7.0, "critic_0": 1.0}
    assert processed(None, {"writer_0": 3.0}, STATE) == {"writer_0": 3.0}


@pytest.mark.parametrize("factor", ["2", None, math.nan, math.inf])
def test_a_processor_of_nonsense_is_refused(factor):
    for build, name in ((RewardProcessors.scale, "factor"), (RewardProcessors.shift, "value")):
        with pytest.raises((TypeError, ValueError), match=f"{name} must be (a number|finite)"):
            build(factor)
    with pytest.raises(TypeError, match="must be callable, got 2"):
        RewardProcessors.compose(RewardProcessors.scale(1), 2)


@pytest.mark.parametrize("result", [None, math.nan, "1"])
def test_a_processor_that_returns_no_number_is_an_error(result):
    def squash(reward):
        return result

    with pytest.raises(RewardError, match=r"reward processor '.*squash' on the rewards \{'writer_0': 1.0\}, item 4, turn 2"):
        processed(squash, {"writer_0": 1.0}, STATE)


# ---- declared ranges ----


def ranged(low, high):
    return set_reward_range(lambda a, b: [0], low, high)


def test_a_declared_range_stays_with_the_function():
    def solved(a, b):
        return [1.0]

    assert declared_range(solved) is None
    assert set_reward_range(solved, 0, 2) is solved
    assert declared_range(solved) == (0.0, 2.0)
    set_reward_range(solved, -1.5, 2)
    assert declared_range(solved) == (-1.5, 2.0)


def test_an_own_attribute_declares_a_range_too():
    class Judge:
        reward_range = (-1, 1)

        def __call__(self, a, b):
            return [0]

        def other(self, a, b):
            return [0]

    assert declared_range(Judge()) == (-1.0, 1.0)
    assert declared_range(functools.wraps(ranged(0, 3))(lambda *texts: [0])) == (0.0, 3.0)
    with pytest.raises(TypeError, match=r"Judge.other' cannot be given a range: wrap it in a def"):
        set_reward_range(Judge().other, 0, 1)


def test_ranges_of_scaled_functions_and_sums():
    """−½ · [0, 4] = [−2, 0]; with [1, 3] the sum is [−1, 3]; a term without a range leaves the sum without one."""
    assert declared_range(scaled(-0.5, ranged(0, 4))) == (-2.0, 0.0)
    assert declared_range({"cost": scaled(-0.5, ranged(0, 4)), "gain": ranged(1, 3)}) == (-1.0, 3.0)
    assert declared_range({"cost": ranged(0, 4), "gain": lambda a, b: [0]}) is None
    assert declared_range({}) is None is declared_range(scaled(2, lambda a, b: [0]))


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1), (-1.5e308, 1.5e308)])
def test_faulty_ranges_are_refused(low, high):
    with pytest.raises(ValueError, match=r"a reward range needs|a limit of a reward range must be finite"):
        ranged(low, high)


@pytest.mark.parametrize("declared", [(0, 1, 2), 3.0, "01", ("a", "b")])
def test_attributes_that_are_no_range_are_refused(declared):
    function = ranged(0, 1)
    function.reward_range = declared
    with pytest.raises(TypeError, match=r"a reward range must be two numbers|a limit of a reward range must be a number"):
        declared_range(function)


# ---- several terms of one function ----


def graded(writers, critics, batch_items):
    return [
        {"length": len(w), "both": [len(w) / 2, len(c) / 4], "solved": w == str(batch_items[0]["answer"])}
        for w, c in zip(writers, critics, strict=True)
    ]


def test_terms_of_one_function_are_weighed_and_logged():
    first, second = Rewards(terms(graded, length=1, both=-2.0, solved=0), AGENTS)(
        STATE, [{"writer_0": "3", "critic_0": "four"}, {"writer_0": "two", "critic_0": ""}]
    )
    assert first.total == {"writer_0": 1 - 2 * 0.5, "critic_0": 1 - 2 * 1.0}
    assert second.total == {"writer_0": 3 - 2 * 1.5, "critic_0": 3.0}
    assert first.terms["both"] == {"writer_0": 0.5, "critic_0": 1.0}
    assert (first.terms["solved"]["writer_0"], second.terms["solved"]["critic_0"]) == (1.0, 0.0)


def test_terms_of_one_function_cost_one_call():
    calls = []

    def counted(writers, critics):
        calls.append(len(writers))
        return [{"a": 1.0, "b": 2.0}] * len(writers)

    assert [score.total["writer_0"] for score in Rewards(terms(counted, a=1, b=1), AGENTS)(STATE, TWO)] == [3.0, 3.0]
    assert calls == [2]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([{"a": 1.0}], "exactly the terms a, b, got {'a': 1.0}"),
        ([{"a": 1.0, "b": 2.0, "c": 3.0}], "exactly the terms a, b"),
        ([1.0], "expected 1 mappings from each of a, b"),
        ({"a": [1.0], "b": [2.0]}, "expected 1 mappings"),
        ([{"a": 1.0, "b": 2.0}] * 2, "expected 1 mappings"),
        ([{"a": 1.0, "b": math.nan}], "must be finite, got nan"),
        ([{"a": 1.0, "b": [1.0]}], "expected 2 rewards, one for each agent"),
        ([{"a": 1.0, "b": "2"}], "must be a number, got str"),
    ],
)
def test_terms_that_do_not_fit(returned, message):
    def judge(writers, critics):
        return returned

    with pytest.raises(RewardError, match=message) as caught:
        Rewards(terms(judge, a=1, b=1), AGENTS)(STATE, TWO[:1])
    assert "judge' on item 4, turn 2" in str(caught.value)


@pytest.mark.parametrize(("factors", "error"), [({}, ValueError), ({"a": "1"}, TypeError), ({"a": math.inf}, ValueError)])
def test_factors_that_do_not_fit(factors, error):
    with pytest.raises(error, match="factor"):
        terms(graded, **factors)


def test_terms_pickle_and_have_the_range_of_their_function():
    assert pickle.loads(pickle.dumps(terms(graded, length=2))) == terms(graded, length=2)

    def ranged(writers, critics):
        raise NotImplementedError

    assert declared_range(terms(ranged, a=1)) is None
    assert declared_range(terms(set_reward_range(ranged, -1, 2), a=1)) == (-1.0, 2.0)

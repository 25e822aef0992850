"""Guards preference pairs: what counts as a response, which pairs are chosen in which order, and that records lose nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.credit import tree_returns
from learners.json_files import dump_json, parse_json
from learners.preference.pairs import (
    JointResponse,
    Pair,
    pair_from_record,
    pair_record,
    pairs_between,
    pairs_within,
    responses_of,
    unanswered_comparisons,
)
from llm_envs.env import TaskEnv
from llm_envs.rewards import RewardProcessors
from llm_envs.rollouts import collect
from llm_envs.seeding import SAMPLING, stream
from llm_envs.task import Task
from llm_envs.types import ChatPrompt, Completion, EnvStep, RolloutSpec
from llm_envs.wrappers import ScoreWith

AGENTS = ("writer_0", "editor_0")
SOME = Completion("text", (1, 2), (-0.5, -0.25), (3,), "length")
NONE = Completion("")


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def response(reward: float, raw: float | None = None, completion: Completion = SOME) -> JointResponse:
    prompts, completions = {"a_0": "read", "b_0": "this"}, {"a_0": SOME, "b_0": completion}
    return JointResponse((prompts,), (completions,), reward, reward if raw is None else raw)


def responses(*rewards: float) -> list[JointResponse]:
    return [response(reward) for reward in rewards]


def positions(pairs: list[Pair], first: list[JointResponse], second: list[JointResponse] | None = None) -> list[tuple[int, int]]:
    """Positions of winner and loser, those of the second list from 100 on."""
    place = {id(r): i for i, r in enumerate(first)} | {id(r): 100 + i for i, r in enumerate(second or [])}
    return [(place[id(pair.winner)], place[id(pair.loser)]) for pair in pairs]


# ---- from the stream ----


class Words:
    """Writes numbered words, each told by its path, so that every response of a run can be recognised."""

    def generate(self, prompts, n, keys):
        return [[self.word(key, k) for k in range(n)] for key in keys]

    def word(self, key, k):
        return Completion(f"w{stream(SAMPLING, (*key, k)).integers(1000)}", (k,), (-1.0,), (7,))


def make_env(num_turns: int = 1, processor=None) -> TaskEnv:
    def reward(first, second):
        return [[int(a[1:]) / 1000, -int(b[1:]) / 1000] for a, b in zip(first, second, strict=True)]

    def transition(agent_completions):
        return [f"after {text}" for text in agent_completions]

    items = [{"prompt": "one"}, {"prompt": "two"}, {"prompt": "three"}]
    turns = {"num_turns": num_turns, "transition": transition if num_turns > 1 else None}
    return TaskEnv(Task(reward=reward, reward_processor=processor, items=items, agents=AGENTS, **turns))


def collected(num_turns: int = 1, processor=None, later_generations: int = 1) -> list[EnvStep]:
    env = make_env(num_turns, processor)
    spec = RolloutSpec(4, later_generations=later_generations)
    return collect(env, dict.fromkeys(AGENTS, Words()), env.items, spec, seed=3)


def flat_step(number: int, choice: int = 0, rewards: dict | None = None, raw_rewards: dict | None = None) -> EnvStep:
    rewards = {"a_0": float(choice)} if rewards is None else rewards
    raw_rewards = rewards if raw_rewards is None else raw_rewards
    return EnvStep(
        env_step=number,
        episode=0,
        state_id=0,
        next_state_id=None,
        turn=1,
        prompts=dict.fromkeys(rewards, "p"),
        completions=dict.fromkeys(rewards, SOME),
        choice=dict.fromkeys(rewards, choice),
        rewards=rewards,
        terminated=True,
        truncated=False,
        next_prompts=None,
        global_state="",
        infos={agent: {"raw_reward": reward} for agent, reward in raw_rewards.items()},
    )


def test_each_joint_action_of_one_turn_is_a_response():
    """Rewards: the mean over the team of (a, −b), processed as 2x + 1."""
    steps = collected(processor=RewardProcessors.compose(RewardProcessors.scale(2.0), RewardProcessors.shift(1.0)))
    found = responses_of(steps)
    assert [len(item) for item in found] == [4, 4, 4]
    for own, step in zip(itertools.chain(*found), steps, strict=True):
        assert own.prompts == (step.prompts,) and own.completions == (step.completions,)
        first, second = (int(step.completions[agent].text[1:]) / 1000 for agent in AGENTS)
        assert own.raw_reward == pytest.approx((first - second) / 2)
        assert own.reward == pytest.approx(2 * own.raw_reward + 1)


def test_the_order_of_the_stream_does_not_matter():
    steps = collected(num_turns=2)
    expected = responses_of(steps)
    for seed in range(5):
        assert responses_of(random.Random(seed).sample(steps, len(steps))) == expected


def test_order_is_that_of_the_first_choice():
    steps = [flat_step(number, choice) for number, choice in enumerate((2, 0, 1))]
    assert [own.reward for own in responses_of(steps)[0]] == [0, 1, 2]


@pytest.mark.parametrize("discount", [1.0, 0.5, 0.0])
def test_several_turns_are_one_response_with_the_discounted_sum(discount):
    """The reward is the team's mean return of the tree, whose nodes after the first have one child."""
    steps = collected(num_turns=3)
    returns = tree_returns(steps, discount)
    roots = [step for step in steps if step.turn == 1]
    for own, root in zip(itertools.chain(*responses_of(steps, discount)), roots, strict=True):
        assert [len(own.prompts), len(own.completions)] == [3, 3]
        assert own.reward == pytest.approx(sum(returns[root.env_step].values()) / 2)
        assert own.raw_reward == own.reward
        for turn in (1, 2):
            before = own.completions[turn - 1]
            assert own.prompts[turn] == {agent: f"after {before[agent].text}" for agent in AGENTS}


def test_two_turns_worked_by_hand():
    """Turn 1 earns (1, 3), turn 2 (5, 9), γ = ½: 2 + ½ · 7 = 5.5; raw (10, 30) and (0, 0): 20."""
    first = flat_step(0, 0, {"a_0": 1.0, "b_0": 3.0}, {"a_0": 10.0, "b_0": 30.0})
    second = flat_step(1, 0, {"a_0": 5.0, "b_0": 9.0}, {"a_0": 0.0, "b_0": 0.0})
    linked = [dataclasses.replace(first, next_state_id=1), dataclasses.replace(second, state_id=1, turn=2)]
    [[own]] = responses_of(linked, 0.5)
    assert (own.reward, own.raw_reward) == (5.5, 20.0)


def test_a_learned_score_is_what_candidates_are_ranked_by():
    env = ScoreWith(make_env(), lambda prompts, completions: [len(c["writer_0"]) / 2 for c in completions])
    steps = collect(env, dict.fromkeys(AGENTS, Words()), env.items, RolloutSpec(2), seed=3)
    for own in itertools.chain(*responses_of(steps)):
        assert own.reward == own.raw_reward == len(own.completions[0]["writer_0"].text) / 2


def test_who_earned_what_does_not_break_a_tie():
    """The mean of (.8, .3, .5) in any order, to the last bit; and equal rewards of a team are its reward."""
    orders = list(itertools.permutations((0.8, 0.3, 0.5)))
    steps = [flat_step(i, i, dict(zip("abc", order, strict=True))) for i, order in enumerate(orders)]
    assert len({own.reward for own in responses_of(steps)[0]}) == 1
    [[same]] = responses_of([flat_step(0, 0, dict.fromkeys("abcdefg", 0.9))])
    assert same.reward == 0.9


def test_faulty_streams_are_refused():
    with pytest.raises(ValueError, match="env step 4: the infos of b_0 have no raw_reward"):
        responses_of([flat_step(4, 0, {"a_0": 1.0, "b_0": 1.0}, {"a_0": 1.0})])
    with pytest.raises(FloatingPointError, match=r"env step 2 should be finite, got .'a_0': nan"):
        responses_of([flat_step(2, 0, {"a_0": math.nan})])
    with pytest.raises(ValueError, match="a chain has one"):
        responses_of(collected(num_turns=2, later_generations=2))


def test_faulty_responses_are_refused():
    with pytest.raises(ValueError, match="same turns, got 0 and 0"):
        JointResponse((), (), 1.0, 1.0)
    with pytest.raises(ValueError, match="same turns, got 1 and 2"):
        JointResponse(({"a_0": "p"},), ({"a_0": SOME}, {"a_0": SOME}), 1.0, 1.0)
    with pytest.raises(ValueError, match="turn 2 of a joint response of a_0 has b_0"):
        JointResponse(({"a_0": "p"}, {"a_0": "p"}), ({"a_0": SOME}, {"b_0": SOME}), 1.0, 1.0)


# ---- selection among candidates ----


def test_golden_one_shot_pairs():
    """What CoMLRL 1.4.3 chooses for the rewards [.2, .9, .9, .5]."""
    candidates = responses(0.2, 0.9, 0.9, 0.5)
    by_gap = pairs_within(candidates, "reward_gap", 3, chance())
    assert positions(by_gap, candidates) == [(1, 0), (2, 0), (1, 3)]
    every = pairs_within(candidates, "all", None, chance())
    assert positions(every, candidates) == [(1, 0), (1, 3), (2, 0), (2, 3), (3, 0)]
    assert [pair.candidate_reward_mean for pair in every] == pytest.approx([0.625] * 5)
    assert all(pair.target_raw_reward is None is pair.comparator_raw_reward for pair in every)


@given(st.lists(st.integers(-3, 3), max_size=8), st.integers(1, 40) | st.none())
def test_pairs_are_those_of_a_plain_loop(rewards, limit):
    candidates = responses(*map(float, rewards))
    expected = []
    for winner in range(len(rewards)):
        for loser in range(len(rewards)):
            if rewards[winner] > rewards[loser]:
                expected.append((winner, loser))  # noqa: PERF401
    by_gap = []
    for gap in range(6, 0, -1):
        by_gap += [(w, x) for w, x in expected if rewards[w] - rewards[x] == gap]
    assert positions(pairs_within(candidates, "all", limit, chance()), candidates) == expected[:limit]
    assert positions(pairs_within(candidates, "reward_gap", limit, chance()), candidates) == by_gap[:limit]
    drawn = positions(pairs_within(candidates, "random", None, chance()), candidates)
    assert sorted(drawn) == expected
    assert positions(pairs_within(candidates, "random", limit, chance()), candidates) == drawn[:limit]


def test_random_pairs_come_from_the_given_stream_and_are_all_as_likely():
    """3 rewards make 3 pairs; in 3000 draws of one pair each is expected 1000 times, σ = 26."""
    candidates = responses(1.0, 2.0, 3.0)
    first = [positions(pairs_within(candidates, "random", 1, chance(seed)), candidates)[0] for seed in range(3000)]
    assert first[:50] == [positions(pairs_within(candidates, "random", 1, chance(seed)), candidates)[0] for seed in range(50)]
    counts = Counter(first)
    assert set(counts) == {(1, 0), (2, 0), (2, 1)} and all(abs(count - 1000) < 130 for count in counts.values())


@pytest.mark.parametrize("selection", ["reward_gap", "all"])
def test_only_random_selection_draws(selection):
    rng = chance()
    pairs_within(responses(1.0, 2.0), selection, None, rng)
    pairs_between(responses(1.0), responses(2.0), selection, None, rng)
    assert rng.random() == chance().random()


def test_no_pairs_of_equal_rewards_and_of_no_answers():
    for selection in ("reward_gap", "all", "random"):
        assert pairs_within([], selection, None, chance()) == []
        assert pairs_within(responses(1.0, 1.0), selection, None, chance()) == []
        assert pairs_within([response(1.0, completion=NONE)], selection, None, chance()) == []
        assert pairs_between([], [], selection, None, chance()) == []


def test_a_candidate_without_an_answer_takes_no_part():
    """Neither in pairs nor in the mean of the candidates: (1 + 3) / 2."""
    candidates = [response(1.0), response(9.0, completion=NONE), response(3.0)]
    pairs = pairs_within(candidates, "all", None, chance())
    assert positions(pairs, candidates) == [(2, 0)] and pairs[0].candidate_reward_mean == 2.0


def test_an_empty_text_is_an_answer():
    assert response(1.0, completion=Completion("", (), (), (3,), "length")).answered
    assert not response(1.0, completion=NONE).answered
    late = JointResponse(({"a_0": "p"}, {"a_0": "q"}), ({"a_0": SOME}, {"a_0": NONE}), 1.0, 1.0)
    assert not late.answered


# ---- selection between targets and comparators ----


def iterative() -> tuple[list[JointResponse], list[JointResponse]]:
    """Gaps at 0..4: 2 (target wins), 3 (comparator wins), a tie, 1 (comparator), 4 (target); the sixth target is not compared."""
    return responses(3.0, 2.0, 4.0, 0.0, 5.0, 10.0), responses(1.0, 5.0, 4.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("all", [(0, 100), (101, 1), (103, 3), (4, 104)]),
        ("reward_gap", [(4, 104), (101, 1), (0, 100), (103, 3)]),
        # The comparator's rewards are 1, 5, 1, 1; among those with 1 the gaps are 2, 1, 4.
        ("comparator_reward", [(101, 1), (4, 104), (0, 100), (103, 3)]),
    ],
)
def test_comparisons_at_equal_positions(selection, expected):
    targets, comparators = iterative()
    for limit in (1, 2, 4, 9, None):
        pairs = pairs_between(targets, comparators, selection, limit, chance())
        assert positions(pairs, targets, comparators) == expected[:limit]


@pytest.mark.parametrize("selection", ["comparator_reward", "reward_gap", "all"])
def test_equal_comparisons_keep_their_order(selection):
    targets, comparators = responses(2.0, 2.0, 2.0), responses(1.0, 1.0, 1.0)
    pairs = pairs_between(targets, comparators, selection, None, chance())
    assert positions(pairs, targets, comparators) == [(0, 100), (1, 101), (2, 102)]


def test_a_longer_list_of_comparators_is_cut():
    targets, comparators = responses(1.0), responses(2.0, 9.0, 8.0)
    assert positions(pairs_between(targets, comparators, "all", None, chance()), targets, comparators) == [(100, 0)]


def test_random_comparisons_are_the_same_pairs_in_every_order():
    targets, comparators = iterative()
    every = positions(pairs_between(targets, comparators, "all", None, chance()), targets, comparators)
    drawn = [pairs_between(targets, comparators, "random", None, chance(seed)) for seed in range(300)]
    orders = {tuple(positions(pairs, targets, comparators)) for pairs in drawn}
    assert orders == set(itertools.permutations(every))
    one = pairs_between(targets, comparators, "random", 1, chance(7))
    assert positions(one, targets, comparators) == positions(drawn[7][:1], targets, comparators)


def test_pairs_between_tell_both_sides_and_the_mean_of_all_targets():
    """The mean is over all six targets, 24 / 6, also those without a comparator."""
    targets = [response(r, raw=10 * r) for r in (3.0, 2.0, 4.0, 0.0, 5.0, 10.0)]
    comparators = [response(r, raw=-r) for r in (1.0, 5.0)]
    pairs = pairs_between(targets, comparators, "all", None, chance())
    assert [(p.target_raw_reward, p.comparator_raw_reward, p.candidate_reward_mean) for p in pairs] == [(30, -1, 4), (20, -5, 4)]
    assert [(p.winner.raw_reward, p.loser.raw_reward) for p in pairs] == [(30, -1), (-5, 20)]


def test_comparisons_without_an_answer_are_dropped_and_counted():
    targets = responses(1.0, 1.0, 1.0, 1.0)
    comparators = [response(2.0, completion=NONE), response(2.0), response(0.0, completion=NONE)]
    pairs = pairs_between(targets, comparators, "all", None, chance())
    assert positions(pairs, targets, comparators) == [(101, 1)]
    assert unanswered_comparisons(targets, comparators) == 2


def test_unknown_selections_are_refused():
    with pytest.raises(ValueError, match="pair_selection must be one of 'reward_gap', 'all', 'random', got 'comparator_reward'"):
        pairs_within(responses(1.0), "comparator_reward", None, chance())
    with pytest.raises(ValueError, match="'comparator_reward', 'reward_gap', 'all', 'random', got 'best'"):
        pairs_between(responses(1.0), responses(1.0), "best", None, chance())


# ---- records ----


def round_trip(pair: Pair) -> Pair:
    return pair_from_record(parse_json(dump_json(pair_record(pair))))


def test_a_record_of_one_turn_reads_like_the_reference():
    winner = JointResponse(({"a_0": "p", "b_0": "q"},), ({"a_0": SOME, "b_0": Completion("b", (5,), (-1.0,), (4,))},), 2.0, 20.0)
    loser = JointResponse(({"a_0": "p", "b_0": "q"},), ({"a_0": SOME, "b_0": SOME},), 1.0, 10.0)
    some = {"prompt_ids": [3], "token_ids": [1, 2], "logprobs": [-0.5, -0.25], "finish_reason": "length"}
    other = {"prompt_ids": [4], "token_ids": [5], "logprobs": [-1.0], "finish_reason": "stop"}
    assert pair_record(Pair(winner, loser, 1.5, 10.0, 20.0)) == {
        "prompts": {"a_0": "p", "b_0": "q"},
        "winner_completions": {"a_0": "text", "b_0": "b"},
        "loser_completions": {"a_0": "text", "b_0": "text"},
        "winner_reward": 2.0,
        "loser_reward": 1.0,
        "candidate_reward_mean": 1.5,
        "raw_rewards": [20.0, 10.0],
        "target_raw_reward": 10.0,
        "comparator_raw_reward": 20.0,
        "winner_tokens": {"a_0": some, "b_0": other},
        "loser_tokens": {"a_0": some, "b_0": some},
    }


def test_several_turns_are_lists_by_turn_and_may_differ_in_what_was_read():
    winner = JointResponse(({"a_0": "p"}, {"a_0": "after w"}), ({"a_0": SOME}, {"a_0": SOME}), 1.0, 1.0)
    loser = JointResponse(({"a_0": "p"}, {"a_0": "after l"}), ({"a_0": SOME}, {"a_0": SOME}), 0.0, 0.0)
    pair = Pair(winner, loser, 0.5)
    record = pair_record(pair)
    assert record["prompts"] == [{"a_0": "p"}, {"a_0": "after w"}]
    assert record["loser_prompts"] == [{"a_0": "p"}, {"a_0": "after l"}]
    assert record["winner_completions"] == [{"a_0": "text"}, {"a_0": "text"}]
    assert record["target_raw_reward"] is None is record["comparator_raw_reward"]
    assert round_trip(pair) == pair


def test_conversations_keep_their_messages():
    """Also two that are equal as texts and differ in a field that only the template sees."""
    named, plain = (ChatPrompt([{"role": "user", "content": "hi", **extra}]) for extra in ({"name": "x"}, {}))
    assert named == plain
    sides = [JointResponse(({"a_0": prompt},), ({"a_0": SOME},), 1.0, 1.0) for prompt in (named, plain)]
    loaded = round_trip(Pair(sides[0], sides[1], 1.0))
    for side, prompt in ((loaded.winner, named), (loaded.loser, plain)):
        read = side.prompts[0]["a_0"]
        assert isinstance(read, ChatPrompt) and read.messages == prompt.messages


anything = st.text(st.characters(exclude_categories=()), max_size=6)
finite = st.floats(allow_nan=False, allow_infinity=False)
ids = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
scores = st.lists(finite, max_size=3).map(tuple)
completions = st.builds(Completion, anything, ids, scores, ids, st.sampled_from(["stop", "length"]))


@st.composite
def joint_responses(draw, agents, turns):
    prompts = tuple({agent: draw(anything) for agent in agents} for _ in range(turns))
    written = tuple({agent: draw(completions) for agent in agents} for _ in range(turns))
    return JointResponse(prompts, written, draw(finite), draw(finite))


@st.composite
def any_pair(draw):
    agents = draw(st.lists(anything, min_size=1, max_size=3, unique=True))
    turns = draw(st.integers(1, 3))
    sides = [draw(joint_responses(agents, turns)) for _ in range(2)]
    return Pair(sides[0], sides[1], draw(finite), draw(finite | st.none()), draw(finite | st.none()))


@settings(max_examples=60, deadline=None)
@given(any_pair())
def test_records_give_pairs_back_exactly(pair):
    """Compared as they print, since −0.0 equals 0.0 and 1 equals 1.0."""
    assert repr(round_trip(pair)) == repr(pair)


def test_lone_surrogates_in_a_row_do_not_become_one_character():
    text = "\ud83d\ude00 \udfff"
    side = JointResponse(({"a_0": text},), ({"a_0": Completion(text, (1,), (-0.0,), (2,))},), -0.0, 5e-324)
    loaded = round_trip(Pair(side, side, 0.1 + 0.2))
    assert loaded.winner.completions[0]["a_0"].text == text == loaded.winner.prompts[0]["a_0"]
    assert math.copysign(1, loaded.winner.reward) == -1 == math.copysign(1, loaded.winner.completions[0]["a_0"].logprobs[0])
    assert loaded.candidate_reward_mean == 0.1 + 0.2 and loaded.winner.raw_reward == 5e-324


@pytest.mark.parametrize(
    ("pair", "named"),
    [
        (Pair(response(math.nan), response(1.0), 1.0), "winner_reward must be a finite number, got nan"),
        (Pair(response(1.0), response(1.0, raw=-math.inf), 1.0), "raw reward of the loser must be a finite number, got -inf"),
        (Pair(response(1.0), response(1.0), math.inf), "candidate_reward_mean"),
        (Pair(response(1.0), response(1.0), 1.0, math.nan), "target_raw_reward"),
        (Pair(response(1.0), response(1.0), 1.0, 1.0, math.nan), "comparator_raw_reward"),
        (
            Pair(response(1.0), response(1.0, completion=Completion("", (1,), (math.nan,), (1,))), 1.0),
            "log-probability of b_0, loser must be a finite number",
        ),
    ],
)
def test_numbers_that_are_not_finite_are_refused(pair, named):
    with pytest.raises(ValueError, match=named):
        pair_record(pair)


def good_record() -> dict:
    return pair_record(Pair(response(2.0), response(1.0), 1.5, 1.0, 2.0))


def test_a_record_without_a_field_says_which():
    for field in good_record():
        record = good_record()
        del record[field]
        with pytest.raises(ValueError, match=f"has no '{field}'"):
            pair_from_record(record)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("winner_reward", "2.0", "winner_reward must be a finite number, got '2.0'"),
        ("winner_reward", math.inf, "winner_reward must be a finite number"),
        ("winner_reward", True, "winner_reward must be a finite number"),
        ("candidate_reward_mean", None, "candidate_reward_mean must be a finite number, got None"),
        ("raw_rewards", [1.0], "not the record of a pair: list index out of range"),
        ("raw_rewards", [1.0, 10**400], "not the record of a pair"),
        ("prompts", "text", "not the record of a pair"),
        ("prompts", {"a_0": "read"}, "turn 1 of a joint response of a_0 has a_0, b_0"),
        ("prompts", {"a_0": "read", "b_0": 3}, "expected a text in the record of a pair, got 3"),
        ("loser_completions", {"a_0": "x", "b_0": None}, "expected a text in the record of a pair, got None"),
        ("loser_completions", {"a_0": "x", "c_0": "x"}, "has no 'c_0'"),
        ("winner_tokens", [], "argument"),
        ("winner_tokens", {"a_0": {}, "b_0": {}}, "has no 'prompt_ids'"),
    ],
)
def test_faulty_records_are_refused(field, value, named):
    with pytest.raises(ValueError, match=named):
        pair_from_record(good_record() | {field: value})


@pytest.mark.parametrize(
    ("part", "value", "named"),
    [
        ("token_ids", "ab", "token ids of a_0 are not all whole numbers"),
        ("prompt_ids", [1.5], "token ids of a_0 are not all whole numbers"),
        ("logprobs", [None], "log-probability of a_0 must be a finite number, got None"),
        ("finish_reason", "done", "finish_reason of a_0 must be one of 'stop', 'length', got 'done'"),
    ],
)
def test_faulty_tokens_are_refused(part, value, named):
    record = good_record()
    record["winner_tokens"]["a_0"][part] = value
    with pytest.raises(ValueError, match=named):
        pair_from_record(record)

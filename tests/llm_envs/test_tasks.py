"""Guards the bundled tasks: what their agents read, what joint answers earn (by hand), what options and own rows do."""

from __future__ import annotations

import itertools
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.env import TaskEnv
from llm_envs.tasks import length_ratio, matching, split
from llm_envs.types import ChatPrompt

TASKS = {"matching": matching.task, "split": split.task, "length_ratio": length_ratio.task}


def play(task, *joints, item=0):
    """Rewards of the first agent, turn by turn, for joint answers given in the agents' order; and the last state."""
    env = TaskEnv(task)
    state = env.initial(task.items[item], (0, 0), item)
    rewards = []
    for texts in joints:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        assert len(set(transition.rewards.values())) == 1  # the team shares it
        rewards.append(transition.rewards[env.possible_agents[0]])
        state = transition.state
    return rewards, state


# ---- every task ----


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_the_range_of_rewards_is_declared(make):
    """That of split is the sum of its terms' ranges."""
    env = TaskEnv(make())
    assert env.reward_range == ((-1.0, 1.0) if make is split.task else (0.0, 1.0))


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("num_turns", [1, 2, 3])
def test_reference_earns_the_most_on_every_row(make, num_turns):
    """The best return is 1 where solving ends the episode, and 1 a turn for length-ratio."""
    task = make(num_turns=num_turns)
    best = float(num_turns) if make is length_ratio.task else 1.0
    for rows in (task.items, task.eval_items):
        for position, row in enumerate(rows):
            env = TaskEnv(task)
            state, earned = env.initial(row, (0, 0), position), 0.0
            while not state.done:
                action = dict(zip(env.possible_agents, task.reference(row), strict=True))
                (transition,) = env.branch(state, [action])
                state, earned = transition.state, earned + transition.rewards["agent_0"]
            assert earned == best


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_rows_and_evaluation_rows(make):
    task = make()
    # One game needs no more to be measured; topics differ, so that more of them make a steadier mean.
    assert (len(task.items), len(task.eval_items)) == (64, 48 if task.name == "length-ratio-v0" else 16)
    own = make(items=task.items[:3])
    assert own.eval_items is None  # bundled rows would measure another data set
    assert make(items=task.items[:3], eval_items=task.items[:2]).eval_items == task.items[:2]
    assert len(make(eval_items=task.items[:2]).items) == 64


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_envs_pickle_with_their_reward(make):
    env = pickle.loads(pickle.dumps(TaskEnv(make(num_turns=2))))
    env.reset(seed=0)
    env.step(dict.fromkeys(env.possible_agents, "a"))


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
@given(texts=st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=4), turns=st.integers(1, 3))
def test_any_texts_earn_between_0_and_1(make, texts, turns):
    env = TaskEnv(make(num_turns=turns))
    state = env.initial(env.items[0], (0, 0), 0)
    while not state.done:
        transitions = env.branch(state, [dict(zip(env.possible_agents, pair, strict=True)) for pair in texts])
        for transition in transitions:
            assert all(0.0 <= reward <= 1.0 for reward in transition.rewards.values())
        state = transitions[-1].state


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_names_of_agents(make):
    assert make(agents=["writer_0", "critic_0"]).agent_ids == ("writer_0", "critic_0")


# ---- matching ----


def test_matching_prompts():
    task = matching.task(num_turns=2)
    rewards, state = play(task, ["red", "Blue!"])
    assert TaskEnv(task).initial(task.items[0], (0,)).observations["agent_0"] == "pick one word: red blue green gold"
    assert rewards == [0.0]
    assert state.observations == {
        "agent_0": "you said red. others said blue. pick one word: red blue green gold",
        "agent_1": "you said blue. others said red. pick one word: red blue green gold",
    }


def test_matching_prompts_of_three_agents_name_the_others_in_order():
    _, state = play(matching.task(agents=3, num_turns=2, words=["x", "y"]), ["x", "", "y"])
    assert state.observations == {
        "agent_0": "you said x. others said nothing y. pick one word: x y",
        "agent_1": "you said nothing. others said x y. pick one word: x y",
        "agent_2": "you said y. others said x nothing. pick one word: x y",
    }


@pytest.mark.parametrize(
    ("texts", "reward"),
    [
        (["red", "red"], 1.0),
        (["I choose RED.", "'red', red!"], 1.0),
        (["red", "blue"], 0.0),
        (["", ""], 0.0),
        (["", "red"], 0.0),
        (["yellow", "yellow"], 0.0),  # no listed word
        (["reddish", "red"], 0.0),  # no whole word
        (["red-blue", "red"], 0.0),
        (["red blue", "red blue"], 0.0),  # two words name none
        (["pick one word: red blue green gold"] * 2, 0.0),
    ],
)
def test_matching_two_agents(texts, reward):
    assert play(matching.task(), texts)[0] == [reward]


@pytest.mark.parametrize(
    ("texts", "reward"),
    [
        (["red"] * 4, 1.0),
        (["red"] * 3 + ["blue"], 2 / 3),  # (3 − 1)/(4 − 1)
        (["red", "red", "blue", "blue"], 1 / 3),
        (["red", "red", "", "gold"], 1 / 3),
        (["red", "blue", "green", "gold"], 0.0),
    ],
)
def test_matching_four_agents(texts, reward):
    assert play(matching.task(agents=4), texts)[0] == [pytest.approx(reward, abs=1e-12)]


def test_matching_sooner_earns_more_and_ends_the_episode():
    """H = 3, n = 3: a turn counts 1/3, agreement in turn t counts (4 − t)/3. Two of three agreeing scores (2 − 1)/(3 − 1) = 1/2."""
    task = matching.task(agents=3, num_turns=3)
    half, full = ["red", "red", "blue"], ["gold"] * 3
    first, state = play(task, full)
    assert first == [1.0] and state.terminated
    second, state = play(task, half, full)
    assert second == [pytest.approx(1 / 6), pytest.approx(2 / 3)] and state.terminated
    third, state = play(task, half, half, full)
    assert third == [pytest.approx(1 / 6), pytest.approx(1 / 6), pytest.approx(1 / 3)] and state.terminated
    never, state = play(task, half, half, half)
    assert never == [pytest.approx(1 / 6)] * 3 and state.terminated
    assert sum(first) > sum(second) > sum(third) > sum(never)


def test_matching_options():
    with pytest.raises(ValueError, match="at least 2 agents, got 1"):
        matching.task(agents=1)
    with pytest.raises(ValueError, match="at least 2 different words"):
        matching.task(words=["red", "RED"])
    with pytest.raises(ValueError, match="single words, got 'dark red'"):
        matching.task(words=["dark red", "blue"])
    for wrong in ("ab", 3, {"x": 1, "y": 2}):
        with pytest.raises(ValueError, match="'words' must be a list of words, got"):
            matching.task(words=wrong)
        with pytest.raises(ValueError, match="'parts' must be a list of words, got"):
            split.task(parts=wrong)
    with pytest.raises(ValueError, match="without items"):
        matching.task(words=["x", "y"], items=[{"words": ["x", "y"]}])
    with pytest.raises(ValueError, match="num_turns must be a whole number of at least 1, got 0"):
        matching.task(num_turns=0)


def test_matching_own_rows():
    task = matching.task(items=[{"words": ["Up", "down"]}, {"word": "x"}])
    assert play(task, ["up", "UP"])[0] == [1.0]
    with pytest.raises(ValueError, match="item 1 has no field 'words'"):
        play(task, ["up", "up"], item=1)


# ---- split ----


def test_split_prompts():
    task = split.task(num_turns=2)
    assert TaskEnv(task).initial(task.items[0], (0,)).observations["agent_1"] == "parts: a b c d. list yours:"
    _, state = play(task, ["D, a", "b and d"])
    assert state.observations == {
        "agent_0": "you listed d a. others listed b d. parts: a b c d. list yours:",
        "agent_1": "you listed b d. others listed d a. parts: a b c d. list yours:",
    }
    _, state = play(split.task(agents=3, num_turns=2), ["a", "none", "b c"])
    assert state.observations["agent_0"] == "you listed a. others listed nothing and b c. parts: a b c d. list yours:"
    _, state = play(split.task(agents=1, num_turns=2), ["a"])
    assert state.observations["agent_0"] == "you listed a. parts: a b c d. list yours:"


@pytest.mark.parametrize(
    ("texts", "coverage", "penalty"),
    [
        (["a d", "c b"], 1.0, 0.0),
        (["A, D.", "b/c"], 1.0, 0.0),
        (["a b c", "d"], 1.0, 0.0),
        (["a b", "c"], 0.75, 0.0),
        (["a b", "b c"], 0.75, 0.125),  # one double: waste 1/4
        (["a a", "b"], 0.5, 0.125),  # by the same agent too
        (["a b c d"] * 2, 1.0, 0.5),  # four doubles: waste 1
        (["a and d", "b c"], 1.0, 0.125),  # "and" is no part
        (["a", "a"], 0.25, 0.125),
        (["a x y z w", "b"], 0.5, 0.5),  # waste 4/4, penalty ½
        (["a x y z w v u", "b"], 0.5, 0.5),  # waste 6/4, the penalty stops at the coverage
        (["", "a b c d"], 0.0, 0.0),  # an agent that takes nothing
        (["everything", "a b c d"], 0.0, 0.0),
        (["", ""], 0.0, 0.0),
        (["parts: a b c d. list yours:"] * 2, 1.0, 1.0),  # 14 words, 4 of them needed: waste 10/4
    ],
)
def test_split_reward_and_its_terms(texts, coverage, penalty):
    """coverage − ½ · waste, at least 0; the first of the two terms is the coverage, the second −½ · waste."""
    env = TaskEnv(split.task())
    (transition,) = env.branch(env.initial(env.items[0], (0,)), [dict(zip(env.possible_agents, texts, strict=True))])
    info = transition.infos["agent_0"]
    assert (info["reward/coverage"], info["reward/waste"]) == (coverage, -penalty)
    assert transition.rewards == dict.fromkeys(env.possible_agents, coverage - penalty)


def test_split_only_a_perfect_division_earns_1():
    """Every joint answer of two agents with at most three of the words a, b, c for three parts: 1 exactly for the perfect ones."""
    answers = [" ".join(words) for n in range(4) for words in itertools.product("abc", repeat=n)]
    env = TaskEnv(split.task(parts=["a", "b", "c"]))
    pairs = list(itertools.product(answers, repeat=2))
    state = env.initial(env.items[0], (0,))
    transitions = env.branch(state, [{"agent_0": one, "agent_1": two} for one, two in pairs])
    for (one, two), transition in zip(pairs, transitions, strict=True):
        perfect = bool(one) and bool(two) and sorted(one.split() + two.split()) == ["a", "b", "c"]
        assert (transition.rewards["agent_0"] == 1.0) == perfect


def test_split_sooner_earns_more_and_ends_the_episode():
    """H = 2: the first turn scores 1 − ½·¼ = 7/8 and counts half; a perfect second turn counts half."""
    task = split.task(num_turns=2)
    rewards, state = play(task, ["a b", "b c d"], ["a b", "c d"])
    assert rewards == [pytest.approx(7 / 16), 0.5] and state.terminated
    assert play(task, ["a b", "c d"])[0] == [1.0]


def test_split_options():
    with pytest.raises(ValueError, match="at least 5 different words"):
        split.task(agents=5)
    assert play(split.task(agents=5, items=[{"parts": list("abcde")}]), list("abcde"))[0] == [1.0]
    with pytest.raises(ValueError, match="at least 3 different words"):
        play(split.task(agents=3, items=[{"parts": ["a", "b"]}]), ["a", "b", "b"])


# ---- length-ratio ----


@pytest.mark.parametrize(
    ("first", "second", "reward"),
    [
        (10, 20, 1.0),
        (10, 25, 1.0),
        (10, 30, 1.0),
        (10, 10, math.exp(-1.0)),
        (10, 0, math.exp(-2.0)),
        (10, 35, math.exp(-0.5)),
        (1, 100, math.exp(-97.0)),
        (0, 50, 0.0),
        (0, 0, 0.0),
    ],
)
def test_length_ratio_reward(first, second, reward):
    assert play(length_ratio.task(), ["x" * first, "y" * second])[0] == [pytest.approx(reward, abs=1e-15)]


def test_length_ratio_counts_characters_not_bytes():
    assert play(length_ratio.task(), ["é", "猫"])[0] == [pytest.approx(math.exp(-1.0))]


def test_length_ratio_interval():
    """Ratio 1.5 with the interval [0.5, 1]: distance 0.5."""
    task = length_ratio.task(target_min=0.5, target_max=1.0)
    assert play(task, ["xx", "xxx"])[0] == [pytest.approx(math.exp(-0.5))]
    for wrong in (
        {"target_min": 4.0},
        {"target_min": -1.0},
        {"target_max": math.inf},
        {"target_min": math.nan},
        {"target_min": "2"},
    ):
        with pytest.raises((ValueError, TypeError), match="target_min and target_max must be"):
            length_ratio.task(**wrong)
    with pytest.raises(ValueError, match="exactly 2 agents, got 3"):
        length_ratio.task(agents=3)


def test_length_ratio_two_turns_tell_the_lengths():
    task = length_ratio.task(num_turns=2)
    topic = task.items[0]["topic"]
    rewards, state = play(task, ["xx", "xxxx"])
    assert rewards == [1.0] and not state.done
    assert state.observations == {
        "agent_0": f"you wrote 2 characters, the other 4. tell me about {topic}.",
        "agent_1": f"you wrote 4 characters, the other 2. tell me about {topic}.",
    }
    rewards, state = play(task, ["xx", "xxxx"], ["xx", "xx"])
    assert rewards == [1.0, pytest.approx(math.exp(-1.0))] and state.terminated


def test_length_ratio_rows():
    texts, messages = {"prompt": "why?"}, {"prompt": [{"role": "user", "content": "why?"}], "topic": None}
    task = length_ratio.task(num_turns=2, items=[texts, messages, {"topic": None, "prompt": None}, {"text": "why?"}])
    env = TaskEnv(task)
    assert env.initial(texts, (0,)).observations["agent_0"] == "why?"
    _, state = play(task, ["x", "y"], item=1)
    prompt = state.observations["agent_0"]
    assert isinstance(prompt, ChatPrompt)
    assert [message["content"] for message in prompt.messages] == ["why?", "you wrote 1 characters, the other 1."]
    with pytest.raises(
        ValueError, match=r"on item 2: .*needs the field 'topic' or 'prompt'.*; None in this row: 'topic', 'prompt'"
    ):
        play(task, ["x", "y"], item=2)
    with pytest.raises(ValueError, match=r"needs the field 'topic' or 'prompt', got \{'text': 'why"):
        play(task, ["x", "y"], item=3)


def test_length_ratio_topics():
    """64 and 48 different short topics, none of them in both."""
    task = length_ratio.task()
    train, evaluation = ({row["topic"] for row in rows} for rows in (task.items, task.eval_items))
    assert (len(train), len(evaluation), len(train & evaluation)) == (64, 48, 0)
    assert max(map(len, train | evaluation)) <= 12


def test_rows_from_a_data_library():
    """A Dataset fills fields that other rows have with None; a stream of rows has no length."""
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"topic": ["the rain", None], "prompt": [None, "why?"]})
    assert data[0]["prompt"] is data[1]["topic"] is None
    for items in (data, data.to_iterable_dataset()):
        env = TaskEnv(length_ratio.task(items=items))
        prompts = [env.initial(row, (0,)).observations["agent_0"] for row in items]
        assert prompts == ["tell me about the rain.", "why?"]
    words = datasets.Dataset.from_list([{"words": ["x", "y"]}, {"words": ["up", "down", "off"]}])
    env = TaskEnv(matching.task(items=words, eval_items=words))
    env.reset(seed=0, options={"item": 1})
    assert env.step({"agent_0": "off", "agent_1": "off"})[1] == {"agent_0": 1.0, "agent_1": 1.0}

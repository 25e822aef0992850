"""Guards the wrappers: what a learner sees through them, that the task inside is played as ever, and that states stay values."""

from __future__ import annotations

import copy
import dataclasses
import time

import numpy as np
import pytest

from llm_envs import ChatPrompt, RewardError, RewardProcessors, Task, TaskEnv
from llm_envs.wrappers import (
    JointAgent,
    ScoreWith,
    TaggedSections,
    TransformReward,
    TurnLimit,
    UnparsableCompletionError,
    Wrapper,
    split_completion,
)

ROLES = ("writer_0", "critic_0")
ROWS = [{"prompt": "p0", "topic": "rain"}, {"prompt": "p1", "topic": "sun"}]


def lengths(writer, critic):
    """Each role earns its own length."""
    return [[len(w), len(c)] for w, c in zip(writer, critic, strict=True)]


def echo(agent_completions, rewards, turn):
    return [f"turn {turn}: {text} earned {reward:g}" for text, reward in zip(agent_completions, rewards, strict=True)]


def inside(num_turns=3, **options):
    plain = {"items": ROWS, "agents": ROLES, "reward": lengths, "transition": echo, "num_turns": num_turns}
    return TaskEnv(Task(**{**plain, **options}))


def joint(writer, critic):
    return {"writer_0": writer, "critic_0": critic}


def start(env):
    env.reset(seed=0, options={"item": 0})
    return env.snapshot()


# ---- the base ----


def test_a_wrapper_is_an_env_of_its_own():
    env = inside()
    wrapped = Wrapper(env)
    assert wrapped.unwrapped is wrapped
    assert wrapped.env is env
    assert (wrapped.possible_agents, wrapped.num_turns, wrapped.items) == (env.possible_agents, 3, ROWS)
    for agent in ROLES:
        assert wrapped.observation_space(agent) == env.observation_space(agent)
        assert wrapped.observation_space(agent) is not env.observation_space(agent)
    assert str(wrapped) == "Wrapper(task)"
    wrapped.reset(seed=0)
    assert env.agents == [], "the env inside is not played"


def test_a_wrapper_changes_nothing_by_itself():
    plain, wrapped = inside(), Wrapper(inside())
    assert plain.reset(seed=3) == wrapped.reset(seed=3)
    while plain.agents:
        actions = joint("a", "bb")
        assert plain.step(actions) == wrapped.step(actions)
        assert plain.state() == wrapped.state()
        assert dataclasses.replace(wrapped.snapshot(), inner=None) == plain.snapshot() == wrapped.snapshot().inner


@pytest.mark.parametrize("build", [Wrapper, JointAgent, lambda env: TurnLimit(env, 1), lambda env: ScoreWith(env, lengths)])
def test_only_branching_envs_can_be_wrapped(build):
    for other in (None, "env", inside().task):
        with pytest.raises(TypeError, match="wraps a BranchingEnv"):
            build(other)


def test_a_state_from_elsewhere_is_refused():
    env = inside()
    for wrapper in (Wrapper(env), JointAgent(env), TurnLimit(env, 2)):
        with pytest.raises(ValueError, match=r"does not come from a wrapper|is of the agents"):
            wrapper.branch(start(env), [dict.fromkeys(wrapper.possible_agents, "x")])


# ---- rewards ----


def test_transformed_rewards():
    """Lengths 2 and 3 become 10 · 2 − 1 = 19 and 29; the task's transition still speaks of 2 and 3."""
    f = RewardProcessors.compose(RewardProcessors.scale(10), RewardProcessors.shift(-1))
    env = TransformReward(inside(), f)
    start(env)
    observations, rewards, _, _, infos = env.step(joint("ab", "abc"))
    assert rewards == {"writer_0": 19.0, "critic_0": 29.0}
    assert observations["critic_0"]["prompt"] == "turn 1: abc earned 3"
    assert infos["writer_0"]["raw_reward"] == 2.0
    state = env.snapshot()
    assert state.history[0].rewards == {"writer_0": 19.0, "critic_0": 29.0}
    assert state.inner.history[0].rewards == {"writer_0": 2.0, "critic_0": 3.0}
    env.step(joint("a", "a"))
    assert [turn.rewards["writer_0"] for turn in env.snapshot().history] == [19.0, 9.0]


def test_transformations_stack_from_the_inside():
    """(2 + 1) · 10 = 30, not 2 · 10 + 1."""
    env = TransformReward(TransformReward(inside(), RewardProcessors.shift(1)), RewardProcessors.scale(10))
    (transition,) = env.branch(start(env), [joint("ab", "")])
    assert transition.rewards == {"writer_0": 30.0, "critic_0": 10.0}


@pytest.mark.parametrize("result", [None, float("nan"), "1"])
def test_a_transformation_that_gives_no_number_is_an_error(result):
    def squash(reward):
        return result

    env = TransformReward(inside(), squash)
    with pytest.raises(RewardError, match=r"reward processor '.*squash' on the rewards .*item 0, turn 1"):
        env.branch(start(env), [joint("a", "b")])
    with pytest.raises(TypeError, match="f must be callable, got 2"):
        TransformReward(inside(), 2)


def test_scores_replace_rewards():
    """One call for all joint actions of a state, with what was read and written; the task's raw reward stays in the infos."""
    calls = []

    def score(prompts, completions):
        calls.append((copy.deepcopy(prompts), copy.deepcopy(completions)))
        return np.array([0.25, 0.75], dtype=np.float32)

    env = ScoreWith(inside(reward_processor=lambda reward: -reward), score)
    actions = [joint("ab", "c"), joint("", "d")]
    transitions = env.branch(start(env), actions)
    assert calls == [([dict.fromkeys(ROLES, "p0")] * 2, actions)]
    assert [dict(t.rewards) for t in transitions] == [dict.fromkeys(ROLES, 0.25), dict.fromkeys(ROLES, 0.75)]
    assert transitions[0].infos["writer_0"] == {"turn": 1, "item_index": 0, "raw_reward": 0.25, "reward/task": 2.0}
    assert transitions[0].infos["critic_0"]["reward/task"] == 1.0
    assert transitions[0].state.history[-1].rewards == dict.fromkeys(ROLES, 0.25)
    assert transitions[0].state.observations["writer_0"] == "turn 1: ab earned -2"
    assert env.branch(start(env), []) == []
    assert len(calls) == 1


def test_scores_may_be_per_agent_and_of_later_turns():
    env = ScoreWith(inside(), lambda prompts, completions: [[len(p) for p in prompt.values()] for prompt in prompts])
    start(env)
    env.step(joint("a", "b"))
    _, rewards, *_ = env.step(joint("", ""))
    assert rewards == {"writer_0": len("turn 1: a earned 1"), "critic_0": len("turn 1: b earned 1")}


def test_a_score_that_names_states_sees_the_turns_before_and_the_item():
    """Each joint response comes with the state acted from, earlier turns with the rewards that the wrapper gave."""
    calls = []

    def score(prompts, completions, states):
        calls.append(states)
        return [
            10.0 * len(state.history) + state.item_index + len(c["writer_0"]) for state, c in zip(states, completions, strict=True)
        ]

    env = ScoreWith(inside(), score)
    state = start(env)
    first, other = env.branch(state, [joint("ab", "c"), joint("", "d")])
    second = env.branch(first.state, [joint("x", "y"), joint("xyz", "")])
    assert calls == [[state] * 2, [first.state] * 2]
    (turn,) = calls[1][0].history
    assert (turn.observations, turn.actions, turn.rewards) == (dict.fromkeys(ROLES, "p0"), joint("ab", "c"), first.rewards)
    assert [t.rewards["writer_0"] for t in (first, other, *second)] == [2.0, 0.0, 11.0, 13.0]


def test_states_are_given_to_scores_that_take_them_alone():
    """A score without the name is called as ever, one with a default or `**options` gets them."""

    def two(prompts, completions):
        return [0.0] * len(prompts)

    def default(prompts, completions, states=None):
        return [float(len(states or ()))] * len(prompts)

    def options(prompts, completions, **given):
        return [float(len(given["states"]))] * len(prompts)

    actions = [joint("a", "b"), joint("c", "d")]
    for score, expected in ((two, 0.0), (default, 2.0), (options, 2.0)):
        env = ScoreWith(inside(), score)
        assert [t.rewards["critic_0"] for t in env.branch(start(env), actions)] == [expected] * 2
    with pytest.raises(TypeError, match=r"score .* requires 'item', .*: it gets the prompts, the completions and may name states"):
        ScoreWith(inside(), lambda prompts, completions, item: [0.0])


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda prompts, completions: [1.0], "expected 2 rewards, one for each joint response, got 1"),
        (lambda prompts, completions: [1.0, float("nan")], "a reward must be finite, got nan"),
        (lambda prompts, completions: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_score_that_is_none_is_an_error(score, message):
    env = ScoreWith(inside(), score)
    with pytest.raises(RewardError, match=rf"score '.*<lambda>' on item 0, turn 1, completions .*{message}"):
        env.branch(start(env), [joint("a", "b"), joint("c", "d")])
    with pytest.raises(TypeError, match="score must be callable, got 'model'"):
        ScoreWith(inside(), "model")


def test_scores_of_scores_keep_the_tasks_own_reward():
    """Lengths 2 and 4 are the task's: beside one score, beside a score of scores, and as the roles' mean around them."""
    scored = ScoreWith(inside(), lambda prompts, completions: [7.0] * len(completions))
    twice = ScoreWith(scored, lambda prompts, completions: [9.0] * len(completions))
    (transition,) = twice.branch(start(twice), [joint("ab", "cdef")])
    assert {agent: info["reward/task"] for agent, info in transition.infos.items()} == {"writer_0": 2.0, "critic_0": 4.0}
    assert transition.infos["writer_0"]["raw_reward"] == 9.0
    team = JointAgent(scored)
    (transition,) = team.branch(start(team), [{"team_0": "<writer_0>ab</writer_0><critic_0>cdef</critic_0>"}])
    assert (transition.infos["team_0"]["raw_reward"], transition.infos["team_0"]["reward/task"]) == (7.0, 3.0)


def test_a_function_that_cannot_be_called_is_refused_when_wrapping():
    with pytest.raises(TypeError, match=r"f .* takes 0 of the 1 arguments it is given: a reward"):
        TransformReward(inside(), lambda: 1.0)
    with pytest.raises(TypeError, match=r"score .* takes 1 of the 2 arguments it is given: the prompts, the completions"):
        ScoreWith(inside(), lambda completions: [1.0])
    with pytest.raises(TypeError, match=r"score .* is async"):
        ScoreWith(inside(), judged)


async def judged(prompts, completions):
    return [1.0]


def test_an_exit_inside_a_score_is_a_failure():
    def exits(prompts, completions):
        raise SystemExit(0)

    env = ScoreWith(inside(), exits)
    with pytest.raises(RewardError, match="SystemExit: 0"):
        env.branch(start(env), [joint("a", "b")])


# ---- turn limits ----


def test_a_limit_truncates_and_leaves_the_next_observation():
    env = TurnLimit(inside(5), 2)
    assert env.num_turns == 2
    start(env)
    _, _, terminations, truncations, _ = env.step(joint("a", "b"))
    assert not any([*terminations.values(), *truncations.values()])
    observations, _, terminations, truncations, _ = env.step(joint("cc", "d"))
    assert (set(terminations.values()), set(truncations.values())) == ({False}, {True})
    assert observations["writer_0"]["prompt"] == "turn 2: cc earned 2"
    state = env.snapshot()
    assert (state.truncated, state.inner.done) == (True, False)
    with pytest.raises(ValueError, match="the episode is over after turn 2"):
        env.branch(state, [joint("x", "y")])


def test_the_tasks_own_end_wins():
    stops = inside(5, transition=lambda turn: None if turn == 2 else ["go", "on"])
    for env in (TurnLimit(stops, 2), TurnLimit(inside(2), 2), TurnLimit(inside(2), 7)):
        start(env)
        env.step(joint("a", "b"))
        _, _, terminations, truncations, _ = env.step(joint("a", "b"))
        assert (set(terminations.values()), set(truncations.values())) == ({True}, {False})
    assert TurnLimit(inside(2), 7).num_turns == 2


def test_the_smaller_of_two_limits_counts():
    for env in (TurnLimit(TurnLimit(inside(9), 1), 3), TurnLimit(TurnLimit(inside(9), 3), 1)):
        assert env.num_turns == 1
        start(env)
        env.step(joint("a", "b"))
        assert env.agents == []
        assert env.snapshot().truncated


@pytest.mark.parametrize("limit", [0, -1, 2.0, True, None])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(ValueError, match="num_turns must be a whole number of at least 1"):
        TurnLimit(inside(), limit)


# ---- one agent for the whole team ----


def test_the_prompt_holds_every_roles_prompt_and_the_form():
    env = JointAgent(inside(formatters=[lambda item: f"write on {item['topic']}", lambda item: "judge it"]))
    assert env.possible_agents == ["team_0"]
    prompt = start(env).observations["team_0"]
    parts = [
        "writer_0 is asked:\nwrite on rain",
        "critic_0 is asked:\njudge it",
        "<writer_0>",
        "</writer_0>",
        "<critic_0>",
        "</critic_0>",
    ]
    assert [prompt.index(part) for part in parts] == sorted(prompt.index(part) for part in parts)


def test_the_text_is_split_and_played():
    """Lengths 2 and 4: team reward 3, the mean; every role reads its own next prompt, and the team reads both."""
    env = JointAgent(inside())
    start(env)
    text = "<writer_0> ab </writer_0>\n<critic_0>cdef</critic_0>"
    observations, rewards, _, _, infos = env.step({"team_0": text})
    assert rewards == {"team_0": 3.0}
    assert infos["team_0"] == {
        "env_step": 1,
        "turn": 1,
        "item_index": 0,
        "raw_reward": 3.0,
        "role_reward/writer_0": 2.0,
        "role_reward/critic_0": 4.0,
        "role_completion/writer_0": "ab",
        "role_completion/critic_0": "cdef",
        "parse_failed": 0,
    }
    assert "writer_0 is asked:\nturn 1: ab earned 2" in observations["team_0"]["prompt"]
    assert "critic_0 is asked:\nturn 1: cdef earned 4" in observations["team_0"]["prompt"]
    state = env.snapshot()
    assert state.history[0].actions == {"team_0": text}
    assert state.history[0].rewards == {"team_0": 3.0}
    assert state.inner.history[0].actions == joint("ab", "cdef")
    assert "[turn 1, critic_0 writes]\ncdef" in env.state()
    while env.agents:
        last, *_ = env.step({"team_0": ""})
    assert last["team_0"]["prompt"] == env.snapshot().history[-1].observations["team_0"], "after the end: what it read last"


def test_named_terms_are_means_over_the_roles():
    env = JointAgent(inside(reward={"length": lengths, "bonus": lambda writer, critic: [1] * len(writer)}))
    (transition,) = env.branch(start(env), [{"team_0": "<writer_0>ab</writer_0><critic_0>cdef</critic_0>"}])
    infos = transition.infos["team_0"]
    assert (infos["reward/length"], infos["reward/bonus"], infos["raw_reward"]) == (3.0, 1.0, 4.0)


def test_a_text_that_cannot_be_split_plays_nothing_and_is_counted():
    env = JointAgent(inside())
    texts = ["no sections", "", "<writer_0>ab</writer_0>"]
    transitions = env.branch(start(env), [{"team_0": text} for text in texts])
    assert [t.infos["team_0"]["parse_failed"] for t in transitions] == [1, 1, 0]
    assert [t.rewards["team_0"] for t in transitions] == [0.0, 0.0, 1.0]
    assert transitions[0].state.inner.history[0].actions == joint("", "")
    assert transitions[2].state.inner.history[0].actions == joint("ab", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<writer_0>a</writer_0><critic_0>b</critic_0>", ["a", "b"]),
        ("<critic_0>b</critic_0> then <writer_0>a</writer_0>", ["a", "b"]),
        ("<WRITER_0>a</Writer_0>< critic_0 >\n b \n< / critic_0 >", ["a", "b"]),
        ("<writer_0>\nline 1\n\nline 2\n</writer_0>", ["line 1\n\nline 2", ""]),
        ("<writer_0>a</writer_0><writer_0>again</writer_0>", ["a", ""]),
        ("<critic_0></critic_0>", ["", ""]),
        ("<writer_0>a<critic_0>b</critic_0>", ["a", "b"]),  # never closed: up to the next tag
        ("<writer_0>a</writer_0><critic_0>cut off he", ["a", "cut off he"]),  # … or the end
        ("<writer_0>if x < 3 and y > 2: <b>bold</b></writer_0>", ["if x < 3 and y > 2: <b>bold</b>", ""]),
        ("none", None),
        ("", None),
        ("<writer_1>a</writer_1>", None),
        ("</writer_0>", None),
        ("writer_0: a", None),
    ],
)
def test_reading_sections(text, expected):
    adapter = TaggedSections(ROLES)
    if expected is None:
        with pytest.raises(UnparsableCompletionError, match="none of the sections writer_0, critic_0"):
            split_completion(adapter, text, {}, 2)
    else:
        assert split_completion(adapter, text, {}, 2) == expected


def test_similar_names_are_told_apart():
    adapter = TaggedSections(tuple(f"agent_{i}" for i in range(11)))
    texts = split_completion(adapter, "<agent_10>ten</agent_10><agent_1>one</agent_1>", {}, 11)
    assert (texts[1], texts[10], texts[0]) == ("one", "ten", "")


def test_the_default_form_can_be_read_back():
    """What the prompt shows as the form parses into the roles' places."""
    adapter = TaggedSections(ROLES)
    prompt = adapter.build_prompt({}, ["x", "y"])
    assert split_completion(adapter, prompt, {}, 2) == ["(the answer of writer_0)", "(the answer of critic_0)"]


class Lines:
    """An adapter of one's own: one line for each role."""

    def build_prompt(self, item, agent_prompts):
        return [{"role": "user", "content": f"{item['topic']}: {' / '.join(agent_prompts)}"}]

    def parse_completion(self, text, item, n):
        lines = text.split("\n")
        if len(lines) != n:
            raise UnparsableCompletionError(f"{len(lines)} lines")
        return lines


def test_an_adapter_of_ones_own():
    env = JointAgent(inside(), Lines())
    prompt = start(env).observations["team_0"]
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages == ({"role": "user", "content": "rain: p0 / p0"},)
    good, bad = env.branch(start(env), [{"team_0": "a\nbbb"}, {"team_0": "a"}])
    assert (good.rewards["team_0"], good.infos["team_0"]["parse_failed"]) == (2.0, 0)
    assert (bad.rewards["team_0"], bad.infos["team_0"]["parse_failed"]) == (0.0, 1)


@pytest.mark.parametrize(
    ("parsed", "error", "message"),
    [
        ("ab", TypeError, "must return a list of 2 texts, got 'ab'"),
        (None, TypeError, "must return a list of 2 texts, got None"),
        (["a", 3], TypeError, r"must return a list of 2 texts, got \['a', 3\]"),
        (["a"], ValueError, "must return 2 texts, got 1"),
        (["a", "b", "c"], ValueError, "must return 2 texts, got 3"),
    ],
)
def test_an_adapter_that_returns_no_texts_is_an_error(parsed, error, message):
    class Own(Lines):
        def parse_completion(self, text, item, n):
            return parsed

    env = JointAgent(inside(), Own())
    with pytest.raises(error, match=f"Own.parse_completion {message}"):
        env.branch(start(env), [{"team_0": "x"}])


@pytest.mark.parametrize("built", ["", "  \n", None, 3])
def test_an_adapter_that_builds_no_prompt_is_an_error(built):
    class Own(Lines):
        def build_prompt(self, item, agent_prompts):
            return built

    with pytest.raises(ValueError, match=r"what Own.build_prompt returns must (not be empty|be a text)"):
        JointAgent(inside(), Own()).reset(seed=0)


def test_an_adapters_own_error_is_no_parse_failure():
    class Own(Lines):
        def parse_completion(self, text, item, n):
            raise ZeroDivisionError

    env = JointAgent(inside(), Own())
    with pytest.raises(ZeroDivisionError):
        env.branch(start(env), [{"team_0": "x"}])


def test_an_adapter_may_spoil_its_row():
    class Own(Lines):
        def build_prompt(self, item, agent_prompts):
            agent_prompts.clear()
            return item.pop("topic")

        def parse_completion(self, text, item, n):
            item.clear()
            return super().parse_completion(text, item, n)

    env = JointAgent(inside(), Own())
    for _ in range(2):
        assert start(env).observations == {"team_0": "rain"}
        env.step({"team_0": "a\nb"})
    assert ROWS[0] == {"prompt": "p0", "topic": "rain"}


def test_a_joint_prompt_beyond_its_space_is_an_error():
    class Own(Lines):
        def build_prompt(self, item, agent_prompts):
            return "x" * 4117

    with pytest.raises(ValueError, match=r"Own.build_prompt returns has 4117 characters, more than max_prompt_length=4116"):
        JointAgent(inside(max_prompt_length=10), Own()).reset(seed=0)


def test_tags_must_be_the_roles():
    for roles in ((), ("writer", "Writer")):
        with pytest.raises(ValueError, match="roles must be different names, whatever their case, got"):
            TaggedSections(roles)
    with pytest.raises(ValueError, match="TaggedSections has the roles writer_0, but there are 2 agents"):
        JointAgent(inside(), TaggedSections(("writer_0",))).reset(seed=0)


def test_white_space_is_read_in_no_time():
    """A model that repeats itself writes such texts; in a regular expression, neighbouring repetitions make it quadratic."""
    begin = time.perf_counter()
    with pytest.raises(UnparsableCompletionError):
        TaggedSections(ROLES).parse_completion("<" + " " * 20_000, {}, 2)
    assert time.perf_counter() - begin < 1.0


def test_an_adapter_without_its_methods_is_refused():
    class Half:
        def build_prompt(self, item, agent_prompts):
            return "x"

    with pytest.raises(TypeError, match=r"must have the methods build_prompt and parse_completion, but .* lacks parse_completion"):
        JointAgent(inside(), Half())


def test_wrappers_around_a_joint_agent_and_inside_it():
    """Lengths 2 and 4. Inside: (2 + 4)/2 · 2 = 6; outside: 3 · 2 = 6 with other role rewards."""
    text = {"team_0": "<writer_0>ab</writer_0><critic_0>cdef</critic_0>"}
    within = JointAgent(TransformReward(inside(), RewardProcessors.scale(2)))
    around = TransformReward(JointAgent(inside()), RewardProcessors.scale(2))
    for env, role_reward in ((within, 4.0), (around, 2.0)):
        (transition,) = env.branch(start(env), [text])
        assert transition.rewards == {"team_0": 6.0}
        assert transition.infos["team_0"]["role_reward/writer_0"] == role_reward
    limited = JointAgent(TurnLimit(inside(), 1))
    (transition,) = limited.branch(start(limited), [text])
    assert transition.state.truncated
    assert "turn 1: ab earned 2" in transition.state.observations["team_0"], "the next prompt, to bootstrap from"
    scored = JointAgent(ScoreWith(inside(), lambda prompts, completions: [len(c["critic_0"]) for c in completions]))
    (transition,) = scored.branch(start(scored), [text])
    assert transition.rewards == {"team_0": 4.0}
    limited = TurnLimit(JointAgent(inside()), 1)
    (transition,) = limited.branch(start(limited), [text])
    assert transition.state.truncated
    assert "turn 1: ab earned 2" in transition.state.observations["team_0"]

"""Guards what a task accepts, how its rows become prompts and what its transition is told, all checked when it is built."""

from __future__ import annotations

import copy
import functools
import math

import numpy as np
import pytest

from llm_envs import ChatPrompt, Task, TaskEnv, TransitionError
from llm_envs.task import agent_names

ROWS = [{"prompt": "first"}, {"prompt": "second"}]


def zero(*lists):
    return [0.0] * len(lists[0])


class Frame:
    """Columns by name, like a data frame."""

    def __len__(self):
        return 2

    def __getitem__(self, column):
        return {"prompt": ["first", "second"]}[column]


def task(**options):
    return Task(**{"reward": zero, "items": ROWS, **options})


def prompts(env, index=0):
    return dict(env.initial(env.items[index], (0,), index).observations)


def act(env, *texts):
    """Play one turn; what everybody reads then."""
    observations, *_ = env.step(dict(zip(env.possible_agents, texts, strict=True)))
    return {agent: observation["prompt"] for agent, observation in observations.items()}


# ---- options ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_turns": 0}, "num_turns must be a whole number of at least 1, got 0"),
        ({"num_turns": 2.0}, "num_turns must be a whole number of at least 1, got 2.0"),
        ({"num_turns": True}, "num_turns must be a whole number"),
        ({"num_turns": 2}, "num_turns=2 needs a transition"),
        ({"max_prompt_length": 0}, "max_prompt_length must be"),
        ({"max_completion_length": "9"}, "max_completion_length must be"),
        ({"items": []}, "items has no rows"),
        ({"items": "rows"}, "items must be a list of rows, a Dataset or an iterable of rows, got str"),
        ({"items": {"prompt": "a"}}, "items must be a list of rows, a Dataset or an iterable of rows, got dict"),
        ({"items": 3}, "items must be a list of rows"),
        ({"items": ["first"]}, "items must hold mappings, but row 0 is str: 'first'"),
        ({"items": (row for row in ROWS)}, "items must be iterable more than once, but generator runs dry"),
        ({"eval_items": []}, "eval_items has no rows"),
        ({"eval_items": [1]}, "eval_items must hold mappings"),
        ({"agents": 0}, "agents must be at least 1, got 0"),
        ({"agents": True}, "agents must be at least 1, got True"),
        ({"agents": []}, "agents must be a number or names of the form <role>_<number>"),
        ({"agents": ["writer"]}, "agents must be a number or names of the form <role>_<number>"),
        ({"agents": "writer_0"}, "agents must be a number or names"),
        ({"agents": ["Writer_0"]}, "agents must be a number or names"),
        ({"agents": ["code_writer_0"]}, "agents must be a number or names"),
        ({"agents": ["writer_0", "writer_0"]}, "agents must have different names"),
        ({"agents": 2.0}, "agents must be a number or names of the form .* got 2.0"),
        ({"agents": None}, "agents must be a number or names of the form .* got None"),
        ({"agents": {"a_0", "b_0"}}, "agents must be a number or names of the form .* in a list, got"),
        ({"name": None}, "name must be a text, got None"),
        ({"external_prompt_passthrough": "no"}, "external_prompt_passthrough must be True or False, got 'no'"),
        ({"reward_processor": 2}, "reward_processor must be callable, got 2"),
        ({"reward_processor": lambda: 1}, "reward_processor .* takes 0 of the 1 arguments it is given: a reward"),
        ({"reward_processor": lambda reward, scale: 1}, "reward_processor .*requires 'scale'"),
        ({"reference": "x"}, "reference must be callable, got 'x'"),
        ({"reference": lambda: ["x", "y"]}, "reference .* takes 0 of the 1 arguments it is given: the item"),
        ({"reward": None}, "reward function must be callable, got None"),
        ({"reward": lambda one: [0]}, "takes 1 of the 2 arguments"),
        ({"formatters": [str]}, "formatters must be one function or one for each of 2 agents, got"),
        ({"formatters": "upper"}, "formatters must be one function or one for each of 2 agents, got 'upper'"),
        ({"formatters": [lambda item: "", None]}, "formatter of agent_1 must be callable, got None"),
        ({"formatters": lambda item, tokenizer: ""}, "formatter of agent_0 .*requires 'tokenizer'"),
        ({"formatters": lambda: ""}, "formatter of agent_0 .*takes 0 of the 1 arguments"),
        ({"transition": lambda history: None}, "external transition .*requires 'history'"),
        ({"transition": 3}, "external transition must be callable, got 3"),
        ({"items": Frame()}, "items must give its rows by position, but row 0 of Frame gives KeyError: 0"),
        ({"reward": {"": zero}}, "reward must be a function or at least one named term"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        task(**options)


def test_a_processor_without_a_readable_signature_is_taken():
    assert task(reward_processor=math.log).reward_processor is math.log
    assert task(reward_processor=np.tanh).reward_processor is np.tanh


def test_only_a_task_makes_an_env():
    for other in (None, {"items": ROWS}, zero):
        with pytest.raises(TypeError, match="task must be a Task, got"):
            TaskEnv(other)


def test_names_of_agents():
    assert [type(name) for name in agent_names([np.str_("solver_0"), "critic_0"])] == [str, str]
    assert agent_names(3) == ("agent_0", "agent_1", "agent_2")
    assert agent_names(["solver_0", "critic_0", "critic_1"]) == ("solver_0", "critic_0", "critic_1")


# ---- formatters ----


def test_the_default_formatter_reads_prompt():
    assert prompts(TaskEnv(task())) == {"agent_0": "first", "agent_1": "first"}


def test_one_formatter_for_all_or_one_each():
    assert prompts(TaskEnv(task(formatters=lambda item: item["prompt"].upper()))) == {"agent_0": "FIRST", "agent_1": "FIRST"}
    each = [lambda item: "write " + item["prompt"], lambda item: "judge " + item["prompt"]]
    assert prompts(TaskEnv(task(formatters=each))) == {"agent_0": "write first", "agent_1": "judge first"}


def test_chat_messages_pass_as_text_that_carries_them():
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello", "name": "ann", "tool_calls": None}]
    for items, formatters in (([{"prompt": messages}], None), (ROWS, lambda item: messages), (ROWS, lambda item: tuple(messages))):
        prompt = prompts(TaskEnv(task(items=items, formatters=formatters)))["agent_0"]
        assert isinstance(prompt, ChatPrompt)
        assert prompt == "system: be brief\n\nuser: hello"
        # A None is a data library's filling; other fields are for the template.
        assert prompt.messages == (messages[0], {"role": "user", "content": "hello", "name": "ann"})


@pytest.mark.parametrize(
    "messages", [[], [{"role": "user"}], [{"role": "user", "content": None}], ["user"], [{"content": "hello"}]]
)
def test_broken_chat_messages_are_an_error(messages):
    with pytest.raises(ValueError, match=r"item 0: what the formatter of agent_0 .*|chat message 0 needs the texts"):
        prompts(TaskEnv(task(formatters=lambda item: messages)))


@pytest.mark.parametrize("result", [None, 3, b"bytes", {"role": "user", "content": "x"}])
def test_a_formatter_that_returns_no_prompt_is_an_error(result):
    def my_formatter(item):
        return result

    with pytest.raises(
        ValueError, match=r"item 1: what the formatter of agent_0 '.*my_formatter' returns must be a text or chat messages"
    ):
        prompts(TaskEnv(task(formatters=my_formatter)), index=1)


def test_a_missing_field_names_row_field_and_agent():
    env = TaskEnv(task(items=[{"prompt": "a"}, {"question": "b", "id": 7}]))
    with pytest.raises(
        ValueError, match=r"item 1 has no field 'prompt', which the formatter of agent_0 .* needs; it has: question, id"
    ):
        prompts(env, index=1)
    second = TaskEnv(task(formatters=[lambda item: "fine", lambda item: item["topic"]]))
    with pytest.raises(ValueError, match=r"item 0 has no field 'topic', which the formatter of agent_1"):
        second.reset(options={"item": 0})


def test_an_exit_inside_a_function_is_a_failure():
    def exits(*arguments):
        raise SystemExit(0)

    with pytest.raises(ValueError, match="on item 0: SystemExit: 0"):
        prompts(TaskEnv(task(formatters=exits)))
    env = TaskEnv(task(num_turns=2, transition=exits))
    env.reset(options={"item": 0})
    with pytest.raises(TransitionError, match="on item 0, turn 1: SystemExit: 0"):
        act(env, "x", "y")


def test_a_formatter_that_fails_otherwise_keeps_its_cause():
    def my_formatter(item):
        return {}["prompt"]  # a KeyError that is not about the row

    with pytest.raises(ValueError, match=r"formatter of agent_0 .*my_formatter' on item 0: KeyError: 'prompt'") as error:
        prompts(TaskEnv(task(formatters=my_formatter)))
    assert isinstance(error.value.__cause__, KeyError)


def test_a_formatter_may_spoil_its_row():
    rows = [{"prompt": "a"}]

    def my_formatter(item):
        return item.pop("prompt")

    assert prompts(TaskEnv(task(items=rows, formatters=my_formatter))) == {"agent_0": "a", "agent_1": "a"}
    assert rows == [{"prompt": "a"}]


def test_nested_fields_are_a_functions_own_too():
    """A transition that appends to the row's conversation must not lengthen it for its siblings and for the next epoch."""
    rows = [{"prompt": [{"role": "user", "content": "hi"}], "notes": {"seen": []}, "pair": ([1],)}]
    before = copy.deepcopy(rows)

    def formatter(item):
        item["notes"]["seen"].append("formatter")
        item["pair"][0].append(len(item["notes"]["seen"]))
        return f"{item['prompt'][0]['content']} {item['notes']['seen']}"

    def reward(first, second, batch_items):
        batch_items[0]["notes"]["seen"].append("reward")
        return [float(len(batch_items[0]["notes"]["seen"]))] * len(first)

    def transition(prompt, item):
        prompt.append({"role": "user", "content": "again"})
        item["prompt"].clear()
        return [prompt, str(item["notes"]["seen"])]

    env = TaskEnv(
        task(items=rows, formatters=formatter, reward=reward, num_turns=2, transition=transition, external_prompt_passthrough=True)
    )
    for _ in range(2):
        env.reset(seed=0)
        joint = [dict.fromkeys(env.possible_agents, "x")] * 2
        for reached in env.branch(env.snapshot(), joint):
            assert reached.rewards["agent_0"] == 1.0
            assert reached.state.history[0].observations["agent_1"] == "hi ['formatter']"
    assert rows == before


def test_a_prompt_beyond_the_limit_is_an_error():
    env = TaskEnv(task(max_prompt_length=5, name="short"))
    env.reset(options={"item": 0})
    with pytest.raises(
        ValueError, match="item 1: the prompt of agent_0 has 6 characters, more than max_prompt_length=5 of the task 'short'"
    ):
        env.reset(options={"item": 1})


def test_prompts_are_in_their_space():
    """Foreign string types and halves of surrogate pairs, which JSON escapes can bring, are mended on the way."""
    rows = [
        {"prompt": np.str_("numpy")},
        {"prompt": "half \ud83d whole \ud83d\ude00"},
        {"prompt": [{"role": "user", "content": "\udc00"}]},
    ]
    env = TaskEnv(task(items=rows))
    for index, expected in enumerate(["numpy", "half \ufffd whole \U0001f600", "user: \ufffd"]):
        observations, _ = env.reset(options={"item": index})
        assert observations["agent_0"]["prompt"] == expected
        assert observations["agent_0"] in env.observation_space("agent_0")
    assert type(env.initial(rows[0], (0,)).observations["agent_0"]) is str


# ---- data sets (BC-43) ----


def test_none_in_rows_never_becomes_the_text_none():
    """The data library pads rows of differing fields with None; the padding of nested fields reaches the reward as it is."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"prompt": "a", "tests": {"x": 1}}, {"prompt": "b", "tests": {"y": 2}}, {"prompt": None}])
    seen = []

    def reward(first, second, batch_items):
        seen.append(batch_items[0]["tests"])
        return [0.0]

    for formatter in (None, lambda item: f"Solve: {item['prompt']}"):
        env = TaskEnv(task(items=rows, reward=reward, formatters=formatter))
        for index in (0, 1):
            observations, _ = env.reset(options={"item": index})
            assert "None" not in observations["agent_0"]["prompt"]
            act(env, "x", "y")
        with pytest.raises(ValueError, match=r"item 2: the field 'prompt', which the formatter of agent_0 .* writes, is None"):
            env.reset(options={"item": 2})
    assert [{k: v for k, v in tests.items() if v is not None} for tests in seen] == [{"x": 1}, {"y": 2}] * 2


@pytest.mark.parametrize(
    "formatter",
    [
        lambda item: f"{item['prompt']} Context: {item['context']}",
        lambda item: f"{item['prompt']} Context: {item['context']!r}",
        lambda item: [{"role": "user", "content": f"{item['prompt']} {item.get('context')}"}],
        lambda item: item["context"],
    ],
)
def test_any_none_that_a_formatter_writes_is_an_error(formatter):
    with pytest.raises(ValueError, match=r"item 1: the field 'context', which the formatter of agent_0 .* writes, is None"):
        prompts(TaskEnv(task(items=[ROWS[0], {"id": None, "prompt": "b", "context": None}], formatters=formatter)), index=1)


def test_a_none_that_no_formatter_writes_is_fine():
    """Fields that other rows have may be None; the word may stand in a text of its own."""
    row = {"prompt": None, "code": "return None", "context": None}
    formatters = [lambda item: item["code"], lambda item: "with context" if item["context"] else f"{item['code']} # no context"]
    env = TaskEnv(task(items=[row], formatters=formatters))
    assert prompts(env) == {"agent_0": "return None", "agent_1": "return None # no context"}


def test_a_formatter_that_trips_over_a_none_names_the_field():
    with pytest.raises(ValueError, match=r"on item 0: AttributeError: .*; None in this row: 'context'"):
        prompts(TaskEnv(task(items=[{"prompt": "a", "context": None}], formatters=lambda item: item["context"].upper())))


def test_hugging_face_data_sets():
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": f"p{i}"} for i in range(5)]
    whole = datasets.Dataset.from_list(rows)
    env = TaskEnv(task(items=whole, eval_items=whole))
    assert {env.reset(seed=0 if i == 0 else None)[0]["agent_0"]["prompt"] for i in range(5)} == {row["prompt"] for row in rows}
    stream = TaskEnv(task(items=whole.to_iterable_dataset(), eval_items=whole.to_iterable_dataset()))
    read = [stream.reset(seed=3 if i == 0 else None)[0]["agent_0"]["prompt"] for i in range(7)]
    assert read == ["p0", "p1", "p2", "p3", "p4", "p0", "p1"]
    _, _, _, _, infos = stream.step({"agent_0": "", "agent_1": ""})
    assert infos["agent_0"]["item_index"] == 1
    with pytest.raises(ValueError, match="these items have no positions; give the row itself"):
        stream.reset(options={"item": 0})


def test_an_iterable_without_rows_is_an_error_when_read():
    class Nothing:
        def __iter__(self):
            return iter([])

    with pytest.raises(ValueError, match="items has no rows"):
        TaskEnv(task(items=Nothing())).reset()


def test_a_stream_of_rows_that_fails_goes_on_where_it_failed():
    class Flaky:
        fails = True

        def __iter__(self):
            yield ROWS[0]
            if self.fails:
                raise OSError("connection lost")
            yield ROWS[1]

    rows = Flaky()
    env = TaskEnv(task(items=rows))
    assert env.reset(seed=0)[0]["agent_0"]["prompt"] == "first"
    with pytest.raises(OSError, match="connection lost"):
        env.reset()
    rows.fails = False
    assert [env.reset()[0]["agent_0"]["prompt"] for _ in range(3)] == ["second", "first", "second"]


def test_rows_that_can_be_read_once_only_are_an_error_when_read_again():
    class Once:
        def __init__(self):
            self.rows = iter(ROWS)

        def __iter__(self):
            return self.rows

    env = TaskEnv(task(items=Once()))
    env.reset()
    env.reset()
    with pytest.raises(ValueError, match="items ran dry after pass 1: it must be iterable more than once"):
        env.reset()


# ---- transitions ----


def test_a_transition_is_told_what_it_names():
    seen = []

    def transition(
        prompt, agent_completions, num_agents, prompt_history_per_agent, response_history_per_agent, item, rewards, turn, state
    ):
        seen.append(
            (
                prompt,
                agent_completions,
                num_agents,
                prompt_history_per_agent,
                response_history_per_agent,
                item,
                rewards,
                turn,
                state.turn,
            )
        )
        return [f"{prompt}, turn {turn + 1}"] * num_agents

    env = TaskEnv(
        task(
            num_turns=3,
            transition=transition,
            formatters=lambda item: f"<{item['prompt']}>",
            reward=lambda a, b: [[1, 2]],
            reward_processor=lambda reward: 10 * reward,
        )
    )
    env.reset(options={"item": 0})
    act(env, "a1", "b1")
    act(env, "a2", "b2")
    assert seen[0] == ("first", ["a1", "b1"], 2, [["<first>"], ["<first>"]], [["a1"], ["b1"]], ROWS[0], [10.0, 20.0], 1, 0)
    # `prompt` stays the row's, and histories hold what was really read, formatted (the reference system mixes both).
    read = ["<first>", "<first, turn 2>"]
    assert seen[1] == ("first", ["a2", "b2"], 2, [read, read], [["a1", "a2"], ["b1", "b2"]], ROWS[0], [10.0, 20.0], 2, 1)


def test_external_prompts_are_formatted_again_or_passed_as_they_are():
    def transition(agent_completions):
        return [f"next {text}" for text in agent_completions]

    def hinted(item, external_prompts=None):
        return f"{item['prompt']}|{external_prompts}"

    def after(formatters, **options):
        env = TaskEnv(task(num_turns=2, transition=transition, formatters=formatters, **options))
        first = {agent: observation["prompt"] for agent, observation in env.reset(options={"item": 0})[0].items()}
        return first["agent_0"], act(env, "x", "y")

    assert after(None) == ("first", {"agent_0": "next x", "agent_1": "next y"})
    assert after(lambda item: f"<{item['prompt']}>") == ("<first>", {"agent_0": "<next x>", "agent_1": "<next y>"})
    assert after(hinted) == ("first|None", {"agent_0": "next x|next x", "agent_1": "next y|next y"})
    required = functools.partial(lambda item, external_prompts: f"{item['prompt']}|{external_prompts}")
    assert after(required)[0] == "first|None"
    passed = after(hinted, external_prompt_passthrough=True)
    assert passed == ("first|None", {"agent_0": "next x", "agent_1": "next y"})


def test_a_transition_may_return_conversations():
    messages = [{"role": "user", "content": "again"}]
    for passthrough in (False, True):
        env = TaskEnv(task(num_turns=2, transition=lambda: [messages, "plain"], external_prompt_passthrough=passthrough))
        env.reset(seed=0)
        prompt = act(env, "x", "y")["agent_0"]
        assert isinstance(prompt, ChatPrompt)
        assert prompt.messages == tuple(messages)


def test_none_ends_the_episode():
    env = TaskEnv(task(num_turns=5, transition=lambda turn: None if turn == 2 else ["go", "on"]))
    env.reset(seed=0)
    for finished in (False, True):
        _, _, terminations, truncations, _ = env.step({"agent_0": "x", "agent_1": "y"})
        assert set(terminations.values()) == {finished}
        assert set(truncations.values()) == {False}
    assert env.agents == []


def test_no_transition_after_the_last_turn():
    turns = []
    env = TaskEnv(task(num_turns=2, transition=lambda turn: turns.append(turn) or ["go", "on"]))
    env.reset(seed=0)
    act(env, "x", "y")
    act(env, "x", "y")
    assert turns == [1]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (["one"], r"expected one prompt for each of 2 agents or None, got \['one'\]"),
        ("ab", "expected one prompt for each of 2 agents or None, got 'ab'"),
        (["one", None], "the prompt of agent_1 must be a text or chat messages, got NoneType"),
        ({"agent_0": "a", "agent_1": "b"}, "expected one prompt for each of 2 agents or None"),
    ],
)
def test_a_transition_that_returns_no_prompts_is_an_error(result, message):
    def my_transition():
        return result

    env = TaskEnv(task(num_turns=2, transition=my_transition))
    env.reset(options={"item": 1})
    with pytest.raises(TransitionError, match=rf"external transition '.*my_transition' on item 1, turn 1: ValueError: {message}"):
        act(env, "x", "y")


def test_a_transition_that_fails_keeps_its_cause_and_changes_no_history():
    def my_transition(prompt_history_per_agent, response_history_per_agent, item, agent_completions):
        for history in (*prompt_history_per_agent, *response_history_per_agent, agent_completions):
            history.clear()
        item.clear()
        raise ZeroDivisionError("division by zero")

    env = TaskEnv(task(num_turns=2, transition=my_transition))
    env.reset(options={"item": 0})
    before = env.snapshot()
    with pytest.raises(TransitionError, match="on item 0, turn 1: ZeroDivisionError: division by zero") as error:
        act(env, "x", "y")
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert env.snapshot() is before
    assert before == env.initial(ROWS[0], before.key, 0)
    assert ROWS[0] == {"prompt": "first"}

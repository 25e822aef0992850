"""Guards multi-turn tool use: messages, ownership, the order of calls, judging by state and responses, states that are values."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llm_envs
from llm_envs.env import TaskEnv
from llm_envs.tasks.tool_use.bfcl_multiturn import task
from llm_envs.tasks.tool_use.calls import Call
from llm_envs.tasks.tool_use.episode import MAX_CALLS, Message, progress, read_message
from llm_envs.tasks.tool_use.multiturn_rows import multiturn_row
from llm_envs.tasks.tool_use.own_apis import LibraryDesk, Planner, describe_class
from llm_envs.tasks.tool_use.simulators import World


def user(text):
    return [{"role": "user", "content": text}]


ROW = {
    "id": "r",
    "category": "own",
    "question": [user("Lend Emma to Ravi and note when it is due."), user("What is on that day?")],
    "initial_config": {"LibraryDesk": {"today": "2027-03-01", "copies": {"Emma": 1}}, "Planner": {}},
    "involved_classes": ["LibraryDesk", "Planner"],
    "ground_truth": [
        ["lend(title='Emma', reader='Ravi')", "add_event(day='2027-03-22', title='due')"],
        ["events_on(day='2027-03-22')"],
    ],
}
LEND, NOTE, ASK = "lend('Emma', 'Ravi')", "add_event('2027-03-22', 'due')", "events_on('2027-03-22')"


def play(*joints, row=ROW, agents=2, **options):
    """Rewards and infos of the steps, and the last state."""
    env = TaskEnv(task(agents=agents, **options))
    state = env.initial(row, (0,))
    rewards, infos = [], []
    for texts in joints:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        (reward,) = set(transition.rewards.values())
        rewards.append(reward)
        infos.append({key.removeprefix("reward/"): value for key, value in transition.infos["api_0"].items()})
        state = transition.state
    return rewards, infos, state


# ---- messages ----


@pytest.mark.parametrize(
    ("text", "numbers", "rejected", "goes_on"),
    [
        ("f()\ng()", [1, 2], (), True),
        ("f()\ng()\ndone", [1, 2], (), False),
        ("3: f()\ng()\n 7) h()", [3, 4, 7], (), True),
        ("f()\n2. g()", [1, 2], (), True),
        ("- f()\n- 7: g()", [1, 7], (), True),
        ("5: [f(), g()]", [5, 6], (), True),
        ("[f(), g()]\nDone.", [1, 2], (), False),
        ("```\nf()\n```\nwait", [1], (), True),
        ("```\n2: f()\ndone\n```", [2], (), False),
        ("[]", [], (), False),
        ("", [], (), False),
        ("wait", [], (), True),
        ("f()\nwait\ndone", [1], (), True),
        ("I will wait", [], ("I will wait",), False),
        ("2: hello", [], ("hello",), False),
        ('{"f": {}}', [1], (), True),
    ],
)
def test_messages(text, numbers, rejected, goes_on):
    message = read_message(text)
    assert [number for number, _ in message.calls] == numbers
    assert (message.rejected, message.goes_on) == (rejected, goes_on)


def test_a_message_by_hand():
    assert read_message("2: f(1, a='x')\ndone") == Message(((2, Call("f", {"a": "x"}, (1,))),), (), False)


# ---- what turns earn ----


def test_one_step_a_turn_by_hand():
    """T = 2 judged turns: each counts (0.25 + 0.25)/2, the whole 0.5."""
    rewards, infos, state = play([f"{LEND}\ndone", f"2: {NOTE}\ndone"], ["[]", f"{ASK}\ndone"])
    assert rewards == [0.25, 0.75] and state.terminated
    assert (infos[0]["responses"], infos[0]["turns"], infos[0]["solved"], infos[0]["state"]) == (0.5, 0.5, 0.0, 0.5)
    assert infos[1]["solved"] == 1.0


def test_results_come_back_and_steps_before_the_end_of_a_turn_earn_nothing():
    rewards, _, state = play([LEND, "wait"])
    assert rewards == [0.0] and not state.done
    for agent in ("api_0", "api_1"):
        assert 'api_0 called lend(\'Emma\', \'Ravi\'): {"loan_id": "L1", "due": "2027-03-22"}' in state.observations[agent]
        assert "write 2 more times" in state.observations[agent] and "What is on that day?" not in state.observations[agent]
    rewards, _, state = play([LEND, "wait"], ["done", f"{NOTE}\ndone"])
    assert rewards == [0.0, 0.25] and "What is on that day?" in state.observations["api_0"]
    rewards, _, state = play([LEND, "wait"], ["done", f"{NOTE}\ndone"], ["", f"{ASK}\ndone"])
    assert rewards == [0.0, 0.25, 0.75] and state.terminated


def test_a_turn_ends_after_its_steps():
    rewards, _, state = play([LEND, "wait"], ["wait", NOTE], ["wait", "wait"], ["[]", f"{ASK}\ndone"])
    assert rewards == [0.0, 0.0, 0.25, 0.75] and state.terminated
    assert play([LEND, "wait"], [LEND, ASK], steps_per_turn=1)[2].terminated
    assert TaskEnv(task(steps_per_turn=1)).num_turns * 3 == TaskEnv(task()).num_turns == 9


@pytest.mark.parametrize(
    ("first", "responses", "valid", "state"),
    [
        (["", ""], 0.0, False, False),
        ([LEND, ""], 0.25, False, False),  # one of two responses, of one of two turns
        (["lend('Emma', 'Ravi', days=20)", NOTE], 0.25, False, False),
        ([f"{LEND}\nlend('Kim', 'Ravi')", NOTE], 0.5, True, True),  # a further call that changes nothing does not hurt
        ([LEND, f"{NOTE}\nadd_event('2027-03-23', 'x')"], 0.5, False, False),  # one that does, hurts
        ([LEND, f"{NOTE}\nremove_event('E1')\n{NOTE}"], 0.5, False, False),  # the event's id is another
        ([LEND, "add_event(day='2027-03-22', title='Due')"], 0.5, False, False),  # same response, other state
    ],
)
def test_a_first_turn_that_is_not_the_gold_one(first, responses, valid, state):
    _, (info, *_), _ = play([f"{text}\ndone" for text in first])
    assert (info["responses"], info["turns"], info["state"]) == (responses, valid / 2, state / 2)


def test_responses_of_earlier_turns_count_but_not_for_silence():
    """The question of the second turn was asked in the first already: then any call, but no silence, will do."""
    early = [f"{LEND}\ndone", f"2: {NOTE}\n{ASK}\ndone"]
    assert play(early, ["find_book('Emma')\ndone", ""])[0] == [0.25, 0.75]
    rewards, infos, _ = play(early, ["", ""])
    assert rewards == [0.25, 0.0] and infos[1]["state"] == 0.5 and infos[1]["solved"] == 0.0


def test_the_same_response_is_needed_as_often_as_the_gold_has_it():
    row = {**ROW, "ground_truth": [["events_on(day='2027-03-22')"] * 2, []]}
    assert play(["", f"{ASK}\ndone"], row=row)[1][0]["responses"] == 0.5
    assert play(["", f"{ASK}\n{ASK}\ndone"], row=row)[1][0]["responses"] == 1.0


def test_turns_without_gold_calls_are_not_judged():
    row = {**ROW, "ground_truth": [[], ["events_on(day='2027-03-22')"]]}
    rewards, infos, _ = play(["", ""], ["", f"{ASK}\ndone"], row=row)
    assert rewards == [0.0, 1.0] and infos[1]["turns"] == 1.0
    # What is done in such a turn shows in the state of the next one.
    assert play(["", f"{NOTE}\ndone"], ["", f"{ASK}\ndone"], row=row)[1][1]["turns"] == 0.0


def test_after_a_failure_the_episode_goes_on_or_ends():
    rewards, _, state = play(["", ""], ["", f"{ASK}\ndone"])
    assert rewards == [0.0, 0.0] and state.terminated  # the day is empty, and the state is wrong
    rewards, _, state = play(["", ""], after_failure="end")
    assert rewards == [0.0] and state.terminated
    assert not play([f"{LEND}\ndone", f"2: {NOTE}\ndone"], after_failure="end")[2].done


# ---- order and ownership ----

COUNTED = {
    **ROW,
    "question": [user("Do it.")],
    "ground_truth": [["add_event(day='a', title='1')", "loans_of(reader='x')", "add_event(day='b', title='2')"]],
}


def test_calls_are_run_in_the_order_of_their_numbers():
    def log(*texts):
        env = TaskEnv(task())
        reached = progress(env.task.reward.function.setting, COUNTED, [texts])
        return [(ran.agent, ran.call.split("(")[0]) for ran in reached.steps[0].ran]

    assert log("loans_of('x')\nfind_book('y')", "add_event('a', '1')\nadd_event('b', '2')") == [
        (0, "loans_of"),
        (1, "add_event"),
        (0, "find_book"),
        (1, "add_event"),
    ]
    assert log("9: loans_of('x')\nfind_book('y')", "add_event('a', '1')\n10: add_event('b', '2')") == [
        (1, "add_event"),
        (0, "loans_of"),
        (0, "find_book"),
        (1, "add_event"),
    ]


def test_order_within_one_simulator_matters():
    right, wrong = "add_event('a', '1')\nadd_event('b', '2')\ndone", "2: add_event('a', '1')\n1: add_event('b', '2')\ndone"
    assert play(["loans_of('x')\ndone", right], row=COUNTED)[0] == [1.0]
    assert play(["loans_of('x')\ndone", wrong], row=COUNTED)[0] == [pytest.approx(0.25)]  # the same responses, other ids


def test_only_the_owner_can_call():
    rewards, infos, state = play([f"{LEND}\n{NOTE}\nfly()\ndone", "[]"])
    assert infos[0]["refused"] == 2.0 and rewards == [pytest.approx(0.25 * 0.25)]
    assert "add_event('2027-03-22', 'due'): not run: not one of your functions" in state.observations["api_1"]
    assert play([f"{NOTE}\ndone", f"{LEND}\ndone"])[1][0]["responses"] == 0.0


def test_too_many_calls_are_refused():
    _, infos, _ = play(["find_book('Emma')\n" * (MAX_CALLS + 3) + "done", ""])
    assert infos[0]["refused"] == 3.0


def test_text_that_is_no_call_is_told_to_its_writer_only():
    _, infos, state = play([f"I lend it\n{LEND}", "wait"])
    assert infos[0]["format"] == 0.5
    assert "you wrote what is no call: I lend it" in state.observations["api_0"]
    assert "I lend it" not in state.observations["api_1"]


def test_who_owns_what():
    owners = task().reward.function.setting.owners(ROW)
    assert owners["lend"] == owners["loans_of"] == 0 and owners["add_event"] == 1
    alone = {**ROW, "involved_classes": ["Planner"], "ground_truth": [[ASK], []]}
    shared = task(fewer_classes="share").reward.function.setting.owners(alone)
    assert shared == {"add_event": 0, "events_on": 1, "move_event": 0, "remove_event": 1}
    assert set(task(fewer_classes="idle").reward.function.setting.owners(alone).values()) == {0}
    assert set(task(agents=1).reward.function.setting.owners(ROW).values()) == {0}
    three = task(agents=3, fewer_classes="share").reward.function.setting.owners(ROW)
    assert [three[name] for name in ("find_book", "lend", "take_back", "loans_of")] == [0, 2, 0, 2] and three["add_event"] == 1


def test_prompts_by_hand():
    env = TaskEnv(task())
    first, second = env.initial(ROW, (0,)).observations.values()
    assert first.startswith(
        "You are api_0. You serve a user by calling functions, together with others:\n"
        "api_1 has Planner (add_event, events_on, move_event, remove_event).\n"
        "You have LibraryDesk. Only you can call your functions.\n"
    )
    assert "user: Lend Emma to Ravi and note when it is due.\n" in first and "What is on that day?" not in first
    assert '{"name": "lend",' in first and '{"name": "lend",' not in second
    idle = TaskEnv(task(agents=3, fewer_classes="idle")).initial(ROW, (0,)).observations["api_2"]
    assert "You have no functions. " in idle and "You have no functions here." in idle
    assert (
        TaskEnv(task(agents=1))
        .initial(ROW, (0,))
        .observations["api_0"]
        .startswith("You are api_0. You serve a user by calling functions.\n")
    )


def test_long_responses_are_cut_in_prompts():
    _, _, state = play(["find_book('Emma')", "wait"], max_response=10)
    assert "find_book('Emma'): {\"shelf\": … (34 characters)" in state.observations["api_0"]


def test_functions_are_held_back_until_their_turn():
    row = {
        **ROW,
        "question": [user("Lend it."), [], user("Where?")],
        "ground_truth": [["find_book(title='Emma')"], ["lend(title='Emma', reader='Ravi')"], ["find_book(title='Emma')"]],
        "missed_function": {"1": ["lend"]},
        "excluded_function": ["take_back"],
    }
    _, _, state = play(["find_book('Emma')\ndone", ""], row=row)
    first, later = state.history[0].observations["api_0"], state.observations["api_0"]
    assert '"lend"' not in first and '"lend"' in later and "user: There are more functions now." in later
    assert "take_back" not in later and "take_back" not in state.observations["api_1"]
    rewards, _, _ = play(["find_book('Emma')\ndone", ""], [f"{LEND}\ndone", ""], ["find_book('Emma')\ndone", ""], row=row)
    assert sum(rewards) == pytest.approx(1.0)


# ---- states are values ----

LINES = st.sampled_from([LEND, NOTE, ASK, "take_back('L1')", "3: loans_of('Ravi')", "done", "wait", "hello", "remove_event('E1')"])
JOINT = st.tuples(st.lists(LINES, max_size=3).map("\n".join), st.lists(LINES, max_size=3).map("\n".join))
ENV = TaskEnv(task())


@settings(max_examples=15)
@given(st.lists(JOINT, min_size=1, max_size=5))
def test_branches_do_not_touch_each_other_and_earn_between_0_and_1(joints):
    before = copy.deepcopy(ROW)
    state, earned = ENV.initial(ROW, (0,)), 0.0
    actions = [dict(zip(ENV.possible_agents, joint, strict=True)) for joint in joints]
    for action in actions:
        if state.done:
            break
        alone = ENV.branch(state, [action])[0]
        among = ENV.branch(state, [*actions, action])[-1]
        assert alone.rewards == among.rewards and alone.state.observations == among.state.observations
        state, earned = alone.state, earned + alone.rewards["api_0"]
    assert 0.0 <= earned <= 1.0 and before == ROW


def test_replay_does_not_depend_on_what_is_remembered():
    from llm_envs.tasks.tool_use import episode

    _, _, state = play([LEND, "wait"], ["done", f"{NOTE}\ndone"])
    episode._progress.cache_clear()
    _, _, again = play([LEND, "wait"], ["done", f"{NOTE}\ndone"])
    assert state == again


def test_env_pickles():
    env = pickle.loads(pickle.dumps(llm_envs.make("bfcl-multiturn-v0", steps_per_turn=1)))
    env.reset(seed=0)
    env.step(dict.fromkeys(env.possible_agents, "wait"))


# ---- rows, options, simulators ----


@pytest.mark.parametrize("options", [{}, {"agents": 1}, {"agents": 3, "fewer_classes": "share"}, {"steps_per_turn": 1}])
def test_gold_trajectories_of_all_bundled_rows_earn_everything(options):
    made = task(**options)
    env = TaskEnv(made)
    for row in (*made.items, *made.eval_items):
        texts = made.reference(row)
        state, earned, turn = env.initial(row, (0,)), [], 0
        while not state.done:
            (transition,) = env.branch(state, [{agent: texts[k][turn] for k, agent in enumerate(env.possible_agents)}])
            state, turn = transition.state, turn + 1
            earned.append(transition.rewards["api_0"])
        assert sum(earned) == pytest.approx(1.0) and turn == len(row["question"])
        assert transition.infos["api_0"]["reward/solved"] == 1.0


def test_no_gold_call_of_the_bundled_rows_fails():
    for row in (*task().items, *task().eval_items):
        world = World(row)
        for turn in row["ground_truth"]:
            for text in turn:
                assert "rror" not in world.run(read_message(text).calls[0][1]), (row["id"], text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ground_truth": [["lend('Emma', 'Ravi')"]]}, "2 turns of the user need as many lists of gold calls"),
        ({"ground_truth": [[], []]}, "not all of them empty"),
        ({"ground_truth": [["lend the book"], []]}, "no function call: 'lend the book'"),
        ({"ground_truth": 7}, "'ground_truth' must be a list of gold calls as texts for each turn, got 7"),
        ({"ground_truth": [[7], []]}, "'ground_truth' must be a list of gold calls"),
        ({"involved_classes": 7}, "'involved_classes' must be a list of API classes, got 7"),
        ({"initial_config": None}, "'initial_config' must be a mapping .* got None"),
        ({"question": [["x"], []]}, "'question' must be a list of messages for each turn"),
    ],
)
def test_rows_that_do_not_fit(change, message):
    with pytest.raises(ValueError, match=message):
        multiturn_row({**ROW, **change})


def saved(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return {"source": "path", "path": str(path), "eval_share": 0}


class Counter:
    """An API of the user's own."""

    def __init__(self, config):
        self.count = config["start"]

    def add(self, number: int, twice: bool = False) -> dict:
        """Add a number.

        Args:
            number: What is added.
            twice: Whether two times.
        """
        self.count += number * (2 if twice else 1)
        return {"count": self.count}


def test_own_rows_and_own_apis(tmp_path):
    row = {
        "id": "c",
        "question": json.dumps([user("Add 2 twice.")]),
        "initial_config": json.dumps({"Counter": {"start": 1}, "Planner": {}}),
        "involved_classes": ["Counter", "Planner"],
        "ground_truth": json.dumps([["add(number=2, twice=True)"]]),
    }
    options = {**saved(tmp_path, row), "apis": {"Counter": Counter}}
    item = task(**options).items[0]
    assert play(["add(2, True)\ndone", ""], row=item, **options)[0] == [1.0]
    assert describe_class(Counter)[0] == {
        "name": "add",
        "description": "Add a number.",
        "parameters": {
            "type": "dict",
            "properties": {
                "number": {"type": "integer", "description": "What is added."},
                "twice": {"type": "boolean", "description": "Whether two times. Default is False."},
            },
            "required": ["number"],
        },
    }


def test_parameters_need_a_kind():
    class Untold:
        def add(self, number): ...

    with pytest.raises(TypeError, match=r"add: 'number' must be annotated as one of str, int, float, bool"):
        describe_class(Untold)


def test_rows_with_fewer_classes_are_left_out_only_where_asked(tmp_path):
    alone = {**ROW, "id": "s", "involved_classes": ["Planner"], "ground_truth": [["events_on(day='x')"], []]}
    options = saved(tmp_path, ROW, alone)
    with pytest.warns(UserWarning, match="1 of 2 rows have fewer API classes than the 2 agents and are left out"):
        assert [row["id"] for row in task(**options).items] == ["r"]
    assert [row["id"] for row in task(**options, fewer_classes="share").items] == ["r", "s"]
    assert [row["id"] for row in task(**options, fewer_classes="idle").items] == ["r", "s"]
    with pytest.raises(
        ValueError, match="2 of 2 rows have fewer API classes than the 3 agents: choose fewer_classes='share' or 'idle'"
    ):
        task(**options, agents=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ground_truth": [["fly(to='x')"], []]}, r"row r: the gold call fly\(to='x'\) is of none of LibraryDesk, Planner"),
        ({"ground_truth": [["events_on(date='x')"], []]}, r"row r: the gold call events_on\(date='x'\) has 'date'; .* are day"),
        ({"ground_truth": [["events_on()"], []]}, r"row r: the gold call events_on\(\) has no 'day', which the function requires"),
        ({"ground_truth": [["events_on(3)"], []]}, r"row r: .*'day' must be of the type string, got 3"),
        ({"ground_truth": [["events_on('a', 'b')"], []]}, "row r: .* has more values than parameters: day"),
        ({"involved_classes": ["LibraryDesk", "Kettle"]}, "there is no API class 'Kettle'"),
        ({"involved_classes": ["Planner", "Planner"]}, "row r: several of Planner, Planner have a function 'add_event'"),
    ],
)
def test_rows_whose_classes_do_not_fit(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        task(**saved(tmp_path, {**ROW, **change}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps_per_turn": 0}, "steps_per_turn must be a whole number of at least 1, got 0"),
        ({"max_response": True}, "max_response must be a whole number"),
        ({"fewer_classes": "drop"}, "fewer_classes must be one of skip, share, idle"),
        ({"after_failure": "retry"}, "after_failure must be one of continue, end"),
        ({"agents": 0}, "agents must be at least 1"),
        ({"source": "package", "categories": ["multi_turn"]}, "categories of bfcl-multiturn-v0 are multi_turn_base"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        task(**options)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install --no-deps bfcl-eval"):
        task(source="package")


def test_the_desk_and_the_planner():
    desk = LibraryDesk({"today": "2027-02-27", "copies": {"Emma": 1}, "shelves": {"Emma": "A"}})
    assert desk.find_book("Emma") == {"shelf": "A", "copies": 1} and "error" in desk.find_book("Kim")
    assert desk.lend("Emma", "Ravi", 2) == {"loan_id": "L1", "due": "2027-03-01"}
    assert "error" in desk.lend("Emma", "Olga") and "error" in desk.take_back("L2")
    assert desk.loans_of("Ravi") == {"L1": {"title": "Emma", "due": "2027-03-01"}}
    assert desk.take_back("L1") == {"title": "Emma"} and "error" in desk.take_back("L1") and desk.loans_of("Ravi") == {}
    assert "error" in desk.lend("Emma", "Olga", days=0) and desk.copies == {"Emma": 1}
    planner = Planner({"events": {"E1": {"day": "d", "title": "x"}}})
    assert planner.add_event("e", "y") == {"event_id": "E2"} and planner.move_event("E1", "e") == {"moved": True}
    assert planner.events_on("e") == {"E1": "x", "E2": "y"} and planner.remove_event("E1") == {"removed": True}
    assert "error" in planner.remove_event("E1") and "error" in planner.move_event("E1", "d")


def test_calls_that_fail_are_answered():
    world = World(ROW)
    assert world.run(Call("fly", {})) == "Error during execution: there is no function 'fly'"
    assert "unexpected keyword argument 'x'" in world.run(Call("lend", {"x": 1}))
    assert world.run(Call("lend", {"title": ["a"], "reader": "b"})).startswith("Error during execution: ")
    assert "days is too large" in world.run(Call("lend", {"title": "Emma", "reader": "b", "days": 10**19}))
    assert world.run(Call("__init__", {"config": {}})) == "Error during execution: there is no function '__init__'"

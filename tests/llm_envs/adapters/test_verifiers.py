"""Guards tasks of the package verifiers for teams: the package's own scores, nothing skipped or taken for 0; what is refused."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import llm_envs
from llm_envs.adapters import from_verifiers
from llm_envs.adapters.verifiers import final_answer
from llm_envs.adapters.verifiers_score import scored, trace_of
from llm_envs.testing import check_env, check_task


def test_an_answer_is_in_tags_or_in_a_box_or_the_whole_text():
    assert final_answer(r"so \boxed{1}, no, \boxed{\frac{1}{2}} it is") == r"\frac{1}{2}"
    assert final_answer(r"\boxed{1} <answer> 2 </answer>") == "2"
    assert final_answer(" 12\n") == "12"
    assert final_answer(r"\boxed{1") == r"\boxed{1"  # never closed


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers.v1.utils.loaders", None)
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(ImportError, match=r"pip install 'llm-envs\[verifiers\]'"):
        llm_envs.make("verifiers:sums")


# ---- with the package ----


@pytest.fixture(scope="module")
def sums():
    pytest.importorskip("verifiers.v1", exc_type=ImportError)
    import verifiers_sums

    return verifiers_sums


def made(**options):
    return llm_envs.make("verifiers:verifiers-sums", **{"size": 4, "eval_size": 2, **options})


def of(taskset, **options):
    return llm_envs.TaskEnv(from_verifiers(taskset, **{"size": 2, "eval_size": 1, **options}))


def test_rows_are_the_tasksets_own(sums):
    env = made(config={"start": 5})
    tasks = list(sums.Sums(sums.SumsConfig(id="verifiers-sums", start=5)))
    assert [item["question"] for item in env.items] == [f"What is {number} + 2?" for number in (5, 6, 7, 8)]
    assert [item["key"] for item in [*env.items, *env.eval_items]] == [task.key for task in tasks[:6]]
    held_out = made(config={"start": 5}, eval_config={"start": 50})
    assert [item["question"] for item in held_out.eval_items] == ["What is 50 + 2?", "What is 51 + 2?"]
    assert made(eval_size=0).eval_items is None


def test_a_solver_and_a_checker(sums):
    """2 turns. Right and short earns 0.8 + 0.2, long and wrong nothing; right is what earns both."""
    env = made()
    state = env.initial(env.items[0], (0, 0, 0), 0)
    assert state.observations["solver_0"] == "What is 0 + 2?"
    first, wrong = env.branch(state, [{"solver_0": text, "checker_0": ""} for text in ("2", "three")])
    assert first.rewards == {"solver_0": 0.5, "checker_0": 0.5} and set(wrong.rewards.values()) == {0.0}
    info = first.infos["solver_0"]
    assert (info["reward/rewards.correct"], info["reward/rewards.short"], info["reward/metrics.letters"]) == (0.5, 0.5, 0.5)
    assert "You answered: 2\nThe checker noted: \n\nAnswer again." in first.state.observations["solver_0"]
    for transition, verdict in ((first, "right"), (wrong, "wrong")):
        (last,) = env.branch(transition.state, [{"solver_0": "no", "checker_0": verdict}])
        assert last.rewards == pytest.approx({"solver_0": 0.1, "checker_0": 0.1 + 0.5})  # short, but wrong
    (low,) = made(right_at=0.2).branch(wrong.state, [{"solver_0": "no", "checker_0": "wrong"}])
    assert low.rewards["checker_0"] == pytest.approx(0.6)


def test_voters(sums):
    """Boxes are compared, whole texts scored: here none is the bare number."""
    env = made(team="vote", own_weight=0.5)
    state = env.initial(env.items[1], (0, 0, 0), 0)
    (won,) = env.branch(state, [{"solver_0": "9", "solver_1": "3", "solver_2": "<answer>3</answer>"}])
    assert won.rewards == pytest.approx({"solver_0": 1.0 + 0.1, "solver_1": 1.5, "solver_2": 1.0})
    assert won.infos["solver_0"]["reward/metrics.letters"] == 1.0


@pytest.fixture
def model(monkeypatch):
    """A model behind an HTTP endpoint, which says what it is told to say."""
    monkeypatch.setenv("NO_KEY", "none")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": server.says}}
            body = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["SumTask", "Seen", "Keyed"])
def test_scores_and_traces_are_those_of_the_packages_own_rollouts(sums, model, kind):
    """Real ones: its server, its runtime, its scoring; only the program that asks the model is ours."""
    task = next(iter(sums.OneSum(getattr(sums, kind), **a_conversation())))
    for text in ("3", "it is hard", "", " 3\n", "naïve ☃"):
        model.says = text
        trace = sums.rolled_out(task, f"http://127.0.0.1:{model.server_port}/v1")
        marks = asyncio.run(scored(task, text))
        assert not trace.errors and trace.ok
        assert marks.total == trace.reward
        assert marks.rewards == {name: reward.score for name, reward in trace.rewards.items()}
        assert marks.metrics == trace.metrics
        ours = trace_of(task, text)
        assert ours.messages == trace.messages and ours.transcript == trace.transcript
        assert (ours.stop_condition, ours.num_turns, ours.task) == (trace.stop_condition, trace.num_turns, trace.task)


def a_conversation():
    vf = pytest.importorskip("verifiers.v1")
    parts = [vf.TextContentPart(text="What is"), vf.TextContentPart(text="2 + 2?")]
    talk = [vf.UserMessage(content=parts), vf.AssistantMessage(content="4"), vf.UserMessage(content="What is 1 + 2?")]
    return {"prompt": talk, "system_prompt": "Be brief."}


def test_a_system_prompt_and_a_conversation(sums):
    env = of(sums.OneSum(sums.Seen, **a_conversation()), how="Only the number.")
    state = env.initial(env.items[0], (0, 0, 0), 0)
    assert [dict(message) for message in state.observations["solver_0"].messages] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is\n2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "What is 1 + 2?\n\nOnly the number."},
    ]
    (transition,) = env.branch(state, [{"solver_0": "3", "checker_0": ""}])
    assert transition.infos["solver_0"]["reward/metrics.as_recorded"] == 0.5
    assert transition.state.observations["checker_0"].messages[-1]["content"].startswith("What is 1 + 2?\n\nThe solver answered: 3")


def test_several_scores_of_one_function_count(sums):
    """0.8 + 0.2 + 1 + 0.5 for the digit; what is right then has to be said."""
    with pytest.raises(ValueError, match="parts gives several scores, so give right_at"):
        of(sums.OneSum(sums.Keyed))
    env = of(sums.OneSum(sums.Keyed), right_at=2.5)
    (transition,) = env.branch(env.initial(env.items[0], (0, 0, 0)), [{"solver_0": "3", "checker_0": ""}])
    assert transition.rewards["solver_0"] == 1.25
    assert {key for key in transition.infos["solver_0"] if key.startswith("reward/rewards.")} == {
        "reward/rewards.correct",
        "reward/rewards.short",
    }


def test_a_function_with_an_optional_runtime_is_called_without(sums):
    env = of(sums.OneSum(sums.Offline))
    (transition,) = env.branch(env.initial(env.items[0], (0, 0, 0)), [{"solver_0": "3", "checker_0": ""}])
    assert transition.infos["solver_0"]["reward/metrics.optional"] == 0.5


@pytest.mark.parametrize(
    "kind, text, message",
    [
        ("Failing", "x", "TaskError: task Failing scoring: ValueError: could not convert string to float: 'x'"),
        ("NotFinite", "nan", "finite"),
        ("Metered", "3", "a reward asks for 'num_output_tokens' of the model's calls"),
        ("Metered", "4", "a reward asks for 'token_ids' of the model's calls"),
        ("Metered", "5", "a reward asks for 'num_output_tokens' of the model's calls"),
    ],
)
def test_a_reward_that_fails_is_an_error(sums, kind, text, message):
    env = of(sums.OneSum(getattr(sums, kind)))
    state = env.initial(env.items[0], (0, 0, 0))
    with pytest.raises(llm_envs.RewardError, match=message):
        env.branch(state, [{"solver_0": text, "checker_0": ""}])


def test_a_tasks_time_limit_for_scoring_holds(sums):
    vf = pytest.importorskip("verifiers.v1")
    env = of(sums.OneSum(sums.Slow, timeout=vf.TaskTimeout(scoring=0.05)))
    with pytest.raises(llm_envs.RewardError, match="TimeoutError"):
        env.branch(env.initial(env.items[0], (0, 0, 0)), [{"solver_0": "wait", "checker_0": ""}])


def in_a_thread(function):
    found = []

    def call():
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return found[0]


def test_other_threads_are_refused_because_rewards_can_be_silently_0_there(sums):
    """The package's own math scoring sets alarms. If this stops failing in threads, `allow_threads` can go."""
    env = of(sums.OneSum(sums.Boxed), team="vote")
    state = env.initial(env.items[0], (0, 0, 0))
    right = [dict.fromkeys(env.possible_agents, r"\boxed{3}")]
    assert env.branch(state, right)[0].rewards["solver_0"] == 1.0
    assert in_a_thread(lambda: sums.verify_boxed_math_answer(r"\boxed{3}", "3")) == 0.0
    fresh = pickle.loads(pickle.dumps(env))  # without the scores so far
    assert "outside of the main thread" in str(in_a_thread(lambda: fresh.branch(state, right)))
    assert isinstance(in_a_thread(lambda: of(sums.OneSum(sums.Boxed))), RuntimeError)


def test_threads_and_event_loops_where_they_are_allowed(sums):
    env = of(sums.OneSum(sums.SumTask), allow_threads=True)
    state = env.initial(env.items[0], (0, 0, 0))

    def earned(text):
        return env.branch(state, [{"solver_0": text, "checker_0": ""}])[0].rewards["solver_0"]

    async def earned_in_a_loop():
        return earned("no")

    assert in_a_thread(lambda: earned("3")) == 0.5
    assert asyncio.run(earned_in_a_loop()) == pytest.approx(0.1)
    strict = of(sums.OneSum(sums.SumTask))

    async def refused():
        strict.branch(state, [{"solver_0": "3", "checker_0": ""}])

    with pytest.raises(llm_envs.RewardError, match="an event loop that runs"):
        asyncio.run(refused())


def test_the_block_of_the_page_runs(sums):
    page = Path(__file__).parents[3] / "docs" / "adapters.md"
    [block] = re.findall(r"^```python verifiers\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    exec(compile(block, str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("options", [{}, {"team": "vote", "solvers": 2, "num_turns": 2}])
def test_it_conforms(sums, options):
    check_env(lambda: made(**options), episodes=3)
    check_task(made(**options).task)


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("InARuntime", "tests, files of InARuntime can only be scored in a runtime"),
        ("InAContainer", "InAContainer needs a container"),
        ("Prepared", r"Prepared.setup\(\) prepares or reads the machine"),
        ("WithTools", r"it has tools \(Adder\)"),
        ("Stopping", "said_enough of Stopping act on the model's calls"),
        ("Intercepting", "redacted of Intercepting act on the model's calls"),
        ("Unrewarded", "Unrewarded has no reward"),
    ],
)
def test_tasks_that_need_more_than_texts_are_refused(sums, kind, reason):
    with pytest.raises(ValueError, match=f"verifiers:OneSum cannot be played by agents who write one answer: {reason}"):
        of(sums.OneSum(getattr(sums, kind)))


def test_data_that_needs_more_than_texts_is_refused(sums):
    vf = pytest.importorskip("verifiers.v1")
    image = [vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url="data:,"))]
    call = vf.AssistantMessage(tool_calls=[vf.ToolCall(id="1", name="add", arguments="{}")])
    user = vf.UserMessage(content="go on")
    for data, reason in (
        ({"prompt": None}, "task 0 has no prompt: its user, or a simulated one, opens the conversation"),
        ({"image": "python:3.12"}, r"task 0 wants a machine \(image='python:3.12'\)"),
        ({"prompt": [vf.UserMessage(content=image)]}, "the prompt of task 0 has images"),
        ({"prompt": [call, vf.ToolMessage(tool_call_id="1", content="3"), user]}, "the prompt of task 0 has calls of tools"),
        ({"prompt": [user, vf.AssistantMessage(content="3")]}, "the prompt of task 0 does not end with a message of the user"),
        ({"prompt": []}, "the prompt of task 0 does not end with a message of the user"),
    ):
        with pytest.raises(ValueError, match=reason):
            of(sums.OneSum(sums.SumTask, **data))


def test_tasksets_that_lead_the_conversation_are_refused(sums, monkeypatch):
    """Also a taskset made by hand is looked up, beside its class; the package's own modules are."""
    module = types.ModuleType("spoken_sums")
    module.__dict__.update(Sums=sums.Sums, Dialogue=sums.Dialogue, __all__=["Sums", "Dialogue"])
    monkeypatch.setitem(sys.modules, "spoken_sums", module)
    with pytest.raises(ValueError, match="it brings an environment of its own, Dialogue, which leads the conversation"):
        llm_envs.make("verifiers:spoken-sums", size=2, eval_size=0)
    monkeypatch.setattr(sums, "__all__", ["Sums", "Dialogue"])
    with pytest.raises(ValueError, match="it brings an environment of its own, Dialogue"):
        of(sums.Sums(sums.SumsConfig()))
    with pytest.raises(ValueError, match=r"its tasks share tools \(Adder\)"):
        of(sums.WithSharedTools(sums.SumsConfig()))


def test_judges_are_refused(sums):
    with pytest.raises(ValueError, match=r"models judge it \(reference\)"):
        made(config={"task": {"judges": [{"id": "reference"}]}})


def test_what_cannot_be_is_refused(sums):
    for options, message in (
        ({"size": 9}, "verifiers:verifiers-sums has 8 tasks, but size \\+ eval_size is 11"),
        ({"size": 0}, "size must be a whole number of at least 1, got 0"),
        ({"config": {"counts": 3}}, "(?s)verifiers:verifiers-sums with {'counts': 3}: .*counts"),
        ({"eval_config": {}}, "several tasks have the same key"),
        ({"team": "vote", "right_at": 1.0}, "right_at cannot apply with team='vote', got 1.0"),
        ({"team": "crowd"}, "team must be 'check' or 'vote', got 'crowd'"),
    ):
        with pytest.raises(ValueError, match=message):
            made(**options)
    with pytest.raises(ValueError, match=r"an agent may write nothing, but on that .* fail: .*float"):
        of(sums.OneSum(sums.FailingOnNothing))
    with pytest.raises(ImportError, match="taskset 'no-such-sums' not found"):
        llm_envs.make("verifiers:no-such-sums")
    with pytest.raises(ValueError, match=r"verifiers:json with {}: .*Taskset"):
        llm_envs.make("verifiers:json")
    with pytest.raises(TypeError, match=r"taskset must be a Taskset of verifiers.v1, got 'sums'"):
        from_verifiers("sums")

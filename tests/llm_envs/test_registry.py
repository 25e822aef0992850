"""Guards the registry: ids, options, refusals, and factories of other distributions, which are imported only when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from llm_envs import registry
from llm_envs.calling import REQUIRED
from llm_envs.env import TaskEnv
from llm_envs.registry import list_envs, make, register, spec
from llm_envs.task import Task

BUILT_IN = ["length-ratio-v0", "matching-v0", "split-v0", "travel-v0"]


@pytest.fixture(autouse=True)
def forget():
    """What a test registers is forgotten after it."""
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def zeros(one, two):
    return [0.0] * len(one)


def own_task(*, rows=2, num_turns=1, **others):
    assert not others
    return Task(reward=zeros, items=[{"prompt": "x"}] * rows, num_turns=num_turns, transition=lambda: ["x", "x"])


def strict_task(size, *, colour="red"):
    return Task(reward=zeros, items=[{"prompt": colour}] * size)


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Installs a distribution with these entry points of the group `llm_envs`."""

    def install(name, entry_points, modules=()):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = "\n".join(f"{key} = {value}" for key, value in entry_points.items())
        (folder / "entry_points.txt").write_text(f"[llm_envs]\n{lines}\n")
        for module, text in dict(modules).items():
            (tmp_path / f"{module}.py").write_text(text)
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def test_built_in_envs_are_listed_and_made():
    assert set(BUILT_IN) <= set(list_envs())
    for name in BUILT_IN:
        env = make(name)
        assert isinstance(env, TaskEnv) and env.metadata["name"] == name and env.render_mode is None
    assert make("split-v0", render_mode="ansi").render_mode == "ansi"


@pytest.mark.parametrize("id", [id for id in list_envs() if spec(id).source == "llm_envs"])
def test_the_module_of_a_task_is_called_like_its_id(id):
    assert spec(id).load().__module__.rpartition(".")[2] == id.removesuffix("-v0").replace("-", "_")


def test_listing_imports_no_task():
    code = "import sys, llm_envs.registry as r; r.list_envs(); print([m for m in sys.modules if m.startswith('llm_envs.tasks')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_options_and_their_alias():
    assert make("matching-v0", num_turns=3, agents=4).num_turns == 3
    assert make("matching-v0", max_cycles=3).num_turns == 3
    assert make("matching-v0", max_cycles=3, num_turns=3).num_turns == 3
    with pytest.raises(TypeError, match="max_cycles=3 is another name of num_turns=2"):
        make("matching-v0", max_cycles=3, num_turns=2)
    assert spec("length-ratio-v0").options() == {
        "target_min": 2.0,
        "target_max": 3.0,
        "agents": 2,
        "num_turns": 1,
        "items": None,
        "eval_items": None,
    }


def test_an_unknown_option_is_named_with_the_known_ones():
    with pytest.raises(
        TypeError, match=r"split-v0 has no option 'num_turn' \(did you mean num_turns\?\); its options: parts, agents"
    ):
        make("split-v0", num_turn=2)


@pytest.mark.parametrize("wrong", ["matching", "matching-v7", "maching-v0", "matching_v0"])
def test_an_unknown_id_is_answered_with_those_like_it(wrong):
    with pytest.raises(ValueError, match=rf"no env '{wrong}' \(did you mean matching-v0"):
        make(wrong)
    with pytest.raises(ValueError, match=r"no env 'qqq'; known: .*length-ratio-v0, "):
        make("qqq")


@pytest.mark.parametrize("wrong", [None, 3, ["split-v0"]])
def test_an_id_is_a_text(wrong):
    with pytest.raises(TypeError, match="an env id must be a text like my-task-v0, got"):
        make(wrong)


def test_registered_factories_defaults_and_tasks():
    register("own-task-v0", own_task, rows=5)
    assert len(make("own-task-v0").items) == 5 and len(make("own-task-v0", rows=3).items) == 3
    assert make("own-task-v0", max_cycles=2).num_turns == 2
    register("own-v1", own_task())
    assert make("own-v1", render_mode="ansi").render_mode == "ansi"
    with pytest.raises(TypeError, match="own-v1 has no option 'rows'; its options: none"):
        make("own-v1", rows=3)
    register("own-v2", lambda: TaskEnv(own_task()))
    assert isinstance(make("own-v2"), TaskEnv)
    with pytest.raises(TypeError, match="own-v2 has no option 'render_mode'"):
        make("own-v2", render_mode="ansi")
    register("own-v3", lambda render_mode=None: TaskEnv(own_task(), render_mode=render_mode))
    assert make("own-v3", render_mode="ansi").render_mode == "ansi"
    assert {"own-task-v0", "own-v1", "own-v2"} <= set(list_envs())


def test_required_options():
    register("strict-v0", strict_task)
    assert spec("strict-v0").options() == {"size": REQUIRED, "colour": "red"}
    with pytest.raises(TypeError, match="strict-v0 needs the option 'size'; its options: size, colour"):
        make("strict-v0")
    register("strict-v1", strict_task, size=2)
    assert len(make("strict-v1").items) == 2


def test_refused_registrations():
    for wrong in ("own", "Own-v0", "own-v", "own_task-v0", "", "own-v٣", None, 3):
        with pytest.raises(ValueError, match="must look like my-task-v0"):
            register(wrong, own_task)
    with pytest.raises(TypeError, match="own-v0 has no option 'size'; its options: rows"):
        register("own-v0", lambda rows=1: own_task(rows=rows), size=2)
    with pytest.raises(TypeError, match="must be a function, a Task or 'module:function', got 3"):
        register("own-v0", 3)
    with pytest.raises(ValueError, match="expected module:function, got 'no_colon'"):
        register("own-v0", "no_colon")
    with pytest.raises(ValueError, match="matching-v0 is taken by llm_envs"):
        register("matching-v0", own_task)
    register("own-v0", lambda: 3)
    with pytest.raises(TypeError, match="own-v0 must give a Task or a ParallelEnv, but its factory returned 3"):
        make("own-v0")


def test_registering_twice():
    register("own-v0", own_task, rows=2)
    register("own-v0", own_task, rows=2)
    with pytest.raises(ValueError, match="own-v0 is taken by this program"):
        register("own-v0", own_task, rows=3)
    with pytest.raises(ValueError, match="own-v0 is taken by this program"):
        register("own-v0", strict_task)
    register("matching-v0", "llm_envs.tasks.matching:task")  # says what is so already


def test_module_and_function():
    env = make("llm_envs.tasks.matching:task", agents=3)
    assert len(env.possible_agents) == 3
    with pytest.raises(ImportError, match="cannot be loaded from 'no_such_module:task': ModuleNotFoundError"):
        make("no_such_module:task")
    with pytest.raises(ImportError, match="AttributeError"):
        make("llm_envs.tasks.matching:no_such")
    with pytest.raises(ImportError, match="neither a factory nor a Task"):
        make("llm_envs.tasks.matching:WORDS")
    with pytest.raises(ValueError, match="expected module:function, got ':x'"):
        make(":x")


def test_entry_points_are_loaded_when_asked_for(distribution):
    text = "from llm_envs.tasks import matching\ndef task(*, agents=3):\n    return matching.task(agents=agents)\n"
    entries = {"theirs-v0": "their_module:task", "broken-v0": "their_broken_module:task"}
    distribution("theirs", entries, {"their_module": text, "their_broken_module": "1/0"})
    assert {"theirs-v0", "broken-v0"} <= set(list_envs())
    assert "their_module" not in sys.modules
    assert len(make("theirs-v0").possible_agents) == 3
    with pytest.raises(ImportError, match=r"broken-v0 \(the distribution theirs\) cannot be loaded .* ZeroDivisionError"):
        make("broken-v0")
    with pytest.raises(ValueError, match="theirs-v0 is taken by the distribution theirs"):
        register("theirs-v0", own_task)


def test_two_sources_of_one_id_are_refused_when_asked_for(distribution):
    distribution("theirs", {"matching-v0": "their_other_module:task", "split-v0": "llm_envs.tasks.split:task"})
    with pytest.raises(ValueError, match="matching-v0 is claimed by llm_envs and by the distribution theirs"):
        make("matching-v0")
    make("split-v0")  # the same thing twice
    make("length-ratio-v0")

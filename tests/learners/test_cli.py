"""Guards `llm-marl`: errors in a line, configs that repeat a run, run folders, resuming, evaluation, envs, checks, help for all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from learners.cli import main
from learners.commands.check import CheckOptions
from learners.commands.evaluate import evaluate_options
from learners.commands.export import ExportOptions
from learners.commands.options import dataclass_options
from learners.commands.settings import settings, train_options
from learners.commands.targets import find_env
from learners.registry import list_learners, trainer_class
from llm_envs.registry import list_envs

ROOT = Path(__file__).parents[2]
ROWS = [{"topic": f"the {noun}"} for noun in ("sea", "moon", "sun", "rain", "bird", "tree")]
# A run of a second: six items, an update for every two of them.
SMALL = [
    *(
        "--model",
        "tiny-random",
        "--learner.max_new_tokens",
        "4",
        "--learner.num_generations",
        "2",
        "--learner.rollout_buffer_size",
        "2",
    ),
    *("--learner.num_train_epochs", "1", "--learner.eval_num_samples", "3", "--learner.eval_interval", "4"),
    *("--learner.logging_steps", "1", "--plot", "false", "--env.items", "rows.jsonl", "--env.eval_items", "rows.jsonl"),
]

OWN = '''
"""An own task."""
from llm_envs import Task, register

CALLS = {"left": 10**9}

def reward(first, second):
    CALLS["left"] -= 1
    if CALLS["left"] < 0:
        raise KeyboardInterrupt
    return [float("a" in one) for one in first]

def task(*, rows: int = 4, wrong: bool = False):
    """Say a.

    Args:
        rows: how many.
        wrong: fail on everything.
    """
    return Task(reward=failing if wrong else reward, items=[{"prompt": f"say a {n}"} for n in range(rows)], name="own")

def failing(first, second):
    raise RuntimeError("no\\nreward")

def solving():
    """Everything is right."""
    return Task(reward={"solved": lambda first, second: [1.0] * len(first)}, items=[{"prompt": "say a"}, {"prompt": "say b"}])

def flat():
    """Pays all alike."""
    return Task(reward=lambda first, second: [1.0] * len(first), items=[{"prompt": "say a"}])
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test starts in a folder with rows and a task of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "own_task.py").write_text(OWN)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)
    sys.modules.pop("own_task", None)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """`small_run(name)`: puts a copy of one finished run of `SMALL` into the test's folder."""
    elsewhere = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        (elsewhere / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
        assert main(["train", *SMALL, "--output_dir", "one", "--quiet"]) == 0
    return lambda name: shutil.copytree(elsewhere / "one", name)


def metrics(run: str | Path) -> list[dict]:
    """What a run logged, without clock readings."""
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if not any(name.startswith("time/") for name in line)]


def weights(run: str | Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(run).glob("agents/*/model.safetensors"))]


# ---- errors ----


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        ("trian", ["no command 'trian'", "did you mean train?"]),
        ("train --env length-ratio", ["no env 'length-ratio'", "did you mean length-ratio-v0"]),
        ("train --env nowhere:task", ["nowhere"]),
        ("train --env nowhere.py:task", ["there is no file", "nowhere.py"]),
        ("train --env own_task:nothing", ["own_task:nothing"]),
        ("train --learner magppo", ["no learner 'magppo'", "magrpo"]),
        ("train --learner.num_generation 3", ["--learner.num_generation", "did you mean --learner.num_generations"]),
        ("train --learner.num_generations 1", ["--learner.num_generations must be at least 2", "got 1"]),
        ("train --learner.num_turns 2", ["num_turns=2", "num_turns=1"]),
        ("train --env.target_min 3 --env.target_max 2", ["length-ratio-v0", "target_min", "3.0 and 2.0"]),
        ("train --env.num_turns 0", ["num_turns must be a whole number of at least 1, got 0"]),
        ("train --env.items nowhere.jsonl", ["nowhere.jsonl", "No such file"]),
        ("train --config nowhere.yaml", ["--config nowhere.yaml", "No such file"]),
        ("train --model ./nowhere", ["'./nowhere'"]),
        ("train --model tiny-random --agents tiny-random tiny-random tiny-random", ["3", "2"]),
        ("train --threads -1", ["--threads must be at least 0, got -1"]),
        ("train --checkpoint_total_limit 0", ["--checkpoint_total_limit must be at least 1"]),
        ("train --resume_from_checkpoint latest", ["--resume_from_checkpoint latest needs"]),
        ("train --model tiny-random --resume_from_checkpoint nowhere/checkpoint-00000001", ["nowhere"]),
        ("train --model tiny-random --model_config.lora.bogus 3", ["bogus"]),
        ("train --learner marlhf --model tiny-random --learner.rl_options.bogus 1", ["bogus cannot apply", "'magrpo'"]),
        ("train --learner marlhf --model tiny-random --learner.rl_algorithm madpo", ["must be a policy-gradient learner"]),
        ("train --learner marlhf --model tiny-random --critic_model tiny-random", ["critic_model cannot apply", "'magrpo'"]),
        ("train --learner madpo --critic_model tiny", ["madpo has no critic"]),
        ("train --learner madpo-iter --learner.comparator_policy model", ["comparator_model_name or comparator_agents"]),
        ("train --model tiny-random --model_config.dtype float99", ["float99"]),
        ("train --model tiny-random --wandb.tags a --wandb.resume maybe --wandb.wrong x", ["--wandb.wrong"]),
        ("evaluate", ["what is to be evaluated?"]),
        ("evaluate tiny-random --num_samples 0", ["--num_samples must be at least 1, got 0"]),
        ("evaluate tiny-random --json maybe", ["--json must be true or false, got 'maybe'"]),
        ("evaluate tiny-random --temperature -1", ["temperature"]),
        ("evaluate tiny-random tiny-random tiny-random", ["one model for all agents or one for each of agent_0, agent_1", "got 3"]),
        ("evaluate ./nowhere", ["'./nowhere'"]),
        ("evaluate tiny-random --env own_task:task", ["no evaluation items", "--split train"]),
        ("envs lenght-ratio-v0", ["did you mean length-ratio-v0"]),
        ("envs --no", ["no option --no"]),
        ("check", ["what is to be checked?"]),
        ("check own_task:CALLS", ["neither a factory nor a Task"]),
        ("check matching-v0 --rows 0", ["--rows must be at least 1, got 0"]),
    ],
)
def test_bad_input_is_told_in_one_line(words, fragments, capsys):
    assert main(words.split()) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert told.err.startswith("llm-marl")
    assert "Traceback" not in told.err
    assert [fragment for fragment in fragments if fragment not in told.err] == []


def test_failures_of_a_run_are_told_in_one_line_with_another_status(capsys):
    command = ["train", "--env", "own_task:task", "--env.wrong", "--model", "tiny-random", "--quiet", "--output_dir", "run"]
    assert main(command) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "no reward" in told
    assert "--debug shows the traceback" in told


@pytest.mark.parametrize(("module", "words"), [("rich", ["envs"]), ("torch", ["train", "--print_config"])])
def test_a_missing_extra_is_named(module, words):
    code = f"import sys; sys.modules[{module!r}] = None; from learners.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'llm-envs[train]'" in done.stderr


def test_debug_shows_the_traceback():
    with pytest.raises(Exception, match="no env 'nothing'"):
        main(["train", "--debug", "--env", "nothing"])


# ---- settings ----


def test_no_options_are_the_main_job():
    chosen = settings([])
    assert (chosen.env_id, chosen.trainer.__name__, chosen.run.models) == ("length-ratio-v0", "MAGRPOTrainer", ["tiny"])
    assert chosen.preset["num_generations"] == chosen.config.num_generations == 8


def test_what_the_user_sets_wins_over_the_preset(folder):
    (folder / "run.yaml").write_text("learner: {temperature: 0.5, num_generations: 3}")
    config = settings(["--config", "run.yaml", "--learner.num_generations", "2"]).config
    assert (config.temperature, config.num_generations, config.agent_learning_rate) == (0.5, 2, 5e-4)


@pytest.mark.parametrize(
    ("words", "generations"),
    [
        ("--model tiny-random", 8),
        ("--agents tiny tiny-random", 8),
        ("--model other", 4),
        ("--agents tiny other", 4),
        ("--preset none", 4),
        ("--model other --preset tiny", 8),
    ],
)
def test_the_preset_is_for_tiny_teams_unless_asked_for(words, generations):
    assert settings(words.split()).config.num_generations == generations


@pytest.mark.parametrize("learner", list_learners())
def test_one_word_swaps_the_learner(learner):
    chosen = settings(["--learner", learner])
    assert chosen.trainer is trainer_class(learner)
    assert type(chosen.config) is chosen.trainer.learner_class.config_class


def test_printed_configs_give_the_same_config_again(folder, capsys):
    words = [
        "--learner",
        "marloo",
        "--env",
        "split-v0",
        "--env.num_turns",
        "2",
        "--learner.joint_mode",
        "cross",
        "--model_config.lora.r",
        "2",
    ]
    assert main(["train", *words, "--print_config"]) == 0
    first = capsys.readouterr().out
    (folder / "run.yaml").write_text(first)
    assert main(["train", "--config", "run.yaml", "--print_config"]) == 0
    assert capsys.readouterr().out == first
    tree = yaml.safe_load(first)
    assert (tree["learner"]["name"], tree["env"]["num_turns"], tree["model_config"]["lora"]) == ("marloo", 2, {"r": 2})
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("words", "generations", "epochs"),
    [
        # About 400 states: 400 / 64 items, 400 / (1 + 4) / 64, 400 / (1 + 4 + 16) / 64, 400 / 6.
        ("--env matching-v0", 8, 7),
        ("--env matching-v0 --env.num_turns 2", 4, 2),
        ("--env matching-v0 --env.num_turns 3", 4, 1),
        ("--env.items rows.jsonl", 8, 67),
    ],
)
def test_the_preset_wants_about_as_many_states_whatever_the_turns_and_items(words, generations, epochs):
    config = settings(words.split()).config
    assert (config.num_generations, config.num_train_epochs, config.shuffle) == (generations, epochs, True)


# ---- runs ----


def test_a_run_leaves_a_folder_and_its_config_repeats_it(folder, capsys):
    assert main(["train", *SMALL, "--plot", "true", "--output_dir", "one"]) == 0
    shown = capsys.readouterr().out
    assert "evaluation before" in shown
    assert "evaluation after" in shown
    assert "preset tiny" in shown
    names = {path.name for path in Path("one").iterdir()}
    assert names == {"config.yaml", "metrics.jsonl", "stream.jsonl", "plot.png", "agents", "checkpoints"}
    assert len(Path("one/stream.jsonl").read_text().splitlines()) == len(ROWS) * 2
    for agent in ("agent_0", "agent_1"):
        AutoModelForCausalLM.from_pretrained(f"one/agents/{agent}")
        AutoTokenizer.from_pretrained(f"one/agents/{agent}")
    assert main(["train", "--config", "one/config.yaml", "--output_dir", "two", "--plot", "false", "--quiet"]) == 0
    assert metrics("one") == metrics("two")
    assert weights("one") == weights("two")
    assert len(weights("one")) == 2


def test_the_curve_ends_with_the_evaluation_after_training(small_run):
    small_run("one")
    evaluations = [line for line in metrics("one") if "eval/turn_1/reward_mean" in line]
    # Before items 0 and 4, and after the last.
    assert [line["env_step"] for line in evaluations] == [0, 8, 12]


def test_a_folder_holds_one_run(small_run, capsys):
    small_run("one")
    assert main(["train", *SMALL, "--output_dir", "one", "--quiet"]) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_runs_without_a_name_get_folders_of_their_own(folder):
    for _ in range(2):
        assert main(["train", *SMALL, "--quiet", "--record", "false", "--checkpoint_interval", "0"]) == 0
    runs = sorted(path.name for path in (folder / "runs").iterdir())
    assert len(runs) == 2
    assert all(name.startswith("length-ratio-v0-magrpo-") for name in runs)
    # Nothing recorded, no checkpoints, no plot, as asked.
    assert {path.name for path in (folder / "runs" / runs[0]).iterdir()} == {"config.yaml", "metrics.jsonl", "agents"}


def test_a_resumed_run_ends_like_one_that_ran_through(small_run, capsys):
    small_run("one")
    capsys.readouterr()
    assert main(["train", "--resume_from_checkpoint", "one", "--learner.num_train_epochs", "2"]) == 0
    shown = capsys.readouterr().out
    assert "evaluation after:" in shown and "no evaluation items" not in shown
    assert main(["train", *SMALL, "--learner.num_train_epochs", "2", "--output_dir", "two", "--quiet"]) == 0
    assert metrics("one") == metrics("two")
    assert weights("one") == weights("two")
    assert Path("one/stream.jsonl").read_text() == Path("two/stream.jsonl").read_text()


def test_a_checkpoint_of_another_run_is_refused(small_run, capsys):
    small_run("one")
    assert main(["train", "--resume_from_checkpoint", "one", "--learner.num_generations", "4", "--quiet"]) == 2
    assert "num_generations" in capsys.readouterr().err


def test_an_interrupted_run_can_be_gone_on_with(capsys):
    command = [
        "--env",
        "own_task.py:task",
        "--model",
        "tiny-random",
        "--learner.max_new_tokens",
        "4",
        "--learner.num_train_epochs",
        "2",
        "--plot",
        "false",
    ]
    assert main(["train", *command, "--output_dir", "one", "--quiet"]) == 0
    assert "training return: " in capsys.readouterr().out  # there is nothing to evaluate on
    import own_task  # type: ignore[import-not-found]  # the fixture's

    own_task.CALLS["left"] = 6  # two items into the second epoch
    assert main(["train", *command, "--output_dir", "two", "--quiet"]) == 130
    told = capsys.readouterr().err
    assert "llm-marl train --resume_from_checkpoint two" in told
    assert not Path("two/agents").exists()
    own_task.CALLS["left"] = 10**9
    assert main(["train", "--resume_from_checkpoint", "two"]) == 0
    assert metrics("one") == metrics("two")
    assert weights("one") == weights("two")


def test_options_of_a_run_do_what_they_say(small_run, folder):
    torch.set_num_threads(2)
    words = ["--agents", "tiny-random", "tiny-random", "--reward_workers", "2", "--checkpoint_interval", "2"]
    words += ["--checkpoint_dir", "kept", "--checkpoint_total_limit", "none", "--tokenizer", "tiny-random"]
    assert main(["train", *SMALL[2:], *words, "--output_dir", "one", "--quiet"]) == 0
    assert torch.get_num_threads() == 1
    assert len(list((folder / "kept").glob("checkpoint-*"))) == 3
    assert not (folder / "one" / "checkpoints").exists()
    # Threads for rewards change nothing.
    small_run("two")
    assert metrics("one") == metrics("two")


def test_a_centralized_team_is_one_agent(capsys):
    assert main(["train", *SMALL, "--learner.collaboration_mode", "centralized", "--output_dir", "one", "--quiet"]) == 0
    assert "1 agent (tiny-random)" in capsys.readouterr().out
    assert [path.name for path in Path("one/agents").iterdir()] == ["agent_0"]
    assert main(["evaluate", "one", "--json", "--num_samples", "2"]) == 0
    assert list(json.loads(capsys.readouterr().out)["agent_returns"]) == ["team_0"]


@pytest.mark.slow
def test_other_sinks_are_logged_to(folder):
    words = ["--tensorboard", "--wandb.mode", "offline", "--wandb.dir", "wandb-files", "--wandb.project", "p", "--wandb.tags", "a"]
    assert main(["train", *SMALL, *words, "--output_dir", "one", "--quiet"]) == 0
    assert list(Path("one/tensorboard").glob("events*"))
    assert list((folder / "wandb-files").rglob("*.wandb"))


# ---- own environments and learners ----


@pytest.mark.parametrize("target", ["own_task:task", "own_task.py:task", "./own_task.py:task", "~/own_task.py:task"])
def test_own_tasks_need_no_registration(target, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert find_env(target).id == "own_task:task"
    assert settings(["--env", target, "--env.rows", "2"]).env.items == [{"prompt": "say a 0"}, {"prompt": "say a 1"}]


LEARNER = '''
from dataclasses import dataclass
from learners.reinforce import MAGRPO, MAGRPOConfig
from learners.trainers import ReinforceTrainer

@dataclass(frozen=True, kw_only=True)
class OwnConfig(MAGRPOConfig):
    """Own.

    Attributes:
        twist: something new.
    """
    twist: float = 1.0

class Own(MAGRPO):
    """Own."""
    config_class = OwnConfig

class OwnTrainer(ReinforceTrainer):
    """Own."""
    learner_class = Own
'''


def test_learners_of_other_packages_are_found_by_entry_point(folder, monkeypatch, capsys):
    (folder / "site").mkdir()
    (folder / "site" / "own_learner.py").write_text(LEARNER)
    info = folder / "site" / "own_learner-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-learner\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llm_marl.learners]\nown = own_learner:OwnTrainer\nbroken = own_learner:Nothing\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    assert list_learners()[-2:] == ["broken", "own"]
    assert main(["train", *SMALL, "--learner", "own", "--learner.twist", "2", "--output_dir", "one", "--quiet"]) == 0
    assert yaml.safe_load(Path("one/config.yaml").read_text())["learner"]["twist"] == 2.0
    capsys.readouterr()
    assert main(["train", "--learner", "broken"]) == 2
    assert "the learner broken (the distribution own-learner) cannot be loaded" in capsys.readouterr().err


# ---- preference learners ----


def small(learner: str) -> list[str]:
    """A run of a second: four items, two rounds of the iterative forms."""
    words = f"--learner {learner} --model tiny-random --env own_task:task --plot false --quiet --learner.max_new_tokens 4"
    words += " --learner.num_train_epochs 1 --learner.preference_num_candidates 6 --learner.collection_batch_size 16"
    words += " --learner.num_iterations 2 --learner.preference_replay_sample_size 8" if learner.endswith("iter") else ""
    words += " --learner.num_generations 2 --learner.rollout_buffer_size 2" if learner.startswith("marlhf") else ""
    return words.split()


@pytest.mark.parametrize("learner", ["madpo-iter", *(pytest.param(other, marks=pytest.mark.slow) for other in ("madpo", "marlhf"))])
def test_preference_learners_go_on_from_their_folder(learner, capsys):
    """Stopped in the last phase that draws, and gone on with, a run ends like one that ran through."""
    command = ["train", *small(learner), "--checkpoint_interval", "2"]
    find_env("own_task:task")
    import own_task  # type: ignore[import-not-found]  # the fixture's

    assert main([*command, "--output_dir", "one"]) == 0
    calls = 10**9 - own_task.CALLS["left"]
    own_task.CALLS["left"] = calls - 1
    assert main([*command, "--output_dir", "two"]) == 130
    own_task.CALLS["left"] = 10**9
    assert main(["train", "--resume_from_checkpoint", "two"]) == 0
    assert metrics("one") == metrics("two")
    assert weights("one") == weights("two")
    assert len(weights("one")) == (3 if learner.startswith("marlhf") else 2)
    assert Path("two/preference_replay/iteration_0002.json").exists() == learner.endswith("iter")
    capsys.readouterr()
    assert main(["evaluate", "two", "--split", "train", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["agent_returns"]) == ["agent_0", "agent_1"]


@pytest.mark.parametrize("plot", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_preference_run_is_shown_and_drawn(folder, capsys, plot):
    words = f"--env length-ratio-v0 --env.items rows.jsonl --env.eval_items rows.jsonl --plot {plot} --quiet false"
    words += " --learner.log_reward_distribution --learner.comparator_policy history --checkpoint_interval 0"
    command = ["train", *small("marlhf-iter"), *words.split(), "--learner.rl_options", "{reference_kl_coef: 0.5}"]
    assert main([*command, "--output_dir", "one"]) == 0
    told = capsys.readouterr()
    assert "evaluation after" in told.out
    assert """rl_options='{"reference_kl_enabled": true}'""" in " ".join(told.out.split())
    assert "round 2 of 2: training with magrpo" in told.err
    assert " 0.0/s" not in told.err
    assert (folder / "one/plot.png").exists() == (plot == "true")
    assert len(list((folder / "one/reward_distributions").iterdir())) == 2
    options = yaml.safe_load((folder / "one/config.yaml").read_text())["learner"]
    # Of a mapping the preset adds what the user left open.
    assert options["rl_options"] == {"reference_kl_coef": 0.5, "reference_kl_enabled": True}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("madpo", {"agent_learning_rate": 1e-4, "num_train_epochs": 1}),
        ("madpo-iter", {"preference_replay_mode": "all_history", "num_iterations": 4}),
        ("madpo-iter --learner.preference_replay_mode current", {"preference_replay_sample_size": None}),
        ("marlhf", {"num_generations": 8, "rollout_buffer_size": 4, "critic_learning_rate": None}),
        ("marlhf --learner.rl_algorithm iac", {"rollout_buffer_size": 32, "critic_learning_rate": 1e-3}),
        ("marlhf-iter", {"pair_selection": "reward_gap", "preference_replay_sample_size": 1024, "rollout_buffer_size": 4}),
        ("marlhf-iter --learner.preference_replay_mode lambda --learner.preference_replay_lambda 0.5", {"num_iterations": 3}),
    ],
)
def test_the_preset_fits_each_preference_learner(words, expected):
    config = settings(["--learner", *words.split()]).config
    assert {name: getattr(config, name) for name in expected} == expected


def test_secrets_of_an_endpoint_are_named_not_given(monkeypatch, capsys):
    api = ["--learner", "madpo-iter", "--learner.comparator_policy", "api", "--learner.comparator_api_url", "http://127.0.0.1:9/v1"]
    for name in ("MY_KEY", "NOT_SET"):
        monkeypatch.delenv(name, raising=False)
    words = [*api, "--learner.comparator_api_headers.X-Key", "${MY_KEY}", "--learner.comparator_api_extra_body", "{top_p: null}"]
    assert main(["train", *words, "--print_config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)["learner"]
    assert shown["comparator_api_headers"] == {"X-Key": "${MY_KEY}"}
    assert shown["comparator_api_extra_body"] == {"top_p": None}
    assert main(["train", *api, "--learner.comparator_api_headers", '{"X-Key": "sk-123"}']) == 2
    assert main(["train", *api, "--learner.comparator_api_key", "sk-123"]) == 2
    assert main(["train", *api, "--model", "tiny-random", "--learner.comparator_api_key_env", "NOT_SET"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 3
    assert "sk-123" not in told
    assert "NOT_SET, which is not set" in told


# ---- evaluate ----


def test_evaluating_a_run_gives_its_last_evaluation_again(small_run, capsys):
    small_run("one")
    capsys.readouterr()
    assert main(["evaluate", "one", "--json", "--num_samples", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    last = [line for line in metrics("one") if "eval/turn_1/reward_mean" in line][-1]
    assert result["return_mean"] == pytest.approx(last["eval/turn_1/expected_return"])
    assert result["metrics"] == {name.removeprefix("eval/"): value for name, value in last.items() if name != "env_step"}
    assert result["episodes"] == 3
    assert main(["evaluate", "one", "--episodes", "1", "--split", "train", "--temperature", "0"]) == 0
    shown = capsys.readouterr().out
    assert "tell me about the sea." in shown
    assert "tell me about the moon." not in shown
    assert "temperature 0.0" in shown


def test_evaluating_models_by_name(capsys):
    words = ["--env", "matching-v0", "--env.num_turns", "2", "--num_samples", "2", "--max_new_tokens", "3"]
    assert main(["evaluate", "tiny-random", "tiny-random", *words]) == 0
    shown = capsys.readouterr().out
    assert "matching-v0: tiny-random" in shown
    assert "turns" in shown
    assert "turn_2/reward_mean" in shown


def test_protocols_answers_and_costs(capsys):
    """Two drafts and two answers of 3 tokens make a discussion; the same seed gives a pipeline's first agent its parallel text."""
    words = ["--env", "own_task:solving", "--split", "train", "--num_samples", "2", "--max_new_tokens", "3", "--json"]
    results = {}
    for protocol, texts in (("parallel", 2), ("pipeline", 2), ("discussion", 4), ("single", 1)):
        assert main(["evaluate", "tiny-random", *words, "--protocol", protocol, "--num_completions", "3"]) == 0
        results[protocol] = json.loads(capsys.readouterr().out)
        assert results[protocol]["episodes"] == 6
        cost = results[protocol]["cost_per_episode"]
        assert cost["texts"] == texts
        assert texts <= cost["completion_tokens"] <= 3 * texts
        assert cost["seconds_of_generation"] > 0
        assert results[protocol]["pass_at"] == {"1": 1.0, "3": 1.0}  # solved whatever is written
    reading = {name: result["cost_per_episode"]["prompt_tokens"] for name, result in results.items()}
    assert reading["parallel"] < reading["pipeline"] < reading["discussion"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--pass_at 2", "--pass_at 2 must be from 1 to --num_completions, which is 1"),
        ("--num_completions 0", "--num_completions must be at least 1"),
        ("--num_completions 2 --pass_at 2 --env matching-v0 --num_samples 1", "does not say what is solved"),
        ("--protocol chat", "protocol"),
        ("tiny-random --protocol single", "--protocol single has one model write for all agents, got 2: tiny-random, tiny-random"),
        ("tiny-random tiny-random", "one model for all agents or one for each of agent_0, agent_1, got 3"),
    ],
)
def test_evaluations_that_cannot_be(words, message, capsys):
    assert main(["evaluate", "tiny-random", *words.split()]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


# ---- envs and check ----


def test_envs_lists_every_id_with_what_it_is(capsys):
    assert main(["envs"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in list_envs() if name not in shown] == []
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("env", [*list_envs(), "own_task:task"])
def test_envs_shows_one_with_options_spaces_and_an_episode(env, capsys):
    assert main(["envs", env, "--seed", "1"]) == 0
    shown = capsys.readouterr().out
    for option in find_env(env).options():
        assert f"--env.{option}" in shown
    assert f"{find_env(env).make().possible_agents[0]} acts in" in shown
    assert "reward:" in shown


def test_envs_shows_what_options_change(capsys):
    assert main(["envs", "matching-v0", "--env.agents", "3", "--env.num_turns", "2"]) == 0
    shown = capsys.readouterr().out
    assert "at most 2" in shown
    assert "agent_2 writes" in shown


def test_check_passes_a_sound_task_and_audits_its_reward(capsys):
    assert main(["check", "own_task:task", "--rows", "2", "--episodes_per_row", "1"]) == 0
    shown = capsys.readouterr().out
    assert "passed" in shown
    for team in ("empty", "constant", "copied prompt", "longest", "random text", "random words"):
        assert team in shown
    assert "returns over 2 episodes" in shown
    assert main(["check", "own_task:flat", "--rows", "1", "--episodes_per_row", "1"]) == 0
    assert "warning: every team earns 1" in capsys.readouterr().out


def test_check_fails_a_task_whose_reward_fails(capsys):
    assert main(["check", "own_task:task", "--env.wrong"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL" in shown
    assert "no reward" in shown
    assert "passed" not in shown


# ---- help ----


def test_every_option_has_help():
    options = [
        *(option for name in list_learners() for option in train_options(find_env("split-v0"), trainer_class(name))),
        *(option for name in list_envs() for option in evaluate_options(find_env(name))),
        *dataclass_options(CheckOptions),
        *dataclass_options(ExportOptions),
    ]
    assert sorted({option.name for option in options if not option.help}) == []


@pytest.mark.parametrize("command", ["train", "evaluate", "envs", "check", "export"])
def test_help_of_a_command(command, capsys):
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: llm-marl {command}")
    if command == "train":
        for option in train_options(find_env("length-ratio-v0"), trainer_class("magrpo")):
            assert f"--{option.name.removesuffix('.name')}" in shown


def test_the_page_names_options_that_exist():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--[a-z][a-z_.]*[a-z]", page))
    known = {"--help", "--debug", "--print_config", "--env", "--learner", "--env.rows", "--model_config.lora.r"}
    known.add("--learner.rl_options.reference_kl_coef")
    env = find_env("matching-v0")
    options = [option for name in list_learners() for option in train_options(env, trainer_class(name))]
    options += [*evaluate_options(find_env("length-ratio-v0")), *dataclass_options(ExportOptions)]
    assert named - known - {f"--{option.name}" for option in options} == set()
    assert {name for name in list_learners() if f"`{name}`" not in page} == set()


def test_help_and_version(capsys):
    assert main([]) == main(["--help"]) == main(["--version"]) == 0
    shown = capsys.readouterr().out
    for command in ("train", "evaluate", "envs", "check", "export"):
        assert f"  {command}" in shown
    assert "llm-marl 0." in shown


def test_what_needs_no_model_loads_no_torch():
    commands = [
        ["--help"],
        ["--version"],
        ["envs"],
        ["envs", "split-v0"],
        ["check", "--help"],
        ["evaluate", "--help"],
        ["export", "--help"],
    ]
    code = f"""import sys
from learners.cli import main
print([main(command) for command in {commands!r}], file=sys.stderr)
sys.exit('torch' in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[0, 0, 0, 0, 0, 0, 0]\n")


# ---- the main job ----


@pytest.mark.slow
def test_the_main_job_learns():
    """The command without options, as a user runs it."""
    done = subprocess.run([sys.executable, "-m", "learners.cli", "train"], capture_output=True, text=True, env=_without_network())
    assert done.returncode == 0, done.stderr
    (run,) = Path("runs").iterdir()
    returns = [line["eval/turn_1/expected_return"] for line in metrics(run) if "eval/turn_1/expected_return" in line]
    assert returns[0] < 0.6
    assert returns[-1] >= 0.9
    assert {path.name for path in run.iterdir()} >= {"config.yaml", "metrics.jsonl", "stream.jsonl", "plot.png", "agents"}


def _without_network() -> dict[str, str]:
    import os

    # A proxy that answers nothing: whatever asked the network would fail.
    return {**os.environ, "PYTHONPATH": str(ROOT), "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}

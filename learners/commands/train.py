"""`llm-marl train`: one run, from options to a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from learners.commands.display import console, number, option_help
from learners.commands.episodes import episode_estimate, return_of, show_changes, show_comparison
from learners.commands.errors import UsageError, bad_input
from learners.commands.files import to_yaml
from learners.commands.libraries import quiet_libraries, set_threads
from learners.commands.loading import model_config
from learners.commands.options import short_name
from learners.commands.settings import MAIN_ENV, TrainSettings, chosen_parts, settings, train_options
from learners.credit import mean
from learners.run_folder import AGENTS_FOLDER, CHECKPOINTS_FOLDER, CONFIG_FILE, METRICS_FILE, TENSORBOARD_FOLDER
from llm_envs.types import EnvStep

_SHOWN = 2
_DOTS = (
    "Only the ratio of the two lengths is rewarded here, so that is all the team learns: the tiny model makes its text longer by "
    "repetition or rows of dots, not by sense. With a real model, reward what you want to read."
)


@dataclass(frozen=True)
class _Resume:
    """Where a run goes on from.

    Attributes:
        source: a checkpoint's folder or `latest`; None starts anew.
        folder: the run's folder, if that was named.
    """

    source: str | None = None
    folder: Path | None = None


def run(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    if "--help" in argv or "-h" in argv:
        print(_help([word for word in argv if word not in ("--help", "-h")]))
        return 0
    print_config = "--print_config" in argv
    chosen = settings([word for word in argv if word != "--print_config"])
    if print_config:
        print(to_yaml(chosen.effective), end="")
        return 0
    set_threads(chosen.run.threads)
    quiet_libraries()
    _train(chosen, console())
    return 0


def _help(argv: Sequence[str]) -> str:
    env, trainer, _ = chosen_parts(argv)
    by_section: dict[str, list[Any]] = {}
    for option in train_options(env, trainer):
        section, dot, _ = short_name(option.name).partition(".")
        by_section.setdefault(section if dot else "", []).append(option)
    titles = {
        "": "the run",
        "env": f"the env {env.id}",
        "learner": f"the learner {trainer.learner_class.__name__} (--preset tiny changes some defaults)",
        "model_config": "how models are loaded",
        "wandb": "Weights & Biases",
    }
    return option_help(
        "llm-marl train [--env ID] [--learner NAME] [--model NAME] [--OPTION VALUE]...",
        "Train a team of language models on an environment. With no options the main job: MAGRPO on length-ratio-v0 with two "
        "tiny models built on this machine, offline, on a CPU. Options of the chosen env and learner are shown: give --env and "
        "--learner with --help for those of others. --print_config prints the options as YAML, which --config takes, and runs "
        "nothing.",
        [(titles[section], options) for section, options in by_section.items()],
    )


def _train(chosen: TrainSettings, out: Console) -> None:
    resume = _resume(chosen)
    folder = _folder(chosen, resume)
    effective = {**chosen.effective, "output_dir": str(folder)}
    config_text = to_yaml(effective)
    trainer = _build(chosen, folder, config_text)
    _announce(chosen, folder, out)
    before = [] if resume.source else _evaluate(trainer, "evaluation before", out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(config_text, encoding="utf-8")
    _run_training(chosen, trainer, resume, folder)
    after = _told(trainer.last_evaluation, "evaluation after", out)
    trainer.save_model(folder / AGENTS_FOLDER)
    _report(chosen, folder, before, after, out)


def _resume(chosen: TrainSettings) -> _Resume:
    source = chosen.run.resume_from_checkpoint
    if source is None:
        return _Resume()
    folder = Path(source).expanduser()
    if (folder / CONFIG_FILE).is_file():
        return _Resume("latest", folder)
    if source == "latest" and chosen.run.checkpoint_dir is None and chosen.run.output_dir is None:
        raise UsageError(
            "--resume_from_checkpoint latest needs --output_dir or --checkpoint_dir to look in, or name the run's folder"
        )
    return _Resume(source)


def _folder(chosen: TrainSettings, resume: _Resume) -> Path:
    """The run's folder. A run never writes into another's."""
    if resume.folder is not None:
        return resume.folder
    if chosen.run.output_dir is None:
        return _new_folder(chosen)
    folder = Path(chosen.run.output_dir).expanduser()
    if resume.source is None and (folder / METRICS_FILE).exists():
        raise UsageError(
            f"--output_dir {folder} already holds a run: choose another, or go on with it by --resume_from_checkpoint {folder}"
        )
    return folder


def _new_folder(chosen: TrainSettings) -> Path:
    # `path/to/file.py:factory` is no name for a folder.
    env = chosen.env_id.rpartition("/")[2].replace(":", "-").replace(".", "-")
    learner = chosen.parsed.values["learner.name"]
    name = Path("runs") / f"{env}-{learner}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    folder, count = name, 1
    while folder.exists():
        count += 1
        folder = name.with_name(f"{name.name}-{count}")
    return folder


def _build(chosen: TrainSettings, folder: Path, config_text: str) -> Any:
    from learners.tracking import TensorBoardSink

    run = chosen.run
    with bad_input():
        return chosen.trainer(
            env=chosen.env,
            agent_model=run.model if run.agents is None else None,
            agents=run.agents,
            tokenizer=run.tokenizer,
            **({} if run.critic_model is None else {"critic_model": run.critic_model}),
            model_config=model_config(chosen.parsed),
            args=chosen.config,
            output_dir=folder,
            record=run.record,
            wandb_config=chosen.wandb_config(yaml.safe_load(config_text)),
            sinks=[TensorBoardSink(folder / TENSORBOARD_FOLDER)] if run.tensorboard else [],
            progress=not run.quiet,
            reward_workers=run.reward_workers,
        )


def _announce(chosen: TrainSettings, folder: Path, out: Console) -> None:
    count = 1 if chosen.config.collaboration_mode == "centralized" else len(chosen.env.possible_agents)
    models = ", ".join(dict.fromkeys(chosen.run.models))
    team = f"{count} agent{'s' * (count > 1)} ({models})"
    out.print(f"{chosen.trainer.learner_class.__name__} on {chosen.env_id}: {team}", style="bold")
    if chosen.preset and not chosen.run.quiet:
        given = " ".join(f"{name}={_text(value)}" for name, value in chosen.preset.items())
        out.print(f"preset tiny (--preset none for the learner's own defaults): {given}")
    out.print(f"run folder: {folder}", soft_wrap=True)


def _text(value: object) -> str:
    """A value as the command line takes it."""
    if isinstance(value, Mapping):
        return f"'{json.dumps(value)}'"
    return "none" if value is None else str(value).lower()


def _evaluate(trainer: Any, label: str, out: Console) -> list[EnvStep]:
    """The steps of an evaluation, its return printed; none without evaluation items."""
    return _told(trainer.last_evaluation if trainer.evaluate() else [], label, out)


def _told(steps: Sequence[EnvStep], label: str, out: Console) -> list[EnvStep]:
    from learners.evaluation import by_episode

    if steps:
        out.print(f"{label}: {episode_estimate(steps, return_of)} (mean return of {len(by_episode(steps))} items)", style="bold")
    return list(steps)


def _run_training(chosen: TrainSettings, trainer: Any, resume: _Resume, folder: Path) -> None:
    from learners.checkpoint import CheckpointError

    run = chosen.run
    directory = None if run.checkpoint_interval == 0 else Path(run.checkpoint_dir or folder / CHECKPOINTS_FOLDER).expanduser()
    try:
        trainer.train(
            resume_from_checkpoint=resume.source,
            checkpoint_dir=directory,
            checkpoint_interval=run.checkpoint_interval or None,
            checkpoint_total_limit=None if directory is None else run.checkpoint_total_limit,
            evaluate_at_end=True,
        )
    except (ValueError, CheckpointError) as error:
        # A checkpoint that does not fit is refused before anything is collected; a fitting one was made after something was.
        if resume.source is not None and trainer.numbering.env_step == 0:
            raise UsageError(f"--resume_from_checkpoint: {error}") from error
        raise
    except KeyboardInterrupt:
        again = (
            f"; go on with: llm-marl train --resume_from_checkpoint {folder}"
            if directory is not None and directory.is_dir()
            else ""
        )
        print(f"stopped after {trainer.numbering.env_step} env steps{again}", file=sys.stderr)
        raise


def _report(chosen: TrainSettings, folder: Path, before: Sequence[EnvStep], after: Sequence[EnvStep], out: Console) -> None:
    from learners.curves import plot

    if chosen.run.plot:
        plot(folder)
    if not chosen.run.quiet and before and after:
        out.print()
        show_comparison(out, before, after, chosen.env.num_turns)
        out.print()
        show_changes(out, before, after, _SHOWN)
        if chosen.env_id == MAIN_ENV:
            out.print()
            out.print(_DOTS)
    if not after:
        out.print(f"training return: {_training_returns(folder)} (the env has no evaluation items)")
    out.print()
    written = ", ".join(sorted(path.name for path in folder.iterdir()))
    out.print(f"{folder}: {written}", soft_wrap=True)
    if not chosen.run.quiet:
        out.print(f"evaluate it again: llm-marl evaluate {folder}", soft_wrap=True)


def _training_returns(folder: Path) -> str:
    """Mean return in the first and the last tenth of what was logged of training."""
    from learners.tracking import read_metrics

    entries = [entry.values for entry in read_metrics(folder / METRICS_FILE)]
    returns = [values["turn_1/expected_return"] for values in entries if "turn_1/expected_return" in values]
    if not returns:
        return "not logged"
    tenth = max(1, len(returns) // 10)
    return f"{number(mean(returns[:tenth]))} at first, {number(mean(returns[-tenth:]))} at last"

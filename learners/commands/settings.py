"""The options of a training run, and what they stand for: env, learner, models, presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from learners.commands import presets
from learners.commands.errors import UsageError, bad_input
from learners.commands.files import is_plain, read_yaml
from learners.commands.loading import model_options
from learners.commands.options import Option, dataclass_options
from learners.commands.parsing import Parsed, first_look, parse
from learners.commands.targets import env_of_team, env_options, find_env, open_sections
from learners.registry import list_learners, trainer_class
from learners.run_folder import CONFIG_FILE
from llm_envs.env import BranchingEnv
from llm_envs.registry import EnvSpec
from llm_envs.task import has_length

MAIN_ENV, MAIN_LEARNER, MAIN_MODEL = "length-ratio-v0", "magrpo", "tiny"
"""What runs when nothing is said."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run.

    Attributes:
        model: one model for all agents: a hub name, a folder, `tiny` (built on this machine in seconds) or `tiny-random`. Each
            agent trains a copy.
        agents: a model for each agent instead, in the env's order.
        tokenizer: one for all agents or one for each; by default each model's own.
        critic_model: one model for all critics of an actor-critic learner; by default `model`.
        preset: `tiny` gives the learner options with which the built-in model learns on a CPU, `none` leaves the learner's own
            defaults; `auto` is `tiny` for a team of tiny models. What you set yourself always wins.
        output_dir: folder of the run; `runs/<env>-<learner>-<time>` by default.
        record: also write every env step to `stream.jsonl`.
        plot: draw the curves to `plot.png` at the end.
        checkpoint_dir: where checkpoints go; `checkpoints` in the run's folder by default.
        checkpoint_interval: items between checkpoints; at the end of every epoch by default, 0 for none at all.
        checkpoint_total_limit: newest checkpoints that are kept; none keeps all.
        resume_from_checkpoint: a checkpoint, `latest` for the newest in `checkpoint_dir`, or a run's folder, which then gives the
            config and the newest checkpoint.
        reward_workers: threads that compute the rewards of different states at once, for slow rewards.
        tensorboard: also log to `tensorboard` in the run's folder.
        threads: threads of torch on a CPU; 0 leaves torch's own choice. More than one pays for larger models on idle cores only.
        quiet: print the result alone, no progress and no completions.
    """

    model: str = MAIN_MODEL
    agents: Sequence[str] | None = None
    tokenizer: str | Sequence[str] | None = None
    critic_model: str | None = None
    preset: presets.PresetName = "auto"
    output_dir: str | None = None
    record: bool = True
    plot: bool = True
    checkpoint_dir: str | None = None
    checkpoint_interval: int | None = None
    checkpoint_total_limit: int | None = 2
    resume_from_checkpoint: str | None = None
    reward_workers: int | None = None
    tensorboard: bool = False
    threads: int = 1
    quiet: bool = False

    def __post_init__(self) -> None:
        for option, least in (("checkpoint_interval", 0), ("checkpoint_total_limit", 1), ("reward_workers", 1), ("threads", 0)):
            value = getattr(self, option)
            if value is not None and value < least:
                raise ValueError(f"--{option} must be at least {least}, got {value}")

    @property
    def models(self) -> Sequence[str]:
        """Every model that is named."""
        return [self.model] if self.agents is None else self.agents


@dataclass(frozen=True, kw_only=True)
class WandbOptions:
    """Options of Weights & Biases: any of them switches it on.

    Attributes:
        project: to log to.
        entity: user or team that owns it.
        name: of the run.
        tags: of the run.
        dir: folder for its files.
        id: of the run.
        resume: what happens if the id exists: `allow`, `must`, `never`.
        mode: `online`, `offline` (written to `dir`, sent later) or `disabled`.
        group: of runs.
        config_sections: options shown with the run, by section; by default all of this command.
    """

    project: str | None = None
    entity: str | None = None
    name: str | None = None
    tags: Sequence[str] | None = None
    dir: str | None = None
    id: str | None = None
    resume: str | None = None
    mode: str | None = None
    group: str | None = None
    config_sections: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TrainSettings:
    """A run, before anything of it is built but the env.

    Attributes:
        parsed: values of all options, presets filled in.
        options: all options that there are.
        run: the run's own.
        env: the environment.
        trainer: class of the trainer.
        config: of the learner.
        preset: values that the preset gave, by name.
    """

    parsed: Parsed
    options: Sequence[Option]
    run: RunOptions
    env: BranchingEnv
    trainer: Any
    config: Any
    preset: Mapping[str, Any] = field(default_factory=dict)

    @property
    def env_id(self) -> str:
        """Id of the env, or `module:factory`."""
        return self.parsed.values["env.name"]

    @property
    def effective(self) -> dict[str, Any]:
        """Values that give this run again, whatever defaults and presets become."""
        fixed: dict[str, Any] = {"preset": "none", "resume_from_checkpoint": None}
        return {
            name: fixed.get(name, value)
            for name, value in self.parsed.values.items()
            # An env's default may be any object; whoever registered it gives it again.
            if name != "config" and (name in self.parsed.given or is_plain(value))
        }

    def wandb_config(self, sections: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a trainer takes as `wandb_config`; None if nothing of it was given."""
        given = {name: value for name, value in self.parsed.section("wandb").items() if value is not None}
        return {"config_sections": sections, **given} if given else None


def train_options(env: EnvSpec, trainer: Any) -> list[Option]:
    """Every option of `train` for an env and a learner."""
    learners = ", ".join(list_learners())
    chosen = [
        Option(
            "env.name",
            str,
            MAIN_ENV,
            "the environment: an id (`llm-marl envs` lists them), module:factory or path/to/file.py:factory.",
        ),
        Option("learner.name", str, MAIN_LEARNER, f"how the team is trained: {learners}, or one that another package offers."),
        Option("config", str | None, None, "a YAML file of options; those on the command line win."),
    ]
    return [
        *chosen,
        *dataclass_options(RunOptions),
        *env_options(env),
        *dataclass_options(trainer.learner_class.config_class, "learner."),
        *model_options(),
        *dataclass_options(WandbOptions, "wandb."),
    ]


def chosen_parts(argv: Sequence[str]) -> tuple[EnvSpec, Any, dict[str, Any]]:
    """Env, trainer class and YAML config that a command line names: what decides which other options there are.

    Raises:
        UsageError: if one of them cannot be found.
    """
    given = first_look(argv, ("env", "learner", "config", "resume_from_checkpoint"))
    config_path, folder = given.get("config"), given.get("resume_from_checkpoint")
    if config_path is None and folder is not None and (Path(folder).expanduser() / CONFIG_FILE).is_file():
        config_path = str(Path(folder) / CONFIG_FILE)
    config = {} if config_path is None else read_yaml(config_path)
    env = find_env(given.get("env") or _name_in(config, "env") or MAIN_ENV)
    with bad_input():
        trainer = trainer_class(given.get("learner") or _name_in(config, "learner") or MAIN_LEARNER)
    return env, trainer, config


def settings(argv: Sequence[str]) -> TrainSettings:
    """The run that a command line describes, its env built and every option checked.

    Raises:
        UsageError: naming what is wrong.
    """
    spec, trainer, file = chosen_parts(argv)
    options = train_options(spec, trainer)
    parsed = parse(options, argv, file, open_sections=open_sections(spec))
    run = parsed.built(RunOptions)
    env = env_of_team(spec, parsed.section("env"))
    preset = _preset(run, env, parsed)
    parsed = parsed.with_defaults({f"learner.{name}": value for name, value in preset.items()})
    if run.critic_model is not None and "learner.critic_type" not in parsed.values:
        raise UsageError(f"--critic_model {run.critic_model} cannot apply: {parsed.values['learner.name']} has no critic")
    with bad_input("--learner."):
        config = trainer.learner_class.config_class(**parsed.section("learner"))
    return TrainSettings(parsed, options, run, env, trainer, config, preset)


def _preset(run: RunOptions, env: BranchingEnv, parsed: Parsed) -> dict[str, Any]:
    """The preset's values that the user has not set and the learner knows; of a mapping the entries."""
    options = parsed.section("learner")
    given = {name for name in options if f"learner.{name}" in parsed.given}
    count = len(env.items) if has_length(env.items) else None
    job = presets.Job(
        num_items=count, num_turns=env.num_turns, options=options, given=given, backend=lambda: _backend_options(options)
    )
    values = presets.values(presets.choose(run.preset, run.models), job)
    return {
        name: {entry: own for entry, own in value.items() if entry not in options[name]} if isinstance(value, dict) else value
        for name, value in values.items()
        if name in options and (name not in given or isinstance(value, dict))
    }


def _backend_options(options: Mapping[str, Any]) -> frozenset[str]:
    """Names of the options of the learner that `rl_algorithm` names."""
    from learners.preference.marlhf import backend_trainer

    with bad_input("--learner."):
        config = backend_trainer(options["rl_algorithm"]).learner_class.config_class
    return frozenset(entry.name for entry in fields(config))


def _name_in(config: Mapping[str, Any], section: str) -> str | None:
    """The name in a section of YAML: `env: split-v0`, or `env: {name: split-v0}`."""
    value = config.get(section)
    name = value.get("name") if isinstance(value, Mapping) else value
    if name is not None and not isinstance(name, str):
        raise UsageError(f"--config: {section} must be a name, or options with a name, got {value!r}")
    return name

"""Where metrics go: a file always, Weights & Biases and TensorBoard if wanted. The x axis is `env_step` everywhere."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from learners.compatibility import redact
from learners.logs import drop_cut_line, read_lines
from llm_envs.types import Metrics

if TYPE_CHECKING:
    import wandb

EVALUATION_GROUP = "eval"
"""The group of evaluations. They are logged whenever they are made: `eval_interval` is their gate."""

PASS_GROUP = "pass"
"""The group of what a whole pass over data gave. It is logged once a pass: training on stored data takes no env steps."""


class Sink(Protocol):
    """A place that metrics are logged to."""

    def log(self, env_step: int, values: Mapping[str, float]) -> None:
        """Store values at a point of the x axis. The same point may come again, with other names."""
        ...

    def close(self) -> None:
        """Finish what is open. A later `log` may open it again."""
        ...


class LoggingGate:
    """Thins metrics: two entries of one group are at least `logging_steps` env steps apart.

    Each group has its own gate, so what one lets pass does not hold back another. The first entry of a group always passes, and
    so do evaluations and whole passes. `logging_steps=1` lets everything pass, also entries of the same env step.
    """

    def __init__(self, logging_steps: int) -> None:
        if type(logging_steps) is not int or logging_steps < 1:
            raise ValueError(f"logging_steps must be a positive integer, got {logging_steps!r}")
        self.logging_steps = logging_steps
        self._last: dict[str, int] = {}

    def admits(self, metrics: Metrics) -> bool:
        """Whether the entry is to be logged; if so, the next of its group is measured from it."""
        last = self._last.get(metrics.group)
        thinned = last is not None and self.logging_steps > 1 and metrics.env_step - last < self.logging_steps
        if thinned and metrics.group not in (EVALUATION_GROUP, PASS_GROUP):
            return False
        self._last[metrics.group] = metrics.env_step
        return True

    def state_dict(self) -> dict[str, dict[str, int]]:
        """The env step of each group's last entry that passed. `logging_steps` may change on resume."""
        return {"last": dict(self._last)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Go on from `state_dict`."""
        self._last = dict(state["last"])


class Tracker:
    """Sends metrics through a gate to sinks. A sink that fails is reported once and left out from then on; training goes on."""

    def __init__(self, sinks: Sequence[Sink], gate: LoggingGate) -> None:
        self._sinks = list(sinks)
        self._gate = gate

    def log(self, metrics: Metrics) -> None:
        """Log an entry, if the gate lets it pass."""
        if self._gate.admits(metrics):
            for sink in list(self._sinks):
                self._guard(sink, lambda sink=sink: sink.log(metrics.env_step, metrics.values))

    def close(self) -> None:
        """Close every sink that still works."""
        for sink in list(self._sinks):
            self._guard(sink, sink.close)

    def _guard(self, sink: Sink, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a full disk or a server that is away must not end a run of days
            self._sinks.remove(sink)
            warnings.warn(f"logging to {type(sink).__name__} failed and has stopped, training goes on: {error!r}", stacklevel=3)
            with contextlib.suppress(Exception):  # it has been reported
                sink.close()


class JsonlSink:
    """One JSON object a line: `{"env_step": 64, "turn_1/reward_mean": 0.5}`. A line is out of this process when `log` returns.

    JSON has no nan and inf: they are the texts "NaN", "Infinity" and "-Infinity", which `float` understands. An existing file is
    continued, without its last line if that was cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        drop_cut_line(self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def log(self, env_step: int, values: Mapping[str, float]) -> None:
        """Append a line."""
        if "env_step" in values:
            raise ValueError("no metric can be called env_step: that is the x axis")
        line = {"env_step": env_step, **{name: _json_number(value) for name, value in values.items()}}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _json_number(value: float) -> float | int | str:
    if type(value) is int:
        return value
    number = float(value)  # numpy and torch scalars too
    if math.isnan(number):
        return "NaN"
    return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")


def read_metrics(path: str | Path) -> list[Metrics]:
    """The entries of a `metrics.jsonl`, in order; `group` is not stored. A last line that was cut off is left out.

    Raises:
        ValueError: a line is not an entry of metrics.
    """
    entries = []
    for line in read_lines(path):
        if not isinstance(line.get("env_step"), int):
            raise ValueError(f"{path} is not a file of metrics: a line without env_step: {line!r:.200}")
        values = {name: float(value) for name, value in line.items() if name != "env_step"}
        entries.append(Metrics(line["env_step"], values))
    return entries


class WandbSink:
    """A Weights & Biases run, opened with the first entry. Runs opened by others are neither used nor finished.

    The run's id is settled at once, so that a checkpoint can hold it; `resume` makes the sink continue that run. Entries are logged
    with `env_step` as the x axis of every chart, so their order is free.

    Args:
        config: any of `KEYS`. `name` and `run_name` are the same; `config_sections` maps names of sections to options, all shown as
            the run's config, with `dataset.name` and `dataset.type` also as `dataset_name` and `dataset_type`; the others go to
            `wandb.init`.
        run_config: options of the run, shown beside the sections. Secrets are masked in both.

    Raises:
        ValueError: an unknown key or a value of the wrong kind.
        ImportError: wandb is not installed.
    """

    KEYS = ("project", "entity", "name", "run_name", "tags", "dir", "id", "resume", "config_sections", "mode", "group")

    def __init__(self, config: Mapping[str, object], run_config: Mapping[str, object] | None = None) -> None:
        self._config = _checked_wandb_config(config, self.KEYS)
        self._run_config = _wandb_run_config(self._config.get("config_sections"), run_config or {})
        self._wandb = _import_wandb()
        self._identity = {
            "id": self._config.get("id") or secrets.token_hex(4),
            "project": self._config.get("project"),
            "entity": self._config.get("entity"),
        }
        self._resume = self._config.get("resume")
        self._run: wandb.Run | None = None

    def identity(self) -> dict[str, object]:
        """`id`, `project` and `entity` of the run: what `resume` needs."""
        return dict(self._identity)

    def resume(self, identity: Mapping[str, object]) -> None:
        """Continue the run of an `identity`. What the config says itself about id, project, entity and resume goes first.

        Raises:
            RuntimeError: the sink has opened a run already.
        """
        if self._run is not None:
            raise RuntimeError(f"W&B run {self._run.id} is open already, so run {identity['id']} cannot be resumed")
        self._identity = {key: self._config.get(key) or identity[key] for key in self._identity}
        self._resume = self._config.get("resume", "allow")

    def log(self, env_step: int, values: Mapping[str, float]) -> None:
        """Log a row."""
        if self._run is None:
            self._run = self._open()
        self._run.log({"env_step": env_step, **values})

    def close(self) -> None:
        """Finish the run, if it was opened. A later `log` continues it."""
        if self._run is not None:
            self._run.finish()
            self._run = None
            self.resume(self._identity)

    def _open(self) -> wandb.Run:
        identity, active = self._identity, self._wandb.run
        if active is not None and active.id == identity["id"]:
            raise RuntimeError(f"W&B run {active.id} was opened by another part of this process: finish it or choose another id")
        if self._config.get("dir") is not None:
            Path(os.fspath(self._config["dir"])).mkdir(parents=True, exist_ok=True)
        run = self._wandb.init(
            **identity,
            **{key: self._config[key] for key in ("tags", "dir", "mode", "group") if key in self._config},
            name=self._config.get("name") or self._config.get("run_name"),
            resume=self._resume,
            config=self._run_config,
            reinit="create_new",  # leaves a run that someone else has opened as it is
        )
        run.define_metric("env_step")
        run.define_metric("*", step_metric="env_step")
        return run


def _checked_wandb_config(config: Mapping[str, object], known: Sequence[str]) -> dict:
    unknown = [key for key in config if key not in known]
    if unknown:
        raise ValueError(f"wandb_config has the unknown keys {unknown}; known are {list(known)}")
    if config.get("name") and config.get("run_name") and config["name"] != config["run_name"]:
        raise ValueError(f"wandb_config has two names: name={config['name']!r} and run_name={config['run_name']!r}")
    tags = config.get("tags")
    if tags is not None and not (isinstance(tags, list | tuple) and all(isinstance(tag, str) for tag in tags)):
        raise ValueError(f"wandb_config['tags'] must be a list of texts, got {tags!r}")
    sections = config.get("config_sections")
    if sections is not None and not isinstance(sections, Mapping):
        raise ValueError(f"wandb_config['config_sections'] must map names to options, got {sections!r}")
    return {key: value for key, value in config.items() if value is not None}


def _wandb_run_config(sections: Mapping[str, object] | None, run_config: Mapping[str, object]) -> dict:
    merged = {**run_config, **(sections or {})}
    dataset = merged.get("dataset")
    if isinstance(dataset, Mapping):
        merged.update({f"dataset_{key}": dataset[key] for key in ("name", "type") if dataset.get(key)})
    return redact(merged)


def _import_wandb():
    try:
        import wandb
    except ImportError as error:
        raise ImportError("logging to Weights & Biases needs wandb: pip install 'llm-envs[wandb]'") from error
    return wandb


class TensorBoardSink:
    """Scalars for TensorBoard. The event file is begun with the first entry.

    Points of later env steps that are in the folder by then were logged by an interrupted run after its checkpoint: they are
    hidden, since the resumed run logs them again.

    Args:
        directory: of the event files.

    Raises:
        ImportError: tensorboard is not installed.
    """

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("logging to TensorBoard needs tensorboard: pip install 'llm-envs[tensorboard]'") from error
        self._directory = Path(directory)
        self._writer_class = SummaryWriter
        self._writer: SummaryWriter | None = None

    def log(self, env_step: int, values: Mapping[str, float]) -> None:
        """Add a point to the curve of every name."""
        if self._writer is None:
            self._writer = self._writer_class(str(self._directory), purge_step=env_step + 1)
        for name, value in values.items():
            self._writer.add_scalar(name, value, env_step)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

"""The loop of a run, for any learner: phases of training → evaluate → log → checkpoint. It knows no algorithm and no task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from learners import credit
from learners.checkpoint import CheckpointStore
from learners.compatibility import check_compatible, fingerprint, redact
from learners.config import TrainingConfig, require_int
from learners.evaluation import EvalAggregator, EvalLogger, Evaluator, MetricsCallback
from learners.interrupts import shielded
from learners.learner import Trainee
from learners.logs import append_position, check_position, truncate_to
from learners.phases import Phase, Sampler, rollouts_of
from learners.policy import HFPolicy
from learners.progress import Progress
from learners.run_folder import METRICS_FILE, STREAM_FILE
from learners.serialization import random_states, restore_random_states
from learners.tracking import EVALUATION_GROUP, JsonlSink, LoggingGate, Sink, Tracker, WandbSink
from llm_envs.env import BranchingEnv
from llm_envs.recording import Recorder
from llm_envs.rollouts import Numbering
from llm_envs.task import has_length
from llm_envs.types import EnvStep, Metrics

LOGS = (METRICS_FILE, STREAM_FILE)
"""Files of a run's folder that grow as it goes on."""


@dataclass
class Position:
    """Where a run is in its data: the next row of which pass of which phase, and whether the phase has been begun."""

    phase: int = 0
    epoch: int = 0
    item: int = 0
    begun: bool = False


class Trainer:
    """Trains a learner's policies on an environment.

    Args:
        env: the environment; its `items` are trained on and its `eval_items` evaluated.
        learner: any `Learner` for the env's agents; with `phases` of its own, any `Trainee`.
        config: options of the run.
        name: of the learner, in the run's folder and checkpoints; its class's by default.
        phases: makes the parts of the run from the sampler it is given; None is one: rollouts of the learner.
        output_dir: folder of the run, `metrics.jsonl` first of all; `runs/<learner>-<time>` by default, made when training starts.
        record: also write every env step to `stream.jsonl`.
        wandb_config: log to Weights & Biases as well; keys in `learners.tracking.WandbSink`.
        sinks: further places to log to.
        eval_logger: makes a record of each evaluated item; needs `eval_aggregator`.
        eval_aggregator: makes metrics of the records.
        metrics_callback: makes metrics of an episode's rollouts, in training and evaluation.
        progress: show a progress bar.
        executor: rewards of different states are computed on it at once.
        policy_executor: agents with devices of their own generate on it at once.

    Raises:
        ValueError: if the parts do not fit together.
    """

    def __init__(
        self,
        env: BranchingEnv,
        learner: Trainee,
        config: TrainingConfig,
        *,
        name: str | None = None,
        phases: Callable[[Sampler], Sequence[Phase]] | None = None,
        output_dir: str | Path | None = None,
        record: bool = False,
        wandb_config: Mapping[str, Any] | None = None,
        sinks: Sequence[Sink] = (),
        eval_logger: EvalLogger | None = None,
        eval_aggregator: EvalAggregator | None = None,
        metrics_callback: MetricsCallback | None = None,
        progress: bool = True,
        executor: Executor | None = None,
        policy_executor: Executor | None = None,
    ) -> None:
        if list(learner.policies) != list(env.possible_agents):
            raise ValueError(f"the env has the agents {env.possible_agents}, the learner policies for {list(learner.policies)}")
        if config.shuffle and not has_length(env.items):
            raise ValueError("shuffle=True needs items with a length; shuffle the iterable itself")
        self.env = env
        self.learner = learner
        self.config = config
        self._name = type(learner).__name__ if name is None else name
        self._run_id = uuid4().hex
        self._own_folder = output_dir is not None
        self.output_dir = Path(output_dir).expanduser() if output_dir is not None else _default_folder(self._name, self._run_id)
        self.numbering = Numbering()
        self.position = Position()
        self._record = record
        self._evaluator = Evaluator(
            env, config, eval_logger=eval_logger, eval_aggregator=eval_aggregator, metrics_callback=metrics_callback
        )
        self._progress = progress
        sampler = Sampler(env, config, executor=executor, policy_executor=policy_executor)
        self.phases: list[Phase] = list(rollouts_of(learner, sampler, config) if phases is None else phases(sampler))
        self._wandb = WandbSink(wandb_config, asdict(config)) if wandb_config is not None else None
        self._gate = LoggingGate(config.logging_steps)
        self._more_sinks = list(sinks)
        self._tracker: Tracker | None = None
        self._recorder: Recorder | None = None
        self._resumed_logs: Mapping[str, Any] | None = None
        self._has_logged = False

    # ---- the run ----

    def train(
        self,
        resume_from_checkpoint: str | Path | None = None,
        checkpoint_dir: str | Path | None = None,
        checkpoint_interval: int | None = None,
        checkpoint_total_limit: int | None = None,
        evaluate_at_end: bool = False,
    ) -> None:
        """Train for `num_train_epochs` epochs in all, going on from a checkpoint if one is given.

        Args:
            resume_from_checkpoint: a checkpoint's folder, or "latest" for the newest complete one in `checkpoint_dir`.
            checkpoint_dir: where checkpoints go; None saves none.
            checkpoint_interval: items between checkpoints, each after the items collected together with the last of them; None
                saves at the end of every epoch. The end of the run is always saved.
            checkpoint_total_limit: how many of this run's are kept; None keeps all.
            evaluate_at_end: evaluate and log once more when training is over: the schedule evaluates before items, not after.

        Raises:
            ValueError: for an option that cannot be, or a checkpoint of another run; before anything is done.
        """
        require_int("checkpoint_interval", checkpoint_interval, 1, optional=True)
        require_int("checkpoint_total_limit", checkpoint_total_limit, 1, optional=True)
        if checkpoint_dir is None and (checkpoint_interval, checkpoint_total_limit) != (None, None):
            raise ValueError("checkpoint_interval and checkpoint_total_limit need a checkpoint_dir")
        store = None if checkpoint_dir is None else CheckpointStore(Path(checkpoint_dir).expanduser(), checkpoint_total_limit)
        if resume_from_checkpoint is not None:
            self._resume(resume_from_checkpoint, store)
        else:
            self._require_new_folder()
            self.position = Position()
        self._open_logs()
        try:
            with Progress(None, enabled=self._progress) as progress:
                self._run_phases(progress, store, checkpoint_interval)
                values = self.evaluate() if evaluate_at_end else {}
                if values:
                    self._log([Metrics(self.numbering.env_step, values, group=EVALUATION_GROUP)])
                    progress.show_evaluation(values)
        finally:
            self._close_logs()

    def evaluate(self, num_eval_samples: int | None = None) -> dict[str, float]:
        """Metrics of the team on the first evaluation items, by names with `eval/`; {} without evaluation items.

        Sampling has streams of its own, so evaluating changes nothing about training.

        Args:
            num_eval_samples: how many items; `eval_num_samples` by default.
        """
        samples = self.config.eval_num_samples if num_eval_samples is None else num_eval_samples
        require_int("num_eval_samples", samples, 0)
        return self._evaluator.evaluate(self.learner.policies, samples)

    @property
    def last_evaluation(self) -> list[EnvStep]:
        """The env steps of the latest evaluation; empty before the first."""
        return self._evaluator.last_steps

    def save_model(self, output_dir: str | Path) -> None:
        """Write `agent_<i>/` folders, in the env's order, that `from_pretrained` loads, tokenizers included."""
        for index, policy in enumerate(self.learner.policies.values()):
            if not isinstance(policy, HFPolicy):
                raise TypeError(f"agent {index} acts with a {type(policy).__name__}, which has no model to save")
            policy.save(Path(output_dir).expanduser() / f"agent_{index}")

    # ---- checkpoints ----

    def save_checkpoint(self, checkpoint_dir: str | Path) -> Path:
        """Save everything an exact resume needs into a new folder in `checkpoint_dir`; returns the folder."""
        return self._save(CheckpointStore(Path(checkpoint_dir).expanduser()))

    def load_checkpoint(self, path: str | Path) -> None:
        """Put learner, numbering and position to where a checkpoint was taken. `train(resume_from_checkpoint=)` goes on with it.

        Raises:
            ValueError: if it is of other options, agents or models; nothing is changed then.
        """
        path = Path(path).expanduser()
        self._load(*CheckpointStore(path.parent).load(path))

    def _save(self, store: CheckpointStore) -> Path:
        tree = {
            "learner": self.learner.state_dict(),
            "numbering": asdict(self.numbering),
            "position": asdict(self.position),
            "gate": self._gate.state_dict(),
            "random": random_states(),
            "logs": {name: append_position(self.output_dir / name) for name in LOGS},
        }
        metadata = {
            "run_id": self._run_id,
            "output_dir": str(self.output_dir.resolve()),
            "identity": self._identity(),
            "config": asdict(self.config),  # the store masks secrets
            "wandb": None if self._wandb is None else self._wandb.identity(),
        }
        return store.save(self.numbering.env_step, tree, metadata)

    def _resume(self, source: str | Path, store: CheckpointStore | None) -> None:
        if source == "latest":
            if store is None:
                raise ValueError("resume_from_checkpoint='latest' needs the checkpoint_dir to look in")
            found = store.latest()
            if found is None:
                raise ValueError(f"resume_from_checkpoint='latest': there is no complete checkpoint in {store.directory}")
            source = found
        source = Path(source).expanduser()
        # The store of this run's own checkpoints keeps one that it has loaded.
        tree, metadata = (CheckpointStore(source.parent) if store is None else store).load(source)
        folder = self.output_dir if self._own_folder else Path(metadata["output_dir"])
        logs = {name: position for name, position in tree["logs"].items() if (folder / name).exists()}
        for name, position in logs.items():
            check_position(folder / name, position)
        before, self.output_dir = self.output_dir, folder  # parts of the learner may have files there
        try:
            self._load(tree, metadata)
        except BaseException:
            self.output_dir = before
            raise
        self._resumed_logs = logs

    def _load(self, tree: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        check_compatible(metadata["identity"], self._identity())
        check_compatible(metadata["config"], redact(asdict(self.config)), self.config.may_change())
        position = Position(**tree["position"])
        self._check_position(position)
        self.learner.load_state_dict(tree["learner"])
        self.numbering = Numbering(**tree["numbering"])
        self.position = position
        self._gate.load_state_dict(tree["gate"])
        self._run_id = metadata["run_id"]
        if self._wandb is not None and metadata["wandb"] is not None:
            self._wandb.resume(metadata["wandb"])
        restore_random_states(tree["random"])

    def _check_position(self, position: Position) -> None:
        """Refuse a run that is over before the place that it is to go on from."""
        if position.phase >= len(self.phases):
            raise ValueError(f"the run has {len(self.phases)} phases, the checkpoint is in number {position.phase + 1}")
        phase = self.phases[position.phase]
        if position.epoch > phase.epochs:
            option = f"num_train_epochs={phase.epochs}" if len(self.phases) == 1 else f"{phase.epochs} epochs of {phase.name}"
            raise ValueError(f"{option} is less than the {position.epoch} epochs already done")

    def _identity(self) -> dict[str, Any]:
        """What a resumed run must share with the one that was saved, beside the options."""
        items = self.env.items
        rows = {}
        if has_length(items):
            rows = {"items": len(items), "rows": fingerprint({"first": repr(items[0]), "last": repr(items[-1])})}
        agents = list(self.env.possible_agents)
        return {"learner": self._name, "agents": agents, "num_turns": self.env.num_turns, **rows}

    # ---- phases ----

    def _run_phases(self, progress: Progress, store: CheckpointStore | None, interval: int | None) -> None:
        while True:
            phase = self.phases[self.position.phase]
            if not self.position.begun:
                with shielded():
                    self._log(phase.begin(self.numbering.env_step))
                    self.position.begun = True
            count = phase.num_rows()
            total, before = (None, 0) if count is None else (count * phase.epochs, count * self.position.epoch)
            name = phase.name if len(self.phases) > 1 else ""
            progress.start_phase(name, total, before + self.position.item, unit=phase.unit)
            while self.position.epoch < phase.epochs:
                self._epoch(phase, progress, store, interval)
            if self.position.phase == len(self.phases) - 1:
                return
            self.position = Position(self.position.phase + 1)

    def _epoch(self, phase: Phase, progress: Progress, store: CheckpointStore | None, interval: int | None) -> None:
        with shielded():
            self._log(phase.go_on())
        rows = phase.rows(self.position.epoch, self.position.item)
        while chunk := list(islice(rows, phase.chunk_size())):
            first = self.position.item
            self._train_on(phase, chunk, progress)
            if store is not None and interval is not None and self.position.item // interval > first // interval:
                self._save(store)
        with shielded():
            self._log(phase.end_epoch(self.position.epoch, self.position.item, self.numbering.env_step))
            self.position = Position(self.position.phase, self.position.epoch + 1, begun=True)
        if store is not None and (interval is None or self.position.epoch == phase.epochs):
            self._save(store)

    def _train_on(self, phase: Phase, chunk: Sequence[tuple[int, Any]], progress: Progress) -> None:
        every = self.config.eval_interval if phase.changes_policies else 0
        due = [offset for offset in range(len(chunk)) if every and (self.position.item + offset) % every == 0]
        evaluation = self.evaluate() if due else {}
        before = replace(self.numbering)
        with shielded():  # learner, numbers, position and logs are of one moment, wherever Ctrl-C comes
            try:
                outcome = phase.train(chunk, self.numbering)
            except BaseException:
                self.numbering = before
                raise
            self.position.item += len(chunk)
            steps = outcome.steps
            if evaluation:
                at = [max([before.env_step, *_steps_before(steps, offset)]) for offset in due]
                self._log([Metrics(env_step, evaluation, group=EVALUATION_GROUP) for env_step in at])
                progress.show_evaluation(evaluation)
            if self._recorder is not None:
                self._recorder.write(steps)
            self._log(outcome.metrics)
        callback = self._evaluator.callback_metrics(steps)
        if callback:
            self._log([Metrics(self.numbering.env_step, callback, group="callback")])
        if outcome.failure is not None:
            raise outcome.failure
        progress.advance(len(chunk), env_step=self.numbering.env_step, reward=_mean_reward(steps) if steps else None)

    # ---- logging ----

    def _require_new_folder(self) -> None:
        """Refuse a folder with the logs of another run: two runs in one file could not be told apart."""
        held = [name for name in LOGS if (self.output_dir / name).exists()]
        if held and not self._has_logged:
            raise ValueError(
                f"output_dir {self.output_dir} holds {' and '.join(held)} of an earlier run: "
                "go on with it (resume_from_checkpoint), choose another folder or delete it"
            )

    def _open_logs(self) -> None:
        self.output_dir.mkdir(parents=True, exist_ok=True)
        # What an interrupted run logged after its checkpoint is logged again.
        for name, position in (self._resumed_logs or {}).items():
            truncate_to(self.output_dir / name, position)
        self._resumed_logs, self._has_logged = None, True
        metrics, stream_file = (self.output_dir / name for name in LOGS)
        sinks: list[Sink] = [JsonlSink(metrics), *([self._wandb] if self._wandb is not None else []), *self._more_sinks]
        self._tracker = Tracker(sinks, self._gate)
        self._recorder = Recorder(stream_file) if self._record else None

    def _close_logs(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        if self._tracker is not None:
            self._tracker.close()
        self._recorder = self._tracker = None

    def _log(self, metrics: Sequence[Metrics]) -> None:
        assert self._tracker is not None
        for entry in metrics:
            self._tracker.log(entry)


def _default_folder(name: str, run_id: str) -> Path:
    # The end of the id tells runs apart that start in the same second.
    return Path("runs") / f"{name.lower()}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{run_id[:4]}"


def _steps_before(steps: Sequence[EnvStep], offset: int) -> list[int]:
    """Numbers of the steps of the first so many episodes."""
    return [step.env_step for step in steps if step.episode < steps[0].episode + offset]


def _mean_reward(steps: Sequence[EnvStep]) -> float:
    return credit.mean([reward for step in steps for reward in step.rewards.values()])

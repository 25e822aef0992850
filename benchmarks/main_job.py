"""The main job, `llm-marl train` without options, for several seeds: does it learn, after how many env steps, in what time?

    python benchmarks/main_job.py                 # seeds 0 to 4, every one with the warm start of the tiny model
    python benchmarks/main_job.py --seeds 0 1 --keep-cache
    python benchmarks/main_job.py --env split-v0 --learner marloo

Each seed runs in a process of its own, as a user starts it, imports included. CPU seconds are that process's, user and system; wall
seconds are those of this machine as busy as it is. Needs /proc (Linux). The exit status is 1 if a seed misses the aim.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START, AIM, MOST_SECONDS = 0.6, 0.9, 90.0
"""Evaluation return before training is below the first and after it at least the second, within so many seconds on 2 cores."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Result:
    """One seed.

    Attributes:
        seed: of the run.
        before: evaluation return.
        after: evaluation return.
        env_steps: of the first evaluation that reached the aim; None if none did.
        cpu_to_aim: CPU seconds of the process until then.
        cpu: CPU seconds in all.
        wall: seconds in all.
    """

    seed: int
    before: float
    after: float
    env_steps: int | None
    cpu_to_aim: float | None
    cpu: float
    wall: float

    @property
    def reached(self) -> bool:
        """Whether the seed meets the aim of the main job, the time apart."""
        return self.before < START and self.after >= AIM


def run(seed: int, options: list[str], keep_cache: bool) -> Result:
    """Train with one seed and watch it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        if not keep_cache:
            environment["LLM_MARL_CACHE"] = str(Path(folder) / "cache")
        output = Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "learners.cli",
            "train",
            "--learner.seed",
            str(seed),
            "--output_dir",
            str(output),
            *options,
        ]
        started, cpu_before = time.monotonic(), _finished_children()
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            reached = cpu_to_aim = None
            while process.poll() is None:
                time.sleep(0.1)
                found = _first_at_aim(output)
                if reached is None and found is not None and (cpu_to_aim := _cpu_seconds(process.pid)) is not None:
                    reached = found
            errors = process.stderr.read() if process.stderr is not None else ""
        wall = time.monotonic() - started
        if process.returncode:
            raise SystemExit(f"seed {seed} failed: {errors.strip().splitlines()[-1]}")
        returns = [value for _, value in _evaluations(output)]
    return Result(seed, returns[0], returns[-1], reached, cpu_to_aim, _finished_children() - cpu_before, wall)


def _evaluations(output: Path) -> Iterator[tuple[int, float]]:
    path = output / "metrics.jsonl"
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        values = json.loads(line) if line.endswith("\n") else {}
        if "eval/turn_1/expected_return" in values:
            yield values["env_step"], values["eval/turn_1/expected_return"]


def _first_at_aim(output: Path) -> int | None:
    return next((env_step for env_step, value in _evaluations(output) if value >= AIM), None)


def _cpu_seconds(pid: int) -> float | None:
    """User and system time of a running process; None if it has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _finished_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def table(results: list[Result]) -> str:
    """All seeds, and their medians."""
    lines = [f"{'seed':>6} {'before':>7} {'after':>7} {'env steps to 0.9':>17} {'CPU s to 0.9':>13} {'CPU s':>7} {'wall s':>7}"]
    lines += [_line(str(r.seed), r.before, r.after, r.env_steps, r.cpu_to_aim, r.cpu, r.wall) for r in results]
    steps = [r.env_steps for r in results if r.env_steps is not None]
    seconds = [r.cpu_to_aim for r in results if r.cpu_to_aim is not None]
    before, after, cpu, wall = (
        statistics.median(values) for values in zip(*((r.before, r.after, r.cpu, r.wall) for r in results), strict=True)
    )
    all_reached = len(steps) == len(results)
    lines.append(
        _line(
            "median",
            before,
            after,
            round(statistics.median(steps)) if all_reached else None,
            statistics.median(seconds) if all_reached else None,
            cpu,
            wall,
        )
    )
    return "\n".join(lines)


def _line(name: str, before: float, after: float, env_steps: int | None, cpu_to_aim: float | None, cpu: float, wall: float) -> str:
    steps = "never" if env_steps is None else f"{env_steps:,}"
    seconds = "never" if cpu_to_aim is None else f"{cpu_to_aim:.1f}"
    return f"{name:>6} {before:7.3f} {after:7.3f} {steps:>17} {seconds:>13} {cpu:7.1f} {wall:7.1f}"


def main() -> int:
    """0 if every seed meets the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--keep-cache", action="store_true", help="use the tiny model that is stored on this machine")
    chosen, options = parser.parse_known_args()
    results: list[Result] = []
    for seed in chosen.seeds:
        results.append(run(seed, options, chosen.keep_cache))
        print(f"seed {seed}: evaluation {results[-1].before:.3f} -> {results[-1].after:.3f}", file=sys.stderr, flush=True)
    print(table(results))
    reached = sum(result.reached for result in results)
    slow = sum(result.wall > MOST_SECONDS for result in results)
    print(f"{reached} of {len(results)} seeds go from below {START} to at least {AIM}; {slow} took more than {MOST_SECONDS:.0f} s")
    return 0 if reached == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Our side of the speed benchmark: the trainers of `learners`. Prints a JSON line for each case.

python benchmarks/ours.py --cases k4
python benchmarks/ours.py --cases k4 --profile     # where the time goes
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from workload import (
    Case,
    Counted,
    add_case_options,
    agents_of,
    cases_from_arguments,
    critics_of,
    feedback,
    items_of,
    options_of,
    run_cases,
    tokenizer_of,
)

from learners import trainer_class


def prepare(case: Case, reward: Counted) -> tuple[Callable[[], None], Callable[[], int]]:
    """A trainer for the case: its `train`, and its env steps."""
    folder = tempfile.TemporaryDirectory()
    kind = trainer_class(case.learner)
    trainer = kind(
        agents=agents_of(case),
        num_agents=2,
        tokenizer=tokenizer_of(case),
        train_dataset=items_of(case),
        reward_func=reward,
        external_transition=feedback if case.turns > 1 else None,
        args=kind.learner_class.config_class(**options_of(case, Path(folder.name))),
        output_dir=Path(folder.name) / "run",
        progress=False,
        **({"critics": critics_of(case)} if case.learner in ("maac", "iac") else {}),
    )

    def train() -> None:
        trainer.train()
        folder.cleanup()

    return train, lambda: trainer.numbering.env_step


def profile(cases: list[Case], lines: int) -> None:
    """Print where the time of each case goes: functions by the time spent in themselves, callees left out."""
    torch.set_num_threads(1)
    for case in cases:
        prepare(case, Counted())[0]()
        train, _ = prepare(case, Counted())
        profiler = cProfile.Profile()
        profiler.runcall(train)
        print(f"== {case}")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_case_options(parser)
    parser.add_argument("--profile", nargs="?", type=int, const=30, metavar="LINES", help="profile in place of measuring")
    arguments = parser.parse_args()
    if arguments.profile is None:
        run_cases(cases_from_arguments(arguments), prepare)
    else:
        profile(cases_from_arguments(arguments), arguments.profile)

"""The peer's side of the speed benchmark: comlrl 1.4.3, run in an environment of its own. Prints a JSON line for each case.

python -m venv .peer && .peer/bin/pip install torch==2.13.0 comlrl==1.4.3
.peer/bin/python benchmarks/peer.py --cases k4
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from comlrl.trainers.actor_critic import IACConfig, IACTrainer, MAACConfig, MAACTrainer
from comlrl.trainers.preference import MADPOConfig, MADPOIterConfig, MADPOIterTrainer, MADPOTrainer, MARLHFConfig, MARLHFTrainer
from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer
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

TRAINERS = {
    "magrpo": (MAGRPOTrainer, MAGRPOConfig),
    "maac": (MAACTrainer, MAACConfig),
    "iac": (IACTrainer, IACConfig),
    "madpo": (MADPOTrainer, MADPOConfig),
    "marlhf": (MARLHFTrainer, MARLHFConfig),
    "madpo-iter": (MADPOIterTrainer, MADPOIterConfig),
}


def prepare(case: Case, reward: Counted) -> tuple[Callable[[], None], Callable[[], int]]:
    """A trainer for the case: its `train`, and its env steps."""

    # comlrl reads the signature of a function, not of an object that can be called.
    def reward_func(first: list[str], second: list[str]) -> list[float]:
        return reward(first, second)

    folder = tempfile.TemporaryDirectory()
    trainer_class, config_class = TRAINERS[case.learner]
    trainer = trainer_class(
        agents=agents_of(case),
        tokenizer=tokenizer_of(case),
        train_dataset=items_of(case),
        reward_func=reward_func,
        external_transition=feedback,
        args=config_class(**options_of(case, Path(folder.name))),
        **({"critics": critics_of(case)} if case.learner in ("maac", "iac") else {"num_agents": 2}),
    )
    trainer.verbose = False  # no progress bar

    def train() -> None:
        trainer.train()
        folder.cleanup()

    # Of a preference learner it counts pairs that were trained on, not responses that were judged.
    return train, lambda: case.expected_env_steps if case.is_preference else trainer.env_step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_case_options(parser)
    run_cases(cases_from_arguments(parser.parse_args()), prepare)

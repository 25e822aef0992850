"""Do actor-critic learners learn: MAAC and IAC beside MAGRPO at equal env steps, on the built-in tiny model.

    python benchmarks/actor_critic.py                        # two tasks, four variants and MAGRPO, three seeds
    python benchmarks/actor_critic.py --tasks matching-v0 --seeds 0

Prints the evaluation return before and after, the least over the seeds, and the env steps. One thread.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from pathlib import Path

import torch
from tiny_team import TINY_TEAM

import llm_envs
from learners import IACTrainer, MAACTrainer, MAGRPOTrainer, Trainer

SLOW_CRITIC = {"critic_learning_rate": 1e-5, "value_head_learning_rate": 1e-4}
VARIANTS = {
    "magrpo": (MAGRPOTrainer, {}),
    "maac-v": (MAACTrainer, {"critic_type": "v"}),
    # Q is its own baseline: what it has learned is no news any more. So it learns slowly here, little more than the mean, and
    # advantages keep their size: once a team agrees every time, nothing but noise is left to normalise.
    "maac-q": (MAACTrainer, {"critic_type": "q", **SLOW_CRITIC, "advantage_normalization": False}),
    "iac": (IACTrainer, {"use_separate_critic": True}),
    "iac-shared": (IACTrainer, {"use_separate_critic": False}),
}
TASKS = {"length-ratio-v0": 1, "matching-v0": 2}
"""Environments and their turns."""
ENV_STEPS = 3072
ACTOR_CRITIC = {"rollout_buffer_size": 32, "critic_learning_rate": 1e-3, "value_head_learning_rate": 1e-2}


def trainer_of(task: str, variant: str, seed: int, folder: Path) -> Trainer:
    """A run of about `ENV_STEPS` env steps; the actors' options are the same for every learner."""
    trainer_class, options = VARIANTS[variant]
    turns = TASKS[task]
    env = llm_envs.make(task, num_turns=turns)
    tree = variant == "magrpo"
    generations = 8 if turns == 1 else 4 if tree else 1
    most_steps_an_item = sum(generations**turn for turn in range(1, turns + 1)) if tree else generations * turns
    config = trainer_class.learner_class.config_class(
        agent_learning_rate=5e-4,
        **TINY_TEAM,
        num_generations=generations,
        num_train_epochs=max(1, round(ENV_STEPS / most_steps_an_item / len(env.items))),
        seed=seed,
        **({"rollout_buffer_size": 4} if tree else {**ACTOR_CRITIC, **options}),
    )
    return trainer_class(env=env, agent_model="tiny", args=config, output_dir=folder, progress=False)


def measure(task: str, variant: str, seed: int) -> tuple[float, float, int]:
    """Evaluation return before and after, and env steps."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(task, variant, seed, Path(folder) / "run")
        before = trainer.evaluate()["eval/turn_1/expected_return"]
        trainer.train()
        return before, trainer.evaluate()["eval/turn_1/expected_return"], trainer.numbering.env_step


def main() -> None:
    """Print a line for each task and variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print(f"{'task':>16}{'variant':>12}{'before':>8}{'after':>8}{'least':>8}{'env steps':>11}", flush=True)
    for task in arguments.tasks:
        for variant in arguments.variants:
            rows = [measure(task, variant, seed) for seed in arguments.seeds]
            before, after = (statistics.median(column) for column in list(zip(*rows, strict=True))[:2])
            least = min(row[1] for row in rows)
            steps = statistics.median(row[2] for row in rows)
            print(f"{task:>16}{variant:>12}{before:>8.3f}{after:>8.3f}{least:>8.3f}{steps:>11.0f}", flush=True)


if __name__ == "__main__":
    main()

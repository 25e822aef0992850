"""Do preference learners learn: MADPO and MARLHF, once and in rounds, on `length-ratio-v0` with the built-in tiny model.

    python benchmarks/preference.py                        # seven variants, three seeds
    python benchmarks/preference.py --variants madpo --seeds 0

Prints the evaluation return before and after, the least gain over the seeds, env steps, and the least accuracy of the last reward
model on pairs it was not fitted to. `-long` gives a one-shot form as many env steps as the iterative one, by more candidates for
MADPO and by more epochs for MARLHF. One thread.
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
from learners import MADPOIterTrainer, MADPOTrainer, MARLHFIterTrainer, MARLHFTrainer, Trainer
from learners.tracking import read_metrics

FIT = {"agent_learning_rate": 1e-4, "dpo_beta": 0.1, "train_batch_size": 16, "preference_pairs_per_sample": 4}
REINFORCE = {
    "agent_learning_rate": 5e-4,
    "num_generations": 8,
    "rollout_buffer_size": 4,
    "reward_learning_rate": 1e-3,
    "reward_train_batch_size": 16,
}
# Without it the team finds what the model rewards by mistake.
KL = {"reference_kl_enabled": True, "reference_kl_coef": 0.03}
ACTOR_CRITIC = {
    "rl_algorithm": "maac",
    "rollout_buffer_size": 32,
    "critic_learning_rate": 1e-3,
    "rl_options": {**KL, "value_head_learning_rate": 1e-2},
}
ONCE = {**REINFORCE, "preference_num_candidates": 16}
VARIANTS = {
    "madpo": (MADPOTrainer, {**FIT, "num_train_epochs": 1, "preference_num_candidates": 16}),
    "madpo-long": (MADPOTrainer, {**FIT, "num_train_epochs": 1, "preference_num_candidates": 64}),
    # In a round team and comparator draw 8 each.
    "madpo-iter": (
        MADPOIterTrainer,
        {**FIT, "num_iterations": 4, "preference_num_candidates": 8, "preference_replay_mode": "all_history"},
    ),
    "marlhf": (MARLHFTrainer, {**ONCE, "rl_options": KL, "num_train_epochs": 4}),
    "marlhf-long": (MARLHFTrainer, {**ONCE, "rl_options": KL, "num_train_epochs": 7}),
    "marlhf-maac": (MARLHFTrainer, {**ONCE, **ACTOR_CRITIC, "num_train_epochs": 3}),
    "marlhf-iter": (
        MARLHFIterTrainer,
        {
            **REINFORCE,
            "rl_options": KL,
            "num_iterations": 3,
            "num_train_epochs": 1,
            "reward_num_train_epochs": 3,
            "preference_num_candidates": 8,
            "pair_selection": "reward_gap",
            "preference_replay_mode": "all_history",
            "preference_replay_sample_size": 1024,
        },
    ),
}


def trainer_of(variant: str, seed: int, folder: Path) -> Trainer:
    """A run; how the actors draw is the same for all."""
    trainer_class, options = VARIANTS[variant]
    env = llm_envs.make("length-ratio-v0")
    config = trainer_class.learner_class.config_class(**TINY_TEAM, seed=seed, **options)
    return trainer_class(env=env, agent_model="tiny", args=config, output_dir=folder, progress=False)


def measure(variant: str, seed: int) -> tuple[float, float, int, float | None]:
    """Evaluation return before and after, env steps, and the reward model's accuracy on held-out pairs."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(variant, seed, Path(folder) / "run")
        before = trainer.evaluate()["eval/turn_1/expected_return"]
        trainer.train()
        entries = [entry.values for entry in read_metrics(trainer.output_dir / "metrics.jsonl")]
        found = [values[name] for values in entries if (name := "reward_model/holdout_accuracy") in values]
        after = trainer.evaluate()["eval/turn_1/expected_return"]
        return before, after, trainer.numbering.env_step, min(found[-1:], default=None)


def main() -> None:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print(f"{'variant':>12}{'before':>8}{'after':>8}{'least gain':>12}{'env steps':>11}{'accuracy':>10}", flush=True)
    for variant in arguments.variants:
        rows = [measure(variant, seed) for seed in arguments.seeds]
        before, after = (statistics.median(row[column] for row in rows) for column in (0, 1))
        gain = min(row[1] - row[0] for row in rows)
        accuracies = [row[3] for row in rows if row[3] is not None]
        accuracy = f"{min(accuracies):.3f}" if accuracies else "-"
        print(f"{variant:>12}{before:>8.3f}{after:>8.3f}{gain:>12.3f}{rows[0][2]:>11}{accuracy:>10}", flush=True)


if __name__ == "__main__":
    main()

"""Learning from comparisons: MADPO once, and in rounds against the team of the round before, on a reward of one's own.

python examples/preference_learning.py                # a minute on one core
python examples/preference_learning.py --items 4      # a look at it

Nothing climbs the reward here: it only says which of two joint answers is the better one. For a reward model fitted to such pairs,
and a policy-gradient learner on its scores, the trainers are MARLHFTrainer and MARLHFIterTrainer.
"""

import argparse

import llm_envs
from learners import MADPOConfig, MADPOIterConfig, MADPOIterTrainer, MADPOTrainer


def opposite(first, second):
    """1 for a short first and a long second text: half for each, by characters up to 60. In [0, 1]."""
    lengths = [(min(len(one), 60) / 60, min(len(two), 60) / 60) for one, two in zip(first, second, strict=True)]
    return [0.5 * (1 - one) * bool(one) + 0.5 * two for one, two in lengths]


# Where the distributions of rewards are drawn (log_reward_distribution).
opposite = llm_envs.set_reward_range(opposite, 0.0, 1.0)

SHARED = {
    "agent_learning_rate": 1e-4,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "train_batch_size": 16,
    "num_train_epochs": 1,
    "preference_pairs_per_sample": 4,
    "max_new_tokens": 48,
    "temperature": 0.7,
    "top_p": 1.0,  # no truncation: tokens outside the nucleus would get no gradient
    "top_k": None,
    "eval_interval": 0,
    "eval_num_samples": 32,
    "eval_batch_size": 32,
}


def run(trainer_class, config, items):
    """Return before and after, and joint answers drawn."""
    task = llm_envs.make("length-ratio-v0").task
    trainer = trainer_class(
        agent_model="tiny",
        train_dataset=list(task.items)[:items],
        eval_dataset=task.eval_items,
        formatters=lambda item: f"tell me about {item['topic']}.",
        reward_func=opposite,
        args=config,
        progress=False,
    )
    before = trainer.evaluate()["eval/turn_1/reward_mean"]
    trainer.train()
    after = trainer.evaluate()["eval/turn_1/reward_mean"]
    print(f"{trainer_class.__name__:<17} {before:.2f} before, {after:.2f} after {trainer.numbering.env_step} joint answers")
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=64, help="topics of the 64")
    items = parser.parse_args().items
    run(MADPOTrainer, MADPOConfig(**SHARED, preference_num_candidates=16), items)
    rounds = MADPOIterConfig(
        **SHARED,
        num_iterations=4,
        preference_num_candidates=8,
        comparator_policy="history",  # the team before the last round's update
        preference_replay_mode="all_history",
        log_reward_distribution=True,
    )
    trainer = run(MADPOIterTrainer, rounds, items)
    print("pairs of each round:", *sorted(path.name for path in (trainer.output_dir / "preference_replay").iterdir()))

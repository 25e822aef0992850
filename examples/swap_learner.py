"""The same task under every learner of the REINFORCE family: one word changes.

python examples/swap_learner.py               # four runs, half a minute on one core
python examples/swap_learner.py --epochs 1    # a look at it

The four differ in the baseline alone. `advantage_normalization=True`, the default, makes all baselines give the same advantages, so
it is off here. On the command line the word is `llm-marl train --env matching-v0 --learner marloo`.
"""

import argparse

from learners import read_metrics, trainer_class
from llm_envs import make


def run(learner, epochs):
    """Metrics of a short run."""
    trainer_type = trainer_class(learner)  # "magrpo" → MAGRPOTrainer
    trainer = trainer_type(
        env=make("matching-v0"),
        agent_model="tiny",
        args=trainer_type.learner_class.config_class(  # MAGRPOConfig
            num_train_epochs=epochs,
            num_generations=8,
            rollout_buffer_size=4,
            agent_learning_rate=3e-4,
            weight_decay=0.0,
            max_new_tokens=8,
            temperature=1.0,
            top_p=1.0,
            top_k=None,
            advantage_normalization=False,
            logging_steps=1,
            eval_interval=0,
        ),
        progress=False,
    )
    trainer.train()
    return read_metrics(trainer.output_dir / "metrics.jsonl")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3, help="passes over 64 items, for each learner")
    epochs = parser.parse_args().epochs
    print("agreement in the first and the last quarter of a run")
    for learner in ("magrpo", "mareinforce", "marloo", "maremax"):
        metrics = run(learner, epochs)
        rewards = [entry.values["turn_1/reward_mean"] for entry in metrics if "turn_1/reward_mean" in entry.values]
        quarter = max(1, len(rewards) // 4)
        first, last = sum(rewards[:quarter]) / quarter, sum(rewards[-quarter:]) / quarter
        print(f"{learner:<14}{first:.2f} {last:.2f}")

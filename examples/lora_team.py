"""A team with an adapter (LoRA) for each agent over one frozen model: the weights exist once, however many agents there are.

python examples/lora_team.py                # a few seconds on one core; needs peft: pip install 'llm-envs[lora]'
python examples/lora_team.py --epochs 1     # a look at it
"""

import argparse
import tempfile
from pathlib import Path

from learners import MAGRPOConfig, MAGRPOTrainer
from llm_envs import make


def build_trainer(epochs, agents=3):
    """The trainer."""
    return MAGRPOTrainer(
        env=make("matching-v0", agents=agents),
        agent_model="tiny",
        model_config={"lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}},  # arguments of peft.LoraConfig
        args=MAGRPOConfig(
            num_train_epochs=epochs,
            num_generations=8,
            rollout_buffer_size=4,
            agent_learning_rate=3e-3,  # adapters stand, and need, a higher rate than full weights
            weight_decay=0.0,
            max_new_tokens=8,
            temperature=1.0,
            top_p=1.0,
            top_k=None,
            eval_interval=0,
            eval_num_samples=16,
            eval_batch_size=16,
            # The reference policy is the base with the adapter off, so the penalty costs no memory for weights.
            reference_kl_enabled=True,
            reference_kl_coef=0.01,
        ),
        progress=False,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2, help="passes over 64 items")
    trainer = build_trainer(parser.parse_args().epochs)

    policies = list(trainer.learner.policies.values())
    frozen = {id(weight): weight.numel() for policy in policies for weight in policy.model.parameters() if not weight.requires_grad}
    trained = sum(weight.numel() for weight in policies[0].parameters())
    print(f"{len(policies)} agents: {sum(frozen.values()):,} frozen numbers in all, {trained:,} trained for each agent")

    before = trainer.evaluate()["eval/turn_1/reward_mean"]
    trainer.train()
    after = trainer.evaluate()["eval/turn_1/reward_mean"]
    print(f"agreement in evaluation: {before:.2f} before, {after:.2f} after {trainer.numbering.env_step} env steps")
    with tempfile.TemporaryDirectory() as folder:
        trainer.save_model(folder)  # merged weights, which load anywhere, and the adapter alone beside them
        print("saved:", *sorted(str(path.relative_to(folder)) for path in Path(folder).glob("*/adapter")))

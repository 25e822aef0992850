"""A small run in a process of its own: `python killable_run.py FOLDER LEARNER`, from its latest checkpoint if there is one."""

import shutil
import sys
from pathlib import Path

import torch
from tiny_models import make_model, make_tokenizer

from learners.policy import HFPolicy
from learners.preference.iterative import MADPOIterConfig, MARLHFIterConfig
from learners.preference.trainers import MADPOIterTrainer, MARLHFIterTrainer
from learners.reinforce import MAGRPOConfig
from learners.sampling import SamplingConfig
from learners.trainers import MAGRPOTrainer
from llm_envs.env import TaskEnv
from llm_envs.task import Task


def reward(first: list[str], second: list[str]) -> list[float]:
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


def answer(agent_completions: list[str]) -> list[str]:
    return [text[:4] + "?" for text in reversed(agent_completions)]


LEARNING = {
    "agent_learning_rate": 1e-2,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": None,
    "max_new_tokens": 5,
    "logging_steps": 1,
    "shuffle": True,
    "eval_interval": 3,
    "eval_num_samples": 2,
}
ROUNDS = {
    "num_iterations": 3,
    "num_train_epochs": 1,
    "preference_num_candidates": 3,
    "collection_batch_size": 1,
    "preference_replay_mode": "all_history",
    "comparator_policy": "history",
}
LEARNERS = {
    "magrpo": (
        MAGRPOTrainer,
        MAGRPOConfig(**LEARNING, num_generations=2, num_train_epochs=5, rollout_buffer_size=4, reference_kl_enabled=True),
    ),
    "madpo-iter": (MADPOIterTrainer, MADPOIterConfig(**LEARNING, **ROUNDS)),
    "marlhf-iter": (
        MARLHFIterTrainer,
        MARLHFIterConfig(
            **LEARNING, **ROUNDS, num_generations=2, reward_learning_rate=1e-2, preference_scoring_reward="reward_model"
        ),
    ),
}


def main(folder: Path, learner: str) -> None:
    torch.set_num_threads(1)
    items = [{"prompt": f"item {i}"} for i in range(6)]
    env = TaskEnv(Task(reward=reward, items=items, eval_items=items, num_turns=2, transition=answer))
    trainer_class, args = LEARNERS[learner]
    sampling = SamplingConfig(max_new_tokens=5)
    policies = {
        agent: HFPolicy(make_model(seed=i, context=512), make_tokenizer(), sampling) for i, agent in enumerate(env.possible_agents)
    }
    checkpoints = folder / "checkpoints"
    latest = "latest" if any(checkpoints.glob("checkpoint-*")) else None
    if latest is None:  # killed before there was anything to go on from
        shutil.rmtree(folder, ignore_errors=True)
    trainer = trainer_class(
        env=env,
        policies=policies,
        args=args,
        output_dir=folder,
        record=True,
        progress=False,
        wandb_config={"mode": "offline", "dir": str(folder), "project": "test"},
    )
    print("started", flush=True)
    trainer.train(latest, checkpoint_dir=checkpoints, checkpoint_interval=1)
    trainer.save_model(folder / "agents")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

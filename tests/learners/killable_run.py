"""A small run in a process of its own: `python killable_run.py FOLDER`, resumed from its latest checkpoint if there is one."""

import shutil
import sys
from pathlib import Path

import torch
from conftest import _byte_tokenizer, _tiny_model

from learners.policy import HFPolicy
from learners.reinforce import MAGRPO, MAGRPOConfig
from learners.sampling import SamplingConfig
from learners.trainer import Trainer
from llm_envs.env import TaskEnv
from llm_envs.task import Task


def reward(first: list[str], second: list[str]) -> list[float]:
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


def answer(agent_completions: list[str]) -> list[str]:
    return [text[:4] + "?" for text in reversed(agent_completions)]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    items = [{"prompt": f"item {i}"} for i in range(6)]
    env = TaskEnv(Task(reward=reward, items=items, eval_items=items, num_turns=2, transition=answer))
    args = MAGRPOConfig(
        agent_learning_rate=1e-2,
        temperature=1.0,
        top_p=1.0,
        top_k=None,
        max_new_tokens=5,
        num_generations=2,
        num_train_epochs=5,
        rollout_buffer_size=4,
        logging_steps=1,
        shuffle=True,
        reference_kl_enabled=True,
        eval_interval=3,
        eval_num_samples=2,
    )
    policies = {
        agent: HFPolicy(_tiny_model(seed=i), _byte_tokenizer(), SamplingConfig(max_new_tokens=5))
        for i, agent in enumerate(env.possible_agents)
    }
    trainer = Trainer(
        env,
        MAGRPO(policies, args),
        args,
        output_dir=folder,
        record=True,
        progress=False,
        wandb_config={"mode": "offline", "dir": str(folder), "project": "test"},
    )
    checkpoints = folder / "checkpoints"
    latest = "latest" if any(checkpoints.glob("checkpoint-*")) else None
    if latest is None:  # killed before there was anything to go on from
        shutil.rmtree(folder, ignore_errors=True)
    print("started", flush=True)
    trainer.train(latest, checkpoint_dir=checkpoints, checkpoint_interval=1)
    trainer.save_model(folder / "agents")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Memory of one update against the number of completions: ours beside comlrl 1.4.3, 6 layers, 256 wide, 256 new tokens.

    python benchmarks/memory.py --peer-python .peer/bin/python

One node of K completions of 256 random tokens is trained on, once, after a small update that sets up the optimisers. Shown is by
how much the process grew at its highest beyond what it held before. Each figure is of a process of its own. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEW_TOKENS, PROMPT = 256, "Describe a river in a few words."
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    # Large blocks go back to the system when freed. Otherwise holes in the heap are counted, 50 to 100 MB on either side.
    "MALLOC_MMAP_THRESHOLD_": "65536",
}


def resident(field: str) -> float:
    """MB of the process: `VmRSS` now, `VmHWM` at its highest since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def growth(update: Callable[[int, int], None], generations: int) -> float:
    """MB by which an update on K completions exceeds what the process holds before it."""
    update(2, 8)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    update(generations, NEW_TOKENS)
    return resident("VmHWM") - before


def tokens(generations: int, length: int) -> list[list[int]]:
    """[K][T] random ids, no special ones."""
    rng = random.Random(0)
    return [[rng.randrange(2, 512) for _ in range(length)] for _ in range(generations)]


def models() -> list:
    """Two models, and the tokeniser."""
    from workload import Case, random_model, tokenizer_of

    return [[random_model(512, width=256, layers=6, heads=4) for _ in range(2)], tokenizer_of(Case("memory", 4))]


def ours(micro_batch_tokens: int | None) -> Callable[[int, int], None]:
    """An update of our learner on both agents."""
    from learners import MAGRPOConfig, MAGRPOTrainer
    from llm_envs.types import Completion, EnvStep

    agents, tokenizer = models()
    trainer = MAGRPOTrainer(
        agents=agents,
        tokenizer=tokenizer,
        train_dataset=[{"prompt": PROMPT}],
        reward_func=lambda first, second: [0.0] * len(first),
        args=MAGRPOConfig(
            num_turns=1,
            rollout_buffer_size=1,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            max_new_tokens=NEW_TOKENS,
            eval_interval=0,
            micro_batch_tokens=micro_batch_tokens,
        ),
        output_dir=Path(tempfile.mkdtemp()) / "run",
        progress=False,
    )
    names = list(trainer.env.possible_agents)
    prompt_ids = tuple(tokenizer(PROMPT)["input_ids"])

    def update(generations: int, length: int) -> None:
        steps = [
            EnvStep(
                env_step=k + 1,
                episode=0,
                state_id=0,
                next_state_id=None,
                turn=1,
                prompts=dict.fromkeys(names, PROMPT),
                completions=dict.fromkeys(names, Completion("", tuple(ids), (-6.0,) * length, prompt_ids, "length")),
                choice=dict.fromkeys(names, k),
                rewards=dict.fromkeys(names, float(k)),
                terminated=True,
                truncated=False,
                next_prompts=None,
                global_state="",
            )
            for k, ids in enumerate(tokens(generations, length))
        ]
        trainer.learner.update(steps)

    return update


def peer(micro_batch_tokens: int | None) -> Callable[[int, int], None]:
    """An update of comlrl on one of its agents; it has no micro-batches."""
    import torch
    from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer
    from comlrl.trainers.reinforce.magrpo import NodeSample

    agents, tokenizer = models()
    trainer = MAGRPOTrainer(
        agents=agents,
        num_agents=2,
        tokenizer=tokenizer,
        reward_func=lambda first, second: [0.0] * len(first),
        args=MAGRPOConfig(num_turns=1, eval_interval=0),
    )

    def update(generations: int, length: int) -> None:
        data = {
            "prompt_input_ids": tokenizer(PROMPT, return_tensors="pt")["input_ids"],
            "completion_input_ids": [[torch.tensor(ids) for ids in tokens(generations, length)]],
        }
        trainer._update_from_samples(0, [NodeSample(0, 0, data, [float(k) for k in range(generations)], 0.0, 0.0, 0)])

    return update


def measure(python: str, side: str, generations: int, micro_batch_tokens: int | None) -> float:
    """MB, from a process of its own."""
    environment = {**os.environ, **ENVIRONMENT}
    if side == "ours":
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [python, str(HERE / "memory.py"), "--side", side, "--generations", str(generations)]
    command += [] if micro_batch_tokens is None else ["--micro-batch-tokens", str(micro_batch_tokens)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{side} failed with {python}:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])["growth_mb"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=str(HERE.parent / ".peer" / "bin" / "python"), help="interpreter that has comlrl")
    parser.add_argument("--generations", type=int, nargs="+", default=[4, 16, 32], help="K")
    parser.add_argument("--micro-batch-tokens", type=int, help="of ours; by default what the model's size gives, about 256 MB")
    parser.add_argument("--side", choices=("ours", "peer"), help="measure this one here and print JSON")
    arguments = parser.parse_args()
    if arguments.side is not None:
        prepare = {"ours": ours, "peer": peer}[arguments.side]
        print(json.dumps({"growth_mb": growth(prepare(arguments.micro_batch_tokens), arguments.generations[0])}))
        raise SystemExit
    sides = (("peer", arguments.peer_python), ("ours", sys.executable))
    print(f"{'K':>4}{'peer MB':>10}{'ours MB':>10}")
    for count in arguments.generations:
        row = [measure(python, side, count, arguments.micro_batch_tokens) for side, python in sides]
        print(f"{count:>4}{row[0]:>10.0f}{row[1]:>10.0f}")

"""The peer's side of the speed benchmark: comlrl 1.4.3, run in an environment of its own. Prints a JSON line for each case.

python -m venv .peer && .peer/bin/pip install torch==2.13.0 comlrl==1.4.3
.peer/bin/python benchmarks/peer.py --cases k4
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer
from workload import Case, Counted, add_case_options, agents_of, cases_from_arguments, feedback, items_of, run_cases, tokenizer_of


def prepare(case: Case, reward: Counted) -> tuple[Callable[[], None], Callable[[], int]]:
    """A trainer for the case: its `train`, and its env steps."""

    # comlrl reads the signature of a function, not of an object that can be called.
    def reward_func(first: list[str], second: list[str]) -> list[float]:
        return reward(first, second)

    trainer = MAGRPOTrainer(
        agents=agents_of(case),
        num_agents=2,
        tokenizer=tokenizer_of(case),
        train_dataset=items_of(case),
        reward_func=reward_func,
        external_transition=feedback,
        args=MAGRPOConfig(
            num_agents=2,
            num_turns=case.turns,
            num_train_epochs=1,
            num_generations=case.generations,
            max_new_tokens=case.max_new_tokens,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            early_termination_threshold=None,
            rollout_buffer_size=case.buffer,
            eval_interval=0,
        ),
    )
    trainer.verbose = False  # no progress bar
    return trainer.train, lambda: trainer.env_step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_case_options(parser)
    run_cases(cases_from_arguments(parser.parse_args()), prepare)

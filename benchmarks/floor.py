"""How fast a case could be if matrix products were all there is: their shapes, timed alone, on one thread.

    python benchmarks/floor.py --cases k4 k8
    python benchmarks/floor.py --cases k4 --ours 250     # env steps per CPU second measured by speed.py, for the comparison

Counted are the linear layers and the output head of sampling (each prompt read once, then one step a token for all sequences of a
turn) and of the update (one forward, two products backward for each one forward); not attention's products, softmax, norms,
sampling and Python.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch
from workload import Case, add_case_options, agents_of, cases_from_arguments, items_of, tokenizer_of


def products(case: Case) -> Counter[tuple[int, int, int]]:
    """How often each product [rows, inner] · [inner, columns] happens for one agent in one buffer of states."""
    model, tokenizer = agents_of(case)[0], tokenizer_of(case)
    linear = [tuple(m.weight.shape) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "head" not in name]
    head = tuple(model.get_output_embeddings().weight.shape)
    prompt = len(tokenizer(items_of(case)[0]["prompt"])["input_ids"])
    rows = case.buffer * case.generations
    counts: Counter[tuple[int, int, int]] = Counter()
    for out, inner in linear:
        counts[case.buffer * prompt, inner, out] += 1
        counts[rows, inner, out] += case.max_new_tokens - 1
        everything = rows * (prompt + case.max_new_tokens)
        counts[everything, inner, out] += 1
        counts[everything, out, inner] += 1
        counts[out, everything, inner] += 1
    out, inner = head
    counts[case.buffer, inner, out] += 1
    counts[rows, inner, out] += case.max_new_tokens - 1
    scored = rows * case.max_new_tokens
    for shape in ((scored, inner, out), (scored, out, inner), (out, scored, inner)):
        counts[shape] += 1
    return counts


def seconds(rows: int, inner: int, columns: int) -> float:
    """CPU seconds of one product, the best of several runs."""
    # Weights are stored [columns, inner] and used transposed, as linear layers do.
    left, right = torch.randn(rows, inner), torch.randn(columns, inner).t()
    repeats = max(1, int(2e8 / (rows * inner * columns)))
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(repeats):
            left @ right
        best = min(best, (time.process_time() - start) / repeats)
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_case_options(parser)
    parser.add_argument("--ours", type=float, help="env steps per CPU second to compare with")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for case in cases_from_arguments(arguments):
        total = 2 * sum(count * seconds(*shape) for shape, count in products(case).items())
        rate = case.buffer * case.generations / total
        compared = "" if arguments.ours is None else f"; ours reach {arguments.ours / rate:.0%} of it"
        print(f"{case.name}: matrix products alone allow {rate:.0f} env steps per CPU second{compared}")

"""How fast the sandbox is: programs a minute, and what one costs beyond its own work, on programs of HumanEval's size.

    python benchmarks/sandbox.py                       # 1 and 2 workers, 200 programs each
    python benchmarks/sandbox.py --workers 8 --programs 1000

A program is a function of some lines with seven asserts; no two are equal, so that nothing is remembered. CPU time is that of all
processes of the sandbox together. The bare interpreter start is what a `subprocess` for each program would cost at least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from llm_envs.sandbox import Limits, Report, Sandbox, Trial

PROGRAM = '''
from typing import List

def below_threshold(numbers: List[int], limit: int) -> List[int]:
    """The numbers below a limit, each once, largest first. Variant {number}."""
    found = []
    for number in numbers:
        if number < limit and number not in found:
            found.append(number)
    return sorted(found, reverse=True)
'''
CHECKS = (
    "assert below_threshold([1, 2, 3], 3) == [2, 1]",
    "assert below_threshold([], 3) == []",
    "assert below_threshold([5, 5, 5], 6) == [5]",
    "assert below_threshold([-1, -2], 0) == [-1, -2]",
    "assert below_threshold(list(range(100)), 2) == [1, 0]",
    "assert below_threshold([10], 10) == []",
    "assert below_threshold([3, 1, 2], 100) == [3, 2, 1]",
)


def trial(number: int) -> Trial:
    return Trial(PROGRAM.format(number=number), ("below_threshold",), checks=CHECKS)


def measure(workers: int, programs: int) -> dict[str, float]:
    """Programs a minute, and medians for one program in milliseconds."""
    with Sandbox(Limits(), workers=workers, cache=0) as sandbox:
        began = time.perf_counter()
        sandbox.run_all([trial(-number) for number in range(1, workers + 1)])
        start = time.perf_counter() - began
        walls = [timed(sandbox, number) for number in range(20)]
        began = time.perf_counter()
        reports: list[Report] = sandbox.run_all([trial(100 + number) for number in range(programs)])
        seconds = time.perf_counter() - began
    if any(report.passed != len(CHECKS) for report in reports):
        raise SystemExit("a right program did not pass")
    return {
        "programs/minute": 60 * programs / seconds,
        "wall ms, alone": 1e3 * statistics.median(walls),
        "solution's CPU ms": 1e3 * statistics.median(report.cpu_seconds for report in reports),
        "first program s": start,
    }


def timed(sandbox: Sandbox, number: int) -> float:
    began = time.perf_counter()
    sandbox.run(trial(number))
    return time.perf_counter() - began


def all_cpu(workers: int, programs: int) -> float:
    """CPU milliseconds a program of all processes, from the difference of two runs so that starting them does not count."""

    def used(count: int) -> float:
        before = os.times()
        with Sandbox(Limits(), workers=workers, cache=0) as sandbox:
            sandbox.run_all([trial(number) for number in range(count)])
        after = os.times()
        return sum(after[:4]) - sum(before[:4])

    return 1e3 * (used(programs + workers) - used(workers)) / programs


def interpreter_start() -> float:
    """Median wall milliseconds of an interpreter that does nothing."""
    walls = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        walls.append(time.perf_counter() - began)
    return 1e3 * statistics.median(walls)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--programs", type=int, default=200)
    arguments = parser.parse_args()
    print(f"bare interpreter start: {interpreter_start():.0f} ms; load before: {os.getloadavg()[0]:.1f}")
    for number in arguments.workers:
        row = measure(number, arguments.programs) | {"CPU ms, all processes": all_cpu(number, arguments.programs)}
        print(f"{number} workers: " + ", ".join(f"{name} {value:.1f}" for name, value in row.items()), flush=True)

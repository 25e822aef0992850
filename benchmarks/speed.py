"""Ours against comlrl 1.4.3 in env steps per CPU second: the two take turns, on one thread, and the ratio of each round counts.

    python -m venv .peer && .peer/bin/pip install torch==2.13.0 comlrl==1.4.3
    python benchmarks/speed.py                          # all cases, buffer of 16, three rounds
    python benchmarks/speed.py --buffer 2               # the default of both systems
    python benchmarks/speed.py --smollm2 FOLDER --cases smollm2 --rounds 1

A machine that others use too slows both, so only the ratios mean something; the seconds are those of this machine at this time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from workload import add_case_options

HERE = Path(__file__).resolve().parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}
AIMS = (
    {"k4": 6.0, "k8": 6.0, "k4_turns2": 8.0, "k4_vocab32k": 2.0, "k8_vocab32k": 2.0}
    | dict.fromkeys(("maac_v", "maac_q", "iac_v", "maac_v_turns2", "iac_v_turns2"), 6.0)
    | dict.fromkeys(("madpo", "marlhf", "madpo_iter"), 5.0)
)
"""Least ratio that we ask of ourselves, with a buffer of 16."""


def measure(python: str, script: str, options: list[str]) -> dict[str, dict[str, float]]:
    """Measurements of one side, by case."""
    environment = {**os.environ, **ONE_THREAD}
    if script == "ours.py":
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    finished = subprocess.run([python, str(HERE / script), *options], env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{script} failed with {python}:\n{finished.stderr}")
    lines = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line for line in lines}


def run(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Rows of the table: medians over the rounds."""
    options = [f"--{name}={value}" for name in ("buffer", "items", "smollm2") if (value := getattr(arguments, name)) is not None]
    options += ["--cases", *arguments.cases] if arguments.cases else []
    rounds = []
    for number in range(arguments.rounds):
        sides = [("peer", arguments.peer_python, "peer.py"), ("ours", sys.executable, "ours.py")]
        # Each goes first as often as the other, so that a machine that warms up or slows down favours neither.
        measured = {side: measure(python, script, options) for side, python, script in (sides, sides[::-1])[number % 2]}
        rounds.append(measured)
        print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr, flush=True)
    return [summary(name, rounds, arguments.buffer) for name in rounds[0]["ours"]]


def summary(name: str, rounds: list[dict[str, dict[str, dict[str, float]]]], buffer: int | None) -> dict[str, object]:
    """One case over all rounds."""
    rates = {side: [r[side][name]["env_steps_per_cpu_s"] for r in rounds] for side in ("peer", "ours")}
    ratios = [ours / peer for ours, peer in zip(rates["ours"], rates["peer"], strict=True)]
    return {
        "case": name,
        "env_steps": rounds[0]["ours"][name]["env_steps"],
        "peer": statistics.median(rates["peer"]),
        "ours": statistics.median(rates["ours"]),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "aim": AIMS.get(name) if buffer is None else None,
        "characters_per_text": {side: rounds[0][side][name]["characters_per_text"] for side in ("peer", "ours")},
    }


def show(rows: list[dict[str, object]]) -> None:
    """Print the table."""
    widths = (14, 10, 12, 12, 8, 14, 6)
    header = ("case", "env steps", "peer/CPU s", "ours/CPU s", "ratio", "range", "aim")
    lines = [
        (
            str(row["case"]),
            str(row["env_steps"]),
            f"{row['peer']:.1f}",
            f"{row['ours']:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['lowest']:.1f} to {row['highest']:.1f}",
            "" if row["aim"] is None else f"{row['aim']:.0f}",
        )
        for row in rows
    ]
    for line in (header, *lines):
        print("".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=str(HERE.parent / ".peer" / "bin" / "python"), help="interpreter that has comlrl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="also write the rows here")
    add_case_options(parser)
    parsed = parser.parse_args()
    if not Path(parsed.peer_python).exists():
        raise SystemExit(f"no interpreter at {parsed.peer_python}: see the top of this file, or give --peer-python")
    table = run(parsed)
    show(table)
    if parsed.json is not None:
        Path(parsed.json).write_text(json.dumps(table, indent=1) + "\n")

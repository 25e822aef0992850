"""`llm-marl export`: a run's recorded stream as rows for other libraries. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from learners.commands.display import console, option_help
from learners.commands.errors import UsageError, bad_input
from learners.commands.options import dataclass_options
from learners.commands.parsing import leading_words, parse
from learners.exports import ExportFormat, PairChoice, export_rows, write_rows
from learners.run_folder import STREAM_FILE


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        format: "steps" is a row for each agent of each joint action, with everything recorded; "reward" one for each completion
            with its return (prompt, completion, reward); "preference" one for each pair at a state (prompt, chosen, rejected).
        output: a .jsonl or .parquet file; none writes `<format>.jsonl` beside the recording.
        agent: its rows alone; none writes everybody's, with a column that says whose.
        discount: weight of later turns in returns, for "reward" and "preference".
        pairs: for "preference": "best_worst" is one pair a state, "all" is every pair.
        min_gap: for "preference": returns that differ by no more are no pair.
    """

    format: ExportFormat = "reward"
    output: str | None = None
    agent: str | None = None
    discount: float = 1.0
    pairs: PairChoice = "best_worst"
    min_gap: float = 0.0


def run(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    if "--help" in argv or "-h" in argv:
        print(_help())
        return 0
    if not leading_words(argv):
        raise UsageError("what is to be exported? llm-marl export RUN (a run's folder, or a recording)")
    options = parse(dataclass_options(ExportOptions), argv[1:]).built(ExportOptions)
    recording = _recording(Path(argv[0]).expanduser())
    output = recording.with_name(f"{options.format}.jsonl") if options.output is None else Path(options.output).expanduser()
    with bad_input():
        rows = export_rows(
            recording,
            options.format,
            agent=options.agent,
            discount=options.discount,
            pairs=options.pairs,
            min_gap=options.min_gap,
        )
        write_rows(rows, output)
    console().print(f"{output}: {len(rows)} rows", soft_wrap=True)
    return 0


def _recording(path: Path) -> Path:
    """The recording in a run's folder, or the file itself."""
    recording = path / STREAM_FILE if path.is_dir() else path
    if not recording.is_file():
        raise UsageError(f"there is no recording {recording}: a run writes one unless --record is false")
    return recording


def _help() -> str:
    return option_help(
        "llm-marl export RUN [--format steps|reward|preference] [--output FILE] [--OPTION VALUE]...",
        "Write what a run recorded (RUN is its folder, or a stream.jsonl) as rows for other libraries: JSON lines, or Parquet that "
        "Hugging Face datasets and TRL read. An existing output is replaced.",
        [("options", dataclass_options(ExportOptions))],
    )

"""`python -m llm_envs.testing transcripts [ids] [--write]`: compare the transcripts of environments with a folder, or renew it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from llm_envs.testing.transcripts import compare_transcripts, write_transcripts


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 if a transcript differs."""
    parser = argparse.ArgumentParser(prog="python -m llm_envs.testing", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    transcripts = commands.add_parser("transcripts", help="compare the transcripts of environments with a folder, or renew it")
    transcripts.add_argument("ids", nargs="*", help="environments; all registered ones by default")
    transcripts.add_argument("--write", action="store_true", help="write the files instead of comparing with them")
    transcripts.add_argument("--folder", type=Path, default=Path("tests/transcripts"), help="default: tests/transcripts")
    chosen = parser.parse_args(arguments)
    ids = chosen.ids or None
    if chosen.write:
        for path in write_transcripts(chosen.folder, ids):
            print(f"wrote {path}")
        return 0
    different = compare_transcripts(chosen.folder, ids)
    for text in different.values():
        print(text)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

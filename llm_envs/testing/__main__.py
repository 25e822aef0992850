"""`python -m llm_envs.testing transcripts|audit [ids]`: episodes compared with a folder of them; what careless teams earn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from llm_envs.env import BranchingEnv
from llm_envs.registry import list_envs, make
from llm_envs.testing.audit import Audit, audit_rewards, audit_table
from llm_envs.testing.transcripts import compare_transcripts, write_transcripts


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 if a transcript differs."""
    parser = argparse.ArgumentParser(prog="python -m llm_envs.testing", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    transcripts = commands.add_parser("transcripts", help="compare the transcripts of environments with a folder, or renew it")
    transcripts.add_argument("ids", nargs="*", help="environments; all registered ones by default")
    transcripts.add_argument("--write", action="store_true", help="write the files instead of comparing with them")
    transcripts.add_argument("--folder", type=Path, default=Path("tests/transcripts"), help="default: tests/transcripts")
    audit = commands.add_parser("audit", help="print what careless teams earn on environments, beside the reference solution")
    audit.add_argument("ids", nargs="*", help="environments; all registered ones by default")
    audit.add_argument("--rows", type=int, default=16, help="first rows of the data; default: 16")
    audit.set_defaults(write=None)
    chosen = parser.parse_args(arguments)
    if chosen.write is None:
        print(audit_table({name: _audit(name, chosen.rows) for name in chosen.ids or list_envs()}))
        return 0
    ids = chosen.ids or None
    if chosen.write:
        for path in write_transcripts(chosen.folder, ids):
            print(f"wrote {path}")
        return 0
    different = compare_transcripts(chosen.folder, ids)
    for text in different.values():
        print(text)
    return 1 if different else 0


def _audit(name: str, rows: int) -> Audit:
    env = make(name)
    if not isinstance(env, BranchingEnv):
        raise SystemExit(f"{name} is a {type(env).__name__}: an audit needs a Task or a BranchingEnv")
    return audit_rewards(env, rows=rows, episodes_per_row=1)


if __name__ == "__main__":
    sys.exit(main())

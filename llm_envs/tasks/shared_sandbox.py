"""One sandbox for all tasks of a process that have the same limits, so that copies of an env do not each start processes."""

from __future__ import annotations

from functools import cache

from llm_envs.sandbox import Limits, Sandbox


@cache
def shared_sandbox(limits: Limits) -> Sandbox:
    """The process's sandbox with these limits. It starts with its first trial and ends with the process."""
    return Sandbox(limits)

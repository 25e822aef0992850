"""Running untrusted programs with limits, judged by trusted tests in another process.

from llm_envs.sandbox import Sandbox, Trial

with Sandbox() as sandbox:
    report = sandbox.run(Trial("def double(x): return x + x", ("double",), checks=("assert double(2) == 4",)))
"""

from __future__ import annotations

from llm_envs.sandbox.sandbox import Sandbox
from llm_envs.sandbox.trial import Limits, Outcome, Report, SandboxError, Trial

__all__ = ["Limits", "Outcome", "Report", "Sandbox", "SandboxError", "Trial"]

"""The team as it was at the start of a run and after each round, in a folder that belongs to the run alone."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learners.json_files import dump_json, replace_file
from learners.policy import HFPolicy
from llm_envs.types import AgentID

OWNER_FILE = "run.json"
"""Says whose the snapshots of a folder are."""


class Snapshots:
    """Saves the team into `initial`, `iteration_0001`, …, each with a folder for every agent that `from_pretrained` loads.

    Args:
        directory: of the snapshots; None saves none.
        policies: of the team.
    """

    def __init__(self, directory: str | Path | None, policies: Mapping[AgentID, HFPolicy]) -> None:
        self._directory = None if directory is None else Path(directory).expanduser()
        self._policies = policies
        # Tells this run's folder from another's, also after a resume.
        self._run = secrets.token_hex(8)

    def save(self, iteration: int) -> None:
        """Save the team as it is, after so many rounds. What this run saved of the same moment before is replaced.

        Raises:
            ValueError: the folder holds snapshots of another run.
        """
        if self._directory is None:
            return
        self._check_owner(self._directory, self._run)
        if not (self._directory / OWNER_FILE).exists():
            replace_file(self._directory / OWNER_FILE, dump_json({"run": self._run}))
        folder = self._directory / ("initial" if iteration == 0 else f"iteration_{iteration:04d}")
        for index, policy in enumerate(self._policies.values()):
            policy.save(folder / f"agent_{index}")

    def _check_owner(self, directory: Path, run: str) -> None:
        """Refuse the folder of another run than this one."""
        owner = directory / OWNER_FILE
        if owner.exists():
            vacant = owner.read_bytes() == dump_json({"run": run})
        else:
            vacant = not any(path.name == "initial" or path.name.startswith("iteration_") for path in directory.glob("*"))
        if not vacant:
            raise ValueError(
                f"policy_checkpoint_dir {directory} holds the snapshots of another run, which are not overwritten: choose another "
                "folder, or move them away"
            )

    def state_dict(self) -> dict[str, Any]:
        """Whose they are."""
        return {"run": self._run}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse a run whose folder this is not; changes nothing.

        Raises:
            ValueError: it is another run's.
        """
        if self._directory is not None:
            self._check_owner(self._directory, state["run"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the run of a state.

        Raises:
            ValueError: as `check_state_dict`; nothing is changed.
        """
        self.check_state_dict(state)
        self._run = state["run"]

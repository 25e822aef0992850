"""Options of replay: which pairs of the rounds so far a round trains on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from learners.config import canonical_choice, canonical_path, require_choice, require_int, require_number

_MODES = {
    "current": ("latest", "new"),
    "nearest_k": ("recent_k", "last_k", "k"),
    "all_history": (),
    "lambda_decay": ("lambda", "td_lambda", "td-lambda"),
}


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What iterative learners train on in a round. Mixed into their configs.

    Attributes:
        preference_replay_mode: "current" (this round's pairs), or as many pairs drawn from the rounds so far, each of the same
            weight: "nearest_k" (the newest non-empty ones), "all_history"; or older ones with less: "lambda_decay".
        preference_replay_k: rounds of "nearest_k", required by it.
        preference_replay_lambda: λ in [0, 1] of "lambda_decay", required by it: a round that is one older weighs λ times as much.
        preference_replay_sample_size: pairs drawn; None draws as many as this round has, or the newest one that has any.
        preference_replay_dir: folder of the rounds' files; None puts them into the run's folder.
        log_reward_distribution: how the rewards of candidates and selected pairs are distributed, a file a round and metrics; needs
            a reward function whose range is declared (`set_reward_range`).
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"preference_replay_dir"})

    preference_replay_mode: str = "current"
    preference_replay_k: int | None = None
    preference_replay_lambda: float | None = None
    preference_replay_sample_size: int | None = None
    preference_replay_dir: str | Path | None = None
    log_reward_distribution: bool = False

    def check_replay_options(self) -> None:
        """Refuse options that do not go together; another name of the mode becomes the canonical one.

        Raises:
            ValueError: naming option, value and what is expected.
        """
        object.__setattr__(self, "preference_replay_mode", canonical_replay_mode(self.preference_replay_mode))
        check_replay_options(
            self.preference_replay_mode,
            self.preference_replay_k,
            self.preference_replay_lambda,
            self.preference_replay_sample_size,
        )
        folder = canonical_path("preference_replay_dir", self.preference_replay_dir)
        object.__setattr__(self, "preference_replay_dir", folder)
        require_choice("log_reward_distribution", self.log_reward_distribution, (True, False))


def canonical_replay_mode(name: object) -> str:
    """The mode that a name stands for: "current", "nearest_k", "all_history" or "lambda_decay".

    Raises:
        ValueError: a name of none.
    """
    return canonical_choice("preference_replay_mode", name, _MODES)


def check_replay_options(mode: str, k: int | None, decay: float | None, sample_size: int | None) -> None:
    """Refuse options that do not go with the mode.

    Args:
        mode: a canonical name.
        k: `preference_replay_k`: required by "nearest_k"; 1 says nothing new to "current".
        decay: `preference_replay_lambda`: required by "lambda_decay".
        sample_size: `preference_replay_sample_size`: not for "current", which trains on exactly its pairs.

    Raises:
        ValueError: naming option, value and what is expected.
    """
    require_choice("preference_replay_mode", mode, tuple(_MODES))
    if mode == "nearest_k":
        require_int("preference_replay_k", k, 1)
    elif k is not None and not (mode == "current" and k == 1):
        raise ValueError(f"preference_replay_k goes with preference_replay_mode='nearest_k', got {k!r} with {mode!r}")
    if mode == "lambda_decay":
        require_number("preference_replay_lambda", decay, at_least=0, at_most=1)
    elif decay is not None:
        raise ValueError(f"preference_replay_lambda goes with preference_replay_mode='lambda_decay', got {decay!r} with {mode!r}")
    if mode == "current" and sample_size is not None:
        raise ValueError(
            "preference_replay_sample_size must be None with preference_replay_mode='current', which trains on exactly the pairs "
            f"of its round, got {sample_size!r}"
        )
    require_int("preference_replay_sample_size", sample_size, 1, optional=True)

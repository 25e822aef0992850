"""Options that every preference learner shares: how candidates are drawn, and which pairs of them are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from learners.config import TrainingConfig, require_choice, require_int
from llm_envs.types import RolloutSpec


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig(TrainingConfig):
    """How preference pairs are made, beside the options of `TrainingConfig`.

    Attributes:
        preference_num_candidates: C, joint responses drawn for each item.
        preference_pairs_per_sample: most pairs kept of an item; None keeps all, and must be None with `pair_selection="all"`.
        pair_selection: "reward_gap" (largest first), "all" or "random"; the iterative forms have "comparator_reward" too.
        collection_batch_size: joint responses drawn together, of as many items as that makes: bounds memory, changes no result.
    """

    pair_selections: ClassVar[tuple[str, ...]] = ("reward_gap", "all", "random")

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"collection_batch_size"})

    preference_num_candidates: int = 80
    preference_pairs_per_sample: int | None = 16
    pair_selection: str = "reward_gap"
    collection_batch_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("preference_num_candidates", self.preference_num_candidates, 2)
        require_int("preference_pairs_per_sample", self.preference_pairs_per_sample, 1, optional=True)
        require_int("collection_batch_size", self.collection_batch_size, 1)
        require_choice("pair_selection", self.pair_selection, self.pair_selections)
        if self.pair_selection == "all" and self.preference_pairs_per_sample is not None:
            raise ValueError(
                "preference_pairs_per_sample must be None with pair_selection='all', which keeps every pair, "
                f"got {self.preference_pairs_per_sample}"
            )

    @property
    def rollout(self) -> RolloutSpec:
        """What the collector does: C joint responses to an item, each a chain of its own in later turns."""
        return RolloutSpec(self.preference_num_candidates, later_generations=1)

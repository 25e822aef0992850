"""Team and comparator in one collection: of the joint responses drawn at a state the first are the team's, then come the others'.

So reward, recording and counting know nothing of a comparator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from learners.preference.comparators import Comparator
from llm_envs.seeding import COMPARATOR, Path
from llm_envs.types import AgentID, Completion, Item, Policy

_EPISODE, _BRANCH = 2, 3  # places in a collector's key: (seed, purpose, episode, branch, …, agent)


class Duel:
    """The policies of a collection in which team and comparator answer the same items.

    Args:
        policies: of the team.
        comparator: of the others.
        num_candidates: responses of the team at the first turn; those after them are the comparator's.

    Attributes:
        items: rows of the episodes under way, and the number of the first of them; set before each collection.
    """

    def __init__(self, policies: Mapping[AgentID, Policy], comparator: Comparator, num_candidates: int) -> None:
        self._policies = policies
        self._agents = list(policies)
        self._comparator = comparator
        self._num_candidates = num_candidates
        self.first_episode = 0
        self.items: Sequence[Item] = ()

    def players(self) -> dict[AgentID, Policy]:
        """What the collector acts with: agents that the comparator sees apart, and whose weights differ, can draw at once."""
        if self._comparator.whole_team:
            return dict.fromkeys(self._agents, self)
        # The collector makes one call for each distinct object, so those who share weights must share the object too.
        shared: dict[int, Policy] = {}
        for policy in self._policies.values():
            shared.setdefault(id(policy), _Share(self))
        return {agent: shared[id(policy)] for agent, policy in self._policies.items()}

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """See `llm_envs.types.Policy`. A state of the first turn has no branch in its key; later ones have that of their side."""
        rows = range(len(prompts))
        if all(len(key) == _BRANCH + 1 for key in keys):
            team = self._team(rows, prompts, self._num_candidates, keys)
            others = self._others(rows, prompts, n - self._num_candidates, keys)
            return [[*team[row], *others[row]] for row in rows]
        ours = [row for row in rows if keys[row][_BRANCH] < self._num_candidates]
        theirs = [row for row in rows if keys[row][_BRANCH] >= self._num_candidates]
        drawn = self._team(ours, prompts, n, keys) | self._others(theirs, prompts, n, keys)
        return [drawn[row] for row in rows]

    def _team(self, rows: Sequence[int], prompts: Sequence[str], n: int, keys: Sequence[Path]) -> dict[int, list[Completion]]:
        by_policy: dict[int, list[int]] = {}
        for row in rows:
            by_policy.setdefault(id(self._policies[self._agent(keys[row])]), []).append(row)
        drawn: dict[int, list[Completion]] = {}
        for own in by_policy.values():
            policy = self._policies[self._agent(keys[own[0]])]
            drawn |= zip(own, policy.generate([prompts[row] for row in own], n, [keys[row] for row in own]), strict=True)
        return drawn

    def _others(self, rows: Sequence[int], prompts: Sequence[str], n: int, keys: Sequence[Path]) -> dict[int, list[Completion]]:
        if not rows:
            return {}
        answers = self._comparator.generate(
            [self._agent(keys[row]) for row in rows],
            [prompts[row] for row in rows],
            n,
            # A stream of its own, also where the comparator is the team itself.
            [(*keys[row], COMPARATOR) for row in rows],
            [self.items[keys[row][_EPISODE] - self.first_episode] for row in rows],
        )
        return dict(zip(rows, answers, strict=True))

    def _agent(self, key: Path) -> AgentID:
        return self._agents[key[-1]]


class _Share:
    """The part of a duel that one policy's agents play."""

    def __init__(self, duel: Duel) -> None:
        self.generate = duel.generate

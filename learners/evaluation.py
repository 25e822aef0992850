"""How good a team is: one completion for each agent and turn, on streams of its own, no weights changed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from learners import credit
from learners.config import TrainingConfig
from learners.policy import HFPolicy
from llm_envs.env import BranchingEnv
from llm_envs.protocols import TurnProtocol
from llm_envs.rollouts import Numbering, collect
from llm_envs.seeding import EVALUATION
from llm_envs.types import AgentID, EnvStep, Item, Policy, RolloutSpec

EvalLogger: TypeAlias = Callable[..., "Sequence[Mapping[str, Any]]"]
"""`f(agent_completions_turns=, batch_items=, prompts=)`: one record an item."""

EvalAggregator: TypeAlias = Callable[..., "Mapping[str, float]"]
"""`f(records, num_turns=)`: metrics, logged under `eval/`."""

MetricsCallback: TypeAlias = Callable[[list[dict[str, Any]]], "Mapping[str, float]"]
"""`f(rollouts)` once an episode: metrics, averaged over episodes; under `eval/` at evaluation."""


class Evaluator:
    """Evaluates a team as a run's options say, with the user's own metrics.

    Args:
        env: the environment, with `eval_items`.
        config: options of the run.
        eval_logger: makes a record of each evaluated item; needs `eval_aggregator`.
        eval_aggregator: makes metrics of the records.
        metrics_callback: makes metrics of an episode's rollouts, in training and evaluation.

    Attributes:
        last_steps: the env steps of the latest evaluation.

    Raises:
        ValueError: if only one of logger and aggregator is given.
    """

    def __init__(
        self,
        env: BranchingEnv,
        config: TrainingConfig,
        *,
        eval_logger: EvalLogger | None = None,
        eval_aggregator: EvalAggregator | None = None,
        metrics_callback: MetricsCallback | None = None,
    ) -> None:
        if (eval_logger is None) != (eval_aggregator is None):
            missing = "eval_logger" if eval_logger is None else "eval_aggregator"
            raise ValueError(f"eval_logger makes the records that eval_aggregator reads: {missing} is missing")
        self.last_steps: list[EnvStep] = []
        self._env = env
        self._config = config
        self._eval_logger = eval_logger
        self._eval_aggregator = eval_aggregator
        self._metrics_callback = metrics_callback

    def evaluate(self, policies: Mapping[AgentID, Policy], num_samples: int) -> dict[str, float]:
        """Metrics on the first items, by names with `eval/`; {} without evaluation items."""
        if self._env.eval_items is None or num_samples == 0:
            return {}
        rows, steps = evaluation_episodes(
            self._env,
            sampling_at(policies, self._config.eval_temperature),
            self._env.eval_items,
            num_samples=num_samples,
            batch_size=self._config.eval_batch_size,
            seed=self._config.seed,
        )
        self.last_steps = steps
        values = {**evaluation_metrics(steps), **self.callback_metrics(steps), **self._aggregated(rows, steps)}
        return {f"eval/{name}": value for name, value in values.items()}

    def callback_metrics(self, steps: Sequence[EnvStep]) -> dict[str, float]:
        """What `metrics_callback` makes of each episode, averaged over those that have the metric; {} without one.

        Raises:
            TypeError: if it returns anything but numbers by name.
        """
        if self._metrics_callback is None:
            return {}
        rows = [
            _checked_metrics("metrics_callback", self._metrics_callback(rollout_rows(episode, self._env.possible_agents)))
            for episode in by_episode(steps)
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: credit.mean([row[name] for row in rows if name in row]) for name in names}

    def _aggregated(self, rows: Sequence[Item], steps: Sequence[EnvStep]) -> dict[str, float]:
        if self._eval_logger is None or self._eval_aggregator is None:
            return {}
        records = self._eval_logger(
            agent_completions_turns=completions_by_turn(steps, self._env.possible_agents),
            batch_items=list(rows),
            prompts=[row.get("prompt") for row in rows],
        )
        return _checked_metrics("eval_aggregator", self._eval_aggregator(records, num_turns=self._env.num_turns))


def sampling_at(policies: Mapping[AgentID, Policy], temperature: float | None) -> dict[AgentID, Policy]:
    """The policies drawing at another temperature (None: as they are); those that share weights go on sharing calls.

    Raises:
        TypeError: for a policy that cannot sample otherwise.
    """
    if temperature is None:
        return dict(policies)
    views: dict[int, Policy] = {}
    for agent, policy in policies.items():
        if not isinstance(policy, HFPolicy):
            raise TypeError(f"eval_temperature={temperature} needs an HFPolicy, {agent} acts with a {type(policy).__name__}")
        views.setdefault(id(policy), policy.with_sampling(replace(policy.sampling, temperature=temperature)))
    return {agent: views[id(policy)] for agent, policy in policies.items()}


def evaluation_episodes(
    env: BranchingEnv,
    policies: Mapping[AgentID, Policy],
    items: Iterable[Item],
    *,
    num_samples: int,
    batch_size: int,
    seed: int,
    protocol: TurnProtocol | None = None,
    repeats: int = 1,
) -> tuple[list[Item], list[EnvStep]]:
    """The first `num_samples` items, and the env steps of `repeats` episodes on each: one on all items, then another.

    The draws of an item depend on `seed` and its position alone, so that two evaluations of one run face the same chance.

    Args:
        env: the environment.
        policies: one for each agent.
        items: evaluation rows.
        num_samples: how many of them.
        batch_size: how many are generated together.
        seed: of the run.
        protocol: how the agents of a turn come to their texts; all at once by default.
        repeats: episodes on each item; the r-th, from 0, draws as an evaluation with the seed `seed + r` does.
    """
    rows = list(islice(iter(items), num_samples))
    numbering = Numbering()
    steps: list[EnvStep] = []
    for repeat, start in itertools.product(range(repeats), range(0, len(rows), batch_size)):
        batch = rows[start : start + batch_size]
        steps += collect(
            env,
            policies,
            batch,
            RolloutSpec(1),
            seed=seed + repeat,
            numbering=numbering,
            item_indices=list(range(start, start + len(batch))),
            purpose=EVALUATION,
            protocol=protocol,
        )
    return rows, steps


def evaluation_metrics(steps: Sequence[EnvStep]) -> dict[str, float]:
    """Means over the episodes that reach turn k: `turn_k/reward_mean`, `turn_k/expected_return` and `turn_k/reward/<term>`.

    The expected return is undiscounted, from turn k on.
    """
    rewards = credit.step_means(steps, credit.rewards_of(steps))
    returns = credit.step_means(steps, credit.tree_returns(steps))
    values: dict[str, float] = {}
    for turn in rewards:
        values[f"turn_{turn}/reward_mean"] = rewards[turn]
        values[f"turn_{turn}/expected_return"] = returns[turn]
        terms = credit.term_means([step for step in steps if step.turn == turn])
        values.update({f"turn_{turn}/{term}": value for term, value in terms.items()})
    return values


SOLVED = "reward/solved"
"""The info of tasks that say whether an answer is fully right (1) or not (0)."""


def solved_by_item(steps: Sequence[EnvStep]) -> dict[int, list[bool]] | None:
    """For each item's position whether each of its episodes ended with a solution; None if the task does not say.

    An episode is solved if every agent's last info says so.
    """
    solved: dict[int, list[bool]] = {}
    for episode in by_episode(steps):
        infos = list(episode[-1].infos.values())
        if not all(SOLVED in info for info in infos):
            return None
        solved.setdefault(item_of(episode), []).append(all(info[SOLVED] == 1.0 for info in infos))
    return solved


def item_of(episode: Sequence[EnvStep]) -> int:
    """Position of the item that an episode was played on."""
    return next(iter(episode[0].infos.values()))["item_index"]


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """Probability that at least one of k samples, drawn without replacement from n of which c are right, is right.

    1 − C(n − c, k) / C(n, k): the unbiased estimator of pass@k (Chen et al. 2021, arXiv 2107.03374, eq. 1).

    Args:
        num_samples: n.
        num_solved: c.
        k: at most n.

    Raises:
        ValueError: for numbers that do not fit: an estimate from fewer samples than k would be another quantity.
    """
    if not (0 <= num_solved <= num_samples and 1 <= k <= num_samples):
        raise ValueError(f"pass@k needs 0 ≤ solved ≤ samples and 1 ≤ k ≤ samples, got k={k}, {num_solved} of {num_samples}")
    return 1.0 - math.comb(num_samples - num_solved, k) / math.comb(num_samples, k)


def completions_by_turn(steps: Sequence[EnvStep], agents: Sequence[AgentID]) -> list[list[list[str]]]:
    """Texts as `[agent][item][turn]`: what an `eval_logger` is given."""
    return [[[step.completions[agent].text for step in episode] for episode in by_episode(steps)] for agent in agents]


def by_episode(steps: Sequence[EnvStep]) -> list[list[EnvStep]]:
    """The steps of each episode, in order of first appearance."""
    episodes: dict[int, list[EnvStep]] = {}
    for step in steps:
        episodes.setdefault(step.episode, []).append(step)
    return list(episodes.values())


def rollout_rows(steps: Sequence[EnvStep], agents: Sequence[AgentID]) -> list[dict[str, Any]]:
    """What a `metrics_callback` is given: a mapping for each agent of each env step.

    Keys: `agent_idx`, `prompt`, `completion`, `reward`, `turn`, and `metadata` (agent, `env_step`, `episode`, and the infos).
    """
    return [
        {
            "agent_idx": index,
            "prompt": step.prompts[agent],
            "completion": step.completions[agent].text,
            "reward": step.rewards[agent],
            "turn": step.turn,
            "metadata": {"agent": agent, "env_step": step.env_step, "episode": step.episode, **step.infos[agent]},
        }
        for step in steps
        for index, agent in enumerate(agents)
    ]


def _checked_metrics(source: str, values: object) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{source} must return a mapping from names to numbers, got {type(values).__name__}: {values!r}")
    wrong = {name: value for name, value in values.items() if not isinstance(name, str) or not isinstance(value, (int, float))}
    if wrong:
        raise TypeError(f"{source} must return numbers by name, got {wrong!r}")
    return {name: float(value) for name, value in values.items()}

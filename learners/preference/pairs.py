"""Joint responses, and pairs of them of which one earned more: how pairs are chosen, and their form in JSON.

Plain Python: this file reads `EnvStep`s and compares rewards. It owns no models, no losses and no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from learners.chains import chains
from learners.config import require_choice
from learners.credit import mean
from learners.json_files import JSON
from llm_envs.types import AgentID, ChatPrompt, Completion, EnvStep


@dataclass(frozen=True)
class JointResponse:
    """What all agents read and wrote in one episode.

    Attributes:
        prompts: [H] by turn, then by agent.
        completions: [H] likewise, with the ids that were sampled.
        reward: of the team: in each turn the mean over its agents, summed over the turns with the discount.
        raw_reward: the same of the rewards before the processor.

    Raises:
        ValueError: no turn, other numbers of turns of the two, or a turn without the prompt or the completion of an agent.
    """

    prompts: tuple[Mapping[AgentID, str], ...]
    completions: tuple[Mapping[AgentID, Completion], ...]
    reward: float
    raw_reward: float

    def __post_init__(self) -> None:
        if not self.prompts or len(self.prompts) != len(self.completions):
            raise ValueError(
                "a joint response needs prompts and completions of the same turns, "
                f"got {len(self.prompts)} and {len(self.completions)}"
            )
        team = set(self.prompts[0])
        for turn, agents in enumerate(zip(self.prompts, self.completions, strict=True), start=1):
            for given in agents:
                if set(given) != team:
                    raise ValueError(f"turn {turn} of a joint response of {', '.join(sorted(team))} has {', '.join(given)}")

    @property
    def answered(self) -> bool:
        """Whether every agent answered in every turn: a completion without prompt ids stands for an answer that never came."""
        return all(completion.prompt_ids for turn in self.completions for completion in turn.values())


@dataclass(frozen=True)
class Pair:
    """Two joint responses to one item, of which the first earned more.

    Attributes:
        winner: the better one.
        loser: the other.
        candidate_reward_mean: mean reward of all candidates of the item; of the target's, where there is a comparator.
        target_raw_reward: raw reward of the target's response; None without a comparator.
        comparator_raw_reward: of the comparator's; None without one.
    """

    winner: JointResponse
    loser: JointResponse
    candidate_reward_mean: float
    target_raw_reward: float | None = None
    comparator_raw_reward: float | None = None


# ---- from the stream ----


def responses_of(steps: Sequence[EnvStep], discount: float = 1.0) -> list[list[JointResponse]]:
    """The joint responses of each episode, in order of the episodes and then of what was chosen at the first turn.

    Args:
        steps: whole episodes, in any order; after its first turn each is followed as a chain.
        discount: weight of what follows, from one turn to the next.

    Raises:
        ValueError: an episode branches after its first turn or misses a step, or infos lack `raw_reward`.
        FloatingPointError: a reward is NaN or infinite.
    """
    episodes: dict[int, list[list[EnvStep]]] = {}
    for chain in chains(steps):
        episodes.setdefault(chain[0].episode, []).append(chain)
    return [
        [_response(chain, discount) for chain in sorted(own, key=lambda chain: tuple(chain[0].choice.values()))]
        for own in episodes.values()
    ]


def _response(chain: Sequence[EnvStep], discount: float) -> JointResponse:
    for step in chain:
        lacking = [agent for agent in step.rewards if "raw_reward" not in step.infos.get(agent, {})]
        if lacking:
            raise ValueError(f"env step {step.env_step}: the infos of {', '.join(lacking)} have no raw_reward")
    return JointResponse(
        prompts=tuple(step.prompts for step in chain),
        completions=tuple(step.completions for step in chain),
        reward=_discounted(chain, discount, lambda step, agent: step.rewards[agent]),
        raw_reward=_discounted(chain, discount, lambda step, agent: step.infos[agent]["raw_reward"]),
    )


def _discounted(chain: Sequence[EnvStep], discount: float, reward: Callable[[EnvStep, AgentID], float]) -> float:
    total = 0.0
    for step in reversed(chain):
        rewards = {agent: float(reward(step, agent)) for agent in step.rewards}
        if not all(math.isfinite(value) for value in rewards.values()):
            raise FloatingPointError(f"rewards at env step {step.env_step} should be finite, got {rewards}")
        # In ascending order: the last bit, and with it what counts as a tie, must not depend on who earned what.
        total = mean(sorted(rewards.values())) + discount * total
    return total


# ---- selection ----

SELECTIONS_WITHIN = ("reward_gap", "all", "random")
SELECTIONS_BETWEEN = ("comparator_reward", *SELECTIONS_WITHIN)


def pairs_within(candidates: Sequence[JointResponse], selection: str, limit: int | None, chance: np.random.Generator) -> list[Pair]:
    """Pairs of an item's candidates, every one with each that earned less; equal rewards make no pair.

    reward_gap: the largest gap first, among equal ones as in "all"    all: by winner, then loser    random: in random order

    Args:
        candidates: those without an answer take no part.
        selection: one of these.
        limit: most pairs; None keeps all.
        chance: what "random" draws from, and nothing else does.

    Raises:
        ValueError: another selection.
    """
    require_choice("pair_selection", selection, SELECTIONS_WITHIN)
    compared = [candidate for candidate in candidates if candidate.answered]
    average = mean([candidate.reward for candidate in compared]) if compared else math.nan
    pairs = [Pair(winner, loser, average) for winner in compared for loser in compared if winner.reward > loser.reward]
    return _ordered(pairs, selection, chance)[:limit]


def pairs_between(
    targets: Sequence[JointResponse],
    comparators: Sequence[JointResponse],
    selection: str,
    limit: int | None,
    chance: np.random.Generator,
) -> list[Pair]:
    """Pairs of an item's targets and comparators at equal positions, whichever earned more; equal rewards make no pair.

    comparator_reward: the highest reward of the comparator first, among equal ones the largest gap    reward_gap: the largest gap
    first    all: in order of the positions    random: in random order

    Args:
        targets: what the policies that are trained wrote.
        comparators: what they are compared with; of the longer list the rest stays without a comparison.
        selection: one of these.
        limit: most pairs; None keeps all.
        chance: what "random" draws from, and nothing else does.

    Raises:
        ValueError: another selection.
    """
    require_choice("pair_selection", selection, SELECTIONS_BETWEEN)
    answered = [target.reward for target in targets if target.answered]
    average = mean(answered) if answered else math.nan
    compared = [
        (_compared(target, comparator, average), comparator.reward)
        for target, comparator in zip(targets, comparators, strict=False)
        if target.answered and comparator.answered and target.reward != comparator.reward
    ]
    if selection == "comparator_reward":
        compared.sort(key=lambda entry: (entry[1], _gap(entry[0])), reverse=True)
        return [pair for pair, _ in compared[:limit]]
    return _ordered([pair for pair, _ in compared], selection, chance)[:limit]


def unanswered_comparisons(targets: Sequence[JointResponse], comparators: Sequence[JointResponse]) -> int:
    """How many comparisons `pairs_between` drops since a side has no answer."""
    return sum(not (target.answered and comparator.answered) for target, comparator in zip(targets, comparators, strict=False))


def _compared(target: JointResponse, comparator: JointResponse, average: float) -> Pair:
    winner, loser = (target, comparator) if target.reward > comparator.reward else (comparator, target)
    return Pair(winner, loser, average, target.raw_reward, comparator.raw_reward)


def _ordered(pairs: list[Pair], selection: str, chance: np.random.Generator) -> list[Pair]:
    if selection == "random":
        return [pairs[index] for index in chance.permutation(len(pairs))]
    return sorted(pairs, key=_gap, reverse=True) if selection == "reward_gap" else pairs


def _gap(pair: Pair) -> float:
    return pair.winner.reward - pair.loser.reward


# ---- in JSON ----

_SIDES = ("winner", "loser")
_PARTS = ("prompt_ids", "token_ids", "logprobs", "finish_reason")


def pair_record(pair: Pair) -> dict[str, JSON]:
    """A pair as JSON that people can read and `pair_from_record` gives back exactly.

    One turn:

        prompts                 {agent: text}: what both sides read; a conversation is the list of its messages
        winner_completions      {agent: text}
        loser_completions       {agent: text}
        winner_reward, loser_reward, candidate_reward_mean
        raw_rewards             [of the winner, of the loser]
        target_raw_reward, comparator_raw_reward    null without a comparator
        winner_tokens           {agent: {"prompt_ids", "token_ids", "logprobs", "finish_reason"}} as sampled
        loser_tokens            likewise
        loser_prompts           as prompts, only there if the loser read something else than the winner

    Several turns: wherever it says {agent: …}, the list of these by turn.

    Raises:
        ValueError: a reward or log-probability is NaN or infinite, which JSON has no form for; the message names it.
    """
    prompts = {side: _by_turn([_prompts(turn) for turn in response.prompts]) for side, response in _sides(pair)}
    record: dict[str, JSON] = {"prompts": prompts["winner"]}
    for side, response in _sides(pair):
        record[f"{side}_completions"] = _by_turn([{agent: c.text for agent, c in turn.items()} for turn in response.completions])
    for side, response in _sides(pair):
        record[f"{side}_reward"] = _finite(response.reward, f"{side}_reward")
    record["candidate_reward_mean"] = _finite(pair.candidate_reward_mean, "candidate_reward_mean")
    record["raw_rewards"] = [_finite(response.raw_reward, f"raw reward of the {side}") for side, response in _sides(pair)]
    for name, value in (("target_raw_reward", pair.target_raw_reward), ("comparator_raw_reward", pair.comparator_raw_reward)):
        record[name] = None if value is None else _finite(value, name)
    for side, response in _sides(pair):
        record[f"{side}_tokens"] = _by_turn([_tokens(turn, side) for turn in response.completions])
    if prompts["loser"] != prompts["winner"]:
        record["loser_prompts"] = prompts["loser"]
    return record


def pair_from_record(record: Mapping[str, Any]) -> Pair:
    """The pair that `pair_record` wrote.

    Raises:
        ValueError: a field is missing or is not what it should be; the message says which.
    """
    try:
        winner, loser = (
            JointResponse(
                prompts=tuple(_read_prompts(turn) for turn in _turns(record.get(f"{side}_prompts", record["prompts"]))),
                completions=tuple(
                    _read_completions(texts, tokens)
                    for texts, tokens in zip(_turns(record[f"{side}_completions"]), _turns(record[f"{side}_tokens"]), strict=True)
                ),
                reward=_finite(record[f"{side}_reward"], f"{side}_reward"),
                raw_reward=_finite(record["raw_rewards"][position], f"raw reward of the {side}"),
            )
            for position, side in enumerate(_SIDES)
        )
        target, comparator = record["target_raw_reward"], record["comparator_raw_reward"]
        return Pair(
            winner,
            loser,
            candidate_reward_mean=_finite(record["candidate_reward_mean"], "candidate_reward_mean"),
            target_raw_reward=None if target is None else _finite(target, "target_raw_reward"),
            comparator_raw_reward=None if comparator is None else _finite(comparator, "comparator_raw_reward"),
        )
    except KeyError as error:
        raise ValueError(f"the record of a pair has no {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not the record of a pair: {error}") from error


def _sides(pair: Pair) -> tuple[tuple[str, JointResponse], ...]:
    return tuple(zip(_SIDES, (pair.winner, pair.loser), strict=True))


def _by_turn(turns: list[JSON]) -> JSON:
    return turns[0] if len(turns) == 1 else turns


def _turns(node: Any) -> list[Any]:
    return node if isinstance(node, list) else [node]


def _prompts(turn: Mapping[AgentID, str]) -> JSON:
    return {
        agent: [dict(message) for message in prompt.messages] if isinstance(prompt, ChatPrompt) else prompt
        for agent, prompt in turn.items()
    }


def _read_prompts(node: Mapping[AgentID, Any]) -> dict[AgentID, str]:
    return {agent: ChatPrompt(prompt) if isinstance(prompt, list) else _text(prompt) for agent, prompt in node.items()}


def _tokens(turn: Mapping[AgentID, Completion], side: str) -> JSON:
    return {
        agent: {
            "prompt_ids": [int(token) for token in completion.prompt_ids],
            "token_ids": [int(token) for token in completion.token_ids],
            "logprobs": [_finite(value, f"log-probability of {agent}, {side}") for value in completion.logprobs],
            "finish_reason": completion.finish_reason,
        }
        for agent, completion in turn.items()
    }


def _read_completions(texts: Mapping[AgentID, Any], tokens: Mapping[AgentID, Any]) -> dict[AgentID, Completion]:
    return {agent: _read_completion(agent, text, tokens[agent]) for agent, text in texts.items()}


def _read_completion(agent: AgentID, text: Any, tokens: Mapping[str, Any]) -> Completion:
    prompt_ids, token_ids, logprobs, finish_reason = (tokens[part] for part in _PARTS)
    ids = [*prompt_ids, *token_ids]
    if not all(type(token) is int for token in ids):
        raise ValueError(f"the token ids of {agent} are not all whole numbers: {ids!r:.200}")
    require_choice(f"finish_reason of {agent}", finish_reason, ("stop", "length"))
    scores = tuple(_finite(value, f"log-probability of {agent}") for value in logprobs)
    return Completion(_text(text), tuple(token_ids), scores, tuple(prompt_ids), finish_reason)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text in the record of a pair, got {value!r:.200}")
    return value


def _finite(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value!r}")
    return float(value)

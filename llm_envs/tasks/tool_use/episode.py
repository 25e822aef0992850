"""A multi-turn episode as a pure function of its row and of what the agents wrote: calls are run again from the start, and judged.

Replaying keeps states values: no simulator outlives the function, and branches cannot touch each other.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from llm_envs.tasks.tool_use.calls import Call, body_of, parse_calls
from llm_envs.tasks.tool_use.simulators import Apis, World, api_functions
from llm_envs.types import AgentID, Item

FewerClasses: TypeAlias = Literal["skip", "share", "idle"]
AfterFailure: TypeAlias = Literal["continue", "end"]

MAX_CALLS = 64
"""Calls of one agent that are run in one step; further ones are refused."""

_NUMBERED = re.compile(r"\s*(?:[-*+•]\s+)?(\d{1,3})\s*[:.)]\s*(\S.*)")
_WORD = re.compile(r"\W*(done|wait)\W*", re.IGNORECASE)

Texts: TypeAlias = tuple[tuple[str, ...], ...]
"""What every agent wrote in each step."""


@dataclass(frozen=True)
class Setting:
    """How rows are played.

    Attributes:
        agents: the team.
        steps_per_turn: most times that the agents write before the user speaks again.
        fewer_classes: what to do with rows that have fewer API classes than there are agents.
        after_failure: whether the episode goes on after a turn that the benchmark would call wrong.
        apis: users' API classes.
        max_response: characters of a response that prompts show.
    """

    agents: tuple[AgentID, ...]
    steps_per_turn: int
    fewer_classes: FewerClasses
    after_failure: AfterFailure
    apis: Apis
    max_response: int

    def owners(self, item: Item) -> dict[str, int]:
        """Each function's owner, by position in the team, in the order of classes and functions.

        With n agents class i belongs to agent i mod n. With fewer classes than agents, `share` deals the functions of class i in
        turn to the agents k for which k mod c = i, c being the number of classes.
        """
        classes = item["involved_classes"]
        owner: dict[str, int] = {}
        for i, api in enumerate(classes):
            team = [i % len(self.agents)]
            if self.fewer_classes == "share" and len(classes) < len(self.agents):
                team = [k for k in range(len(self.agents)) if k % len(classes) == i]
            for number, function in enumerate(api_functions(api, self.apis)):
                owner[function["name"]] = team[number % len(team)]
        return owner


@dataclass(frozen=True)
class Message:
    """What an agent wrote in a step.

    Attributes:
        calls: with the number of each, which says when it is run.
        rejected: pieces of text that are no call.
        goes_on: whether the agent wants to write again before the user speaks.
    """

    calls: tuple[tuple[int, Call], ...]
    rejected: tuple[str, ...]
    goes_on: bool


@lru_cache(maxsize=4096)
def read_message(text: str) -> Message:
    """What a text says.

    The calls of a text are numbered 1, 2, …; `5: call(…)` gives a call, and the ones after it, another number. A line `done` says
    that the agent is finished with the user's request, a line `wait` that it wants to see the others' results first. A text with
    calls and without `done` goes on too.
    """
    words = [match.group(1).lower() for line in text.splitlines() if (match := _WORD.fullmatch(line.strip()))]
    body = body_of("\n".join(line for line in text.splitlines() if not _WORD.fullmatch(line.strip())))
    pieces: list[tuple[int | None, str]] = [(None, body)]
    if any(_NUMBERED.fullmatch(line) for line in body.splitlines()):
        pieces = []
        for line in filter(str.strip, body.splitlines()):
            match = _NUMBERED.fullmatch(line)
            pieces.append((int(match.group(1)), match.group(2)) if match else (None, line))
    calls: list[tuple[int, Call]] = []
    rejected: list[str] = []
    number = 0
    for wanted, piece in pieces:
        parsed = parse_calls(piece)
        for call in parsed.calls:
            number = number + 1 if wanted is None else wanted
            wanted = None
            calls.append((number, call))
        rejected.extend(parsed.rejected)
    goes_on = "wait" in words or (bool(calls) and "done" not in words)
    return Message(tuple(calls), tuple(rejected), goes_on)


@dataclass(frozen=True)
class Ran:
    """A call that an agent made.

    Attributes:
        agent: position in the team.
        call: as text.
        response: as text.
        refused: whether it was not run at all.
    """

    agent: int
    call: str
    response: str
    refused: bool = False


@dataclass(frozen=True)
class Step:
    """One joint message and what came of it.

    Attributes:
        turn: the user's turn it belongs to, from 0.
        ran: the calls, in the order in which they were run.
        rejected: for each agent, pieces of its text that are no call.
    """

    turn: int
    ran: tuple[Ran, ...]
    rejected: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Verdict:
    """How a turn of the user ended, by the benchmark's rules.

    Attributes:
        checked: False for a turn without gold calls, about which nothing is asked.
        responses: share of the gold responses that are among the team's responses so far; 0 if the team ran nothing in the turn.
        state: whether all simulators are in the gold state.
        valid: both, wholly; True for an unchecked turn.
    """

    checked: bool
    responses: float
    state: bool
    valid: bool


@dataclass(frozen=True)
class Progress:
    """Where an episode stands.

    Attributes:
        steps: so far.
        verdicts: of the user's turns that are over.
        done: whether the episode is.
    """

    steps: tuple[Step, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    done: bool = False

    @property
    def turn(self) -> int:
        """The user's turn being played, from 0."""
        return len(self.verdicts)

    @property
    def solved(self) -> bool:
        """Whether the episode is over and every turn was valid: the benchmark's own score."""
        return self.done and all(verdict.valid for verdict in self.verdicts)


def progress(setting: Setting, item: Item, texts: Sequence[Sequence[str]]) -> Progress:
    """Where the episode of a row stands after what the agents wrote, step by step. Pure; the last 256 are remembered."""
    return _progress(setting, json.dumps(item), tuple(tuple(step) for step in texts))


# Simulators of bfcl-eval share settings of the process (mpmath's precision), so that only one episode is played at a time.
_LOCK = threading.Lock()


@lru_cache(maxsize=256)
def _progress(setting: Setting, row: str, texts: Texts) -> Progress:
    with _LOCK:
        return _Replay(setting, json.loads(row)).play(texts)


class _Replay:
    """One pass through an episode."""

    def __init__(self, setting: Setting, item: Item) -> None:
        self.setting = setting
        self.item = item
        self.owners = setting.owners(item)
        self.team = World(item, setting.apis)
        self.gold = World(item, setting.apis)
        self.responses: list[str] = []

    def play(self, texts: Texts) -> Progress:
        steps: list[Step] = []
        verdicts: list[Verdict] = []
        ran_in_turn = steps_in_turn = 0
        done = False
        for joint in texts:
            messages = [read_message(text) for text in joint]
            step = Step(len(verdicts), self._run(messages), tuple(message.rejected for message in messages))
            steps.append(step)
            steps_in_turn += 1
            ran_in_turn += sum(not ran.refused for ran in step.ran)
            if steps_in_turn < self.setting.steps_per_turn and any(message.goes_on for message in messages):
                continue
            verdicts.append(self._judge(self.item["ground_truth"][len(verdicts)], ran_in_turn))
            ran_in_turn = steps_in_turn = 0
            stopped = self.setting.after_failure == "end" and not verdicts[-1].valid
            done = stopped or len(verdicts) == len(self.item["question"])
        return Progress(tuple(steps), tuple(verdicts), done)

    def _run(self, messages: Sequence[Message]) -> tuple[Ran, ...]:
        """The calls of all agents in the order of their numbers; of equal ones, in the order of the agents."""
        wanted = [
            (number, agent, place, call)
            for agent, message in enumerate(messages)
            for place, (number, call) in enumerate(message.calls)
        ]
        ran: list[Ran] = []
        for _, agent, place, call in sorted(wanted, key=lambda one: one[:3]):
            if place >= MAX_CALLS:
                ran.append(Ran(agent, str(call), f"not run: more than {MAX_CALLS} calls", refused=True))
            elif self.owners.get(call.name) != agent:
                ran.append(Ran(agent, str(call), "not run: not one of your functions", refused=True))
            else:
                response = self.team.run(call)
                self.responses.append(response)
                ran.append(Ran(agent, str(call), response))
        return tuple(ran)

    def _judge(self, gold: Sequence[str], ran_in_turn: int) -> Verdict:
        wanted = [self.gold.run(gold_call(text)) for text in gold]
        if not wanted:
            return Verdict(checked=False, responses=0.0, state=True, valid=True)
        found = (Counter(wanted) & Counter(self.responses)).total() if ran_in_turn else 0
        state = self.team.same_as(self.gold)
        return Verdict(True, found / len(wanted), state, valid=state and ran_in_turn > 0 and found == len(wanted))


@lru_cache(maxsize=4096)
def gold_call(text: str) -> Call:
    """A gold call of a row.

    Raises:
        ValueError: if it is no call.
    """
    parsed = parse_calls(text)
    if len(parsed.calls) != 1 or parsed.rejected:
        raise ValueError(f"no function call: {text!r}")
    return parsed.calls[0]


def visible_functions(setting: Setting, item: Item, turn: int) -> Mapping[str, Sequence[Mapping[str, object]]]:
    """The descriptions of each class's functions that are told in a turn: without excluded ones, and those still held back."""
    late = {name for after, names in item.get("missed_function", {}).items() if turn < int(after) for name in names}
    hidden = {*item.get("excluded_function", ()), *late}
    return {
        api: [function for function in api_functions(api, setting.apis) if function["name"] not in hidden]
        for api in item["involved_classes"]
    }

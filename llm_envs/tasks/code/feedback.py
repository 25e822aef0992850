"""What programmers read in later turns: their last answer, and as much about it as the feedback's mode says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import category

from llm_envs.sandbox import Outcome
from llm_envs.tasks.code.experts import Expert, question, read_suggestions
from llm_envs.tasks.code.levels import Judge, Verdict
from llm_envs.tasks.code.options import Mode
from llm_envs.tasks.code.prompts import ONLY_CODE, listed
from llm_envs.tasks.turns import next_prompt
from llm_envs.types import Item

MOST_SHOWN = 200
"""Characters of a failure's message that are shown."""

NO_EXAMPLES = "this problem has no public examples"


@dataclass(frozen=True)
class Feedback:
    """The transition: everybody's next prompt, or the end after an answer that cannot be better.

    Attributes:
        judge: scores the answer again; the sandbox knows the programs' reports already.
        mode: how much is said; all but `bandit`.
        reveal_hidden: whether it is about the hidden tests too. Otherwise it is about the public examples alone.
        original_prompt: whether the first prompt stands in front.
        previous_response: whether the agent's own last answer is shown.
        expert: for `expert_edits`.
    """

    judge: Judge
    mode: Mode
    reveal_hidden: bool
    original_prompt: bool
    previous_response: bool
    expert: Expert | None = None

    def __call__(
        self, item: Item, agent_completions: Sequence[str], prompt_history_per_agent: Sequence[Sequence[str]]
    ) -> list[str] | None:
        """One prompt for each agent; None after an answer with the highest score."""
        (verdict,) = self.judge.verdicts([agent_completions], item)
        if verdict.perfect:
            return None
        names = (*self.judge.team.functions, verdict.problem.entry_point)
        said = self._said(item, agent_completions, verdict)
        return [
            next_prompt(
                history[0] if self.original_prompt else None,
                text if self.previous_response else None,
                diagnosis,
                f"Write a better `{name}`. {ONLY_CODE}",
            )
            for name, text, history, diagnosis in zip(names, agent_completions, prompt_history_per_agent, said, strict=True)
        ]

    def _said(self, item: Item, texts: Sequence[str], verdict: Verdict) -> list[str]:
        """What each agent is told about the answer."""
        if self.mode == "expert_edits":
            return self._experts_edits(item, texts, verdict)
        say = _SAY[self.mode]
        return [say(verdict, self.reveal_hidden, agent) for agent in range(len(texts))]

    def _experts_edits(self, item: Item, texts: Sequence[str], verdict: Verdict) -> list[str]:
        assert self.expert is not None  # the task checks its options
        names = (*self.judge.team.functions, "main")
        asked = question(item["prompt"], dict(zip(names, texts, strict=True)), _levels_in_full(verdict, self.reveal_hidden, -1))
        return suggestions(self.expert(asked), names)


def suggestions(answer: object, names: Sequence[str]) -> list[str]:
    """What an expert's answer tells each agent.

    Args:
        answer: of the expert.
        names: under which it has each agent's edits.

    Raises:
        TypeError: the answer is no text.
    """
    if not isinstance(answer, str):
        raise TypeError(f"the expert must answer with a text, got {type(answer).__name__}: {answer!r:.200}")
    edits = read_suggestions(answer, names)
    if edits is None:
        return ["The expert's answer could not be read: no suggestions."] * len(names)
    return [_suggested(edits[name]) for name in names]


def _suggested(edits: Sequence[str]) -> str:
    if not edits:
        return "The expert has no suggestions for you."
    return "\n".join([f"The expert suggests ({len(edits)}):", *(f"- {edit}" for edit in edits)])


def all_or_not(levels: Mapping[str, bool], untested: str) -> str:
    """Whether all levels are passed, in a sentence.

    Args:
        levels: by name, whether each is passed; without `tests` if none may be spoken of.
        untested: why then.
    """
    unknown = "" if "tests" in levels else f" ({untested})"
    return ("All levels are passed" if all(levels.values()) else "Not all levels are passed") + f"{unknown}."


def level_by_level(levels: Mapping[str, bool], untested: str) -> str:
    """A line for each level; arguments as for `all_or_not`."""
    lines = [f"- {name}: {'passed' if passed else 'not passed'}" for name, passed in levels.items()]
    if "tests" not in levels:
        lines.append(f"- tests: {untested}")
    return "\n".join(["Levels:", *lines])


def bulleted(lines: Sequence[str]) -> str:
    """A list; lines that begin with a space belong to the point before."""
    return "\n".join(line if line.startswith(" ") else f"- {line}" for line in lines)


# ---- what can be said: of a verdict, with or without hidden tests, to one agent (-1 is told all) ----


def _nothing(verdict: Verdict, reveal: bool, agent: int) -> str:
    return ""


def _all_or_not(verdict: Verdict, reveal: bool, agent: int) -> str:
    return all_or_not(dict(_levels(verdict, reveal)), NO_EXAMPLES)


def _level_by_level(verdict: Verdict, reveal: bool, agent: int) -> str:
    return level_by_level(dict(_levels(verdict, reveal)), NO_EXAMPLES)


def _levels_in_full(verdict: Verdict, reveal: bool, agent: int) -> str:
    lines = [*_on_definitions(verdict), *_on_syntax(verdict), *_on_tests(verdict, reveal), *_on_collaboration(verdict, agent)]
    return bulleted(lines)


_SAY: dict[str, Callable[[Verdict, bool, int], str]] = {
    "plain": _nothing,
    "passed": _all_or_not,
    "level_passed": _level_by_level,
    "level_feedback": _levels_in_full,
}


def _levels(verdict: Verdict, reveal: bool) -> Iterator[tuple[str, bool]]:
    """Each level that may be spoken of, and whether it is passed."""
    yield "definitions", verdict.main_defined and all(verdict.helpers_defined)
    yield "syntax", verdict.whole
    outcomes = _outcomes(verdict, reveal)
    if outcomes:
        yield "tests", all(outcome is not None and outcome.status == "passed" for _, outcome in outcomes)
    if verdict.team.helpers:
        yield "collaboration", verdict.used_share() == 1.0 and not verdict.collaboration.wrapper


def _outcomes(verdict: Verdict, reveal: bool) -> list[tuple[str, Outcome | None]]:
    """What was tried, in words, and how it came out: None if the program did not run."""
    problem = verdict.problem
    tried = [f"{example.call} should give {example.expected}" for example in problem.examples]
    outcomes: list[Outcome | None] = list(verdict.examples) or [None] * len(tried)
    if reveal:
        tried = [*problem.tests.shown, *tried]
        outcomes = [*(verdict.hidden or [None] * len(problem.tests.shown)), *outcomes]
    return list(zip(tried, outcomes, strict=True))


def _on_definitions(verdict: Verdict) -> Iterator[str]:
    names = (*verdict.team.functions, verdict.problem.entry_point)
    defined = (*verdict.helpers_defined, verdict.main_defined)
    for name, source, good in zip(names, verdict.sources, defined, strict=True):
        if source.function(name) is not None:
            state = "is there" if good else "returns nothing"
        else:
            state = "is no plain function" if name in source.names else "is missing"
        yield f"definitions: `{name}` {state}."
        if source.left_out:
            yield f"definitions: left out of the text for `{name}` is what binds or uses {listed(source.left_out)}: no helper may."


def _on_syntax(verdict: Verdict) -> Iterator[str]:
    names = (*verdict.team.functions, verdict.problem.entry_point)
    wrong = [(name, source.problem) for name, source in zip(names, verdict.sources, strict=True) if source.problem is not None]
    for name, problem in wrong:
        yield f"syntax: the text for `{name}` does not parse as a whole: {problem}."
    if not wrong:
        yield "syntax: every text parses."


def _on_tests(verdict: Verdict, reveal: bool) -> Iterator[str]:
    outcomes = _outcomes(verdict, reveal)
    what = "tests" if reveal else "public examples"
    if not outcomes:
        yield f"tests: {NO_EXAMPLES}."
        return
    if verdict.report is None:
        yield f"tests: nothing could be run without `{verdict.problem.entry_point}`."
        return
    if verdict.report.loaded.status != "passed":
        yield f"tests: the program cannot be loaded: {failure(verdict.report.loaded)}."
        return
    failed = [(tried, outcome) for tried, outcome in outcomes if outcome is not None and outcome.status != "passed"]
    yield f"tests: {len(outcomes) - len(failed)} of {len(outcomes)} {what} pass{':' if failed else '.'}"
    for tried, outcome in failed:
        yield f"    {tried}: {failure(outcome)}"


def failure(outcome: Outcome) -> str:
    """How something ended that did not pass, in a few words."""
    if outcome.status != "failed" and not outcome.exception:
        return outcome.status
    parts = [outcome.exception or "", outcome.message or ""]
    if outcome.exception == "AssertionError" and outcome.message:
        parts = parts[1:]  # "gave 3" says it
    return printable(": ".join(part for part in parts if part))[:MOST_SHOWN] or outcome.status


def printable(text: str) -> str:
    """A text from a program, with control characters (but newlines and tabs) and halves of surrogate pairs written as escapes."""
    return "".join(
        char.encode("unicode_escape").decode() if char not in "\n\t" and category(char) in ("Cc", "Cs") else char for char in text
    )


def _on_collaboration(verdict: Verdict, agent: int) -> Iterator[str]:
    """To a helper: of its own function; to the main programmer and to an expert: of all."""
    entry, work = verdict.problem.entry_point, verdict.collaboration
    if work.reaching is not None and verdict.team.helpers:
        yield f"collaboration: none, since the text for `{entry}` uses `{work.reaching}`, by which functions can be changed."
        return
    for number, name in enumerate(verdict.team.functions):
        if agent in (number, verdict.team.helpers, -1):
            yield f"collaboration: {_state_of(name, verdict)}"
    if verdict.team.helpers and agent in (verdict.team.helpers, -1) and work.called and work.wrapper:
        yield f"collaboration: `{entry}` does little more than hand on what {listed(work.called)} gives."


def _state_of(name: str, verdict: Verdict) -> str:
    entry, work = verdict.problem.entry_point, verdict.collaboration
    if name in work.redefined:
        return f"the main programmer defines `{name}` again, so the helper's function is not used."
    if name not in work.called:
        return f"`{entry}` does not call `{name}`."
    if name in work.ignored:
        return f"`{entry}` calls `{name}` but does nothing with what it returns."
    if name in verdict.trivial:
        return f"`{entry}` uses `{name}`, which only returns a constant or what it is given."
    return f"`{entry}` uses what `{name}` returns."

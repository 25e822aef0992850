"""What a sandbox is asked and what it answers: limits, a trial, a report. Values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

Status: TypeAlias = Literal["passed", "failed", "error", "timeout", "memory", "exited", "not run"]
"""How something ended; see `Outcome`."""

NameKind: TypeAlias = Literal["function", "class", "value"]


class SandboxError(RuntimeError):
    """The sandbox could not judge a solution: a fault of the machine or of the data set's own code, never of the solution."""


@dataclass(frozen=True)
class Limits:
    """What a solution may use.

    A *step* is the loading of the solution, the setup, or one check. CPU time counts all processes of the solution and does not
    depend on how busy the machine is. Waiting time is wall time without the time that the solution waited for a processor.

    Attributes:
        cpu_seconds: CPU time of a step.
        wall_seconds: waiting time of a step, a backstop against sleeping; a trial may take four times as long.
        total_cpu_seconds: CPU time of a trial.
        memory_mb: MiB beyond what the interpreter itself has: address space of each process, resident memory of all together.
        processes: processes and threads at one time.
        open_files: descriptors of each process.
        file_mb: MiB of the largest file; the trial's folder holds four times that.
        output_kb: KiB of standard output and error that are kept.

    Raises:
        ValueError: for one that is no finite number above 0, or no whole number where things are counted.
    """

    cpu_seconds: float = 4.0
    wall_seconds: float = 20.0
    memory_mb: int = 512
    processes: int = 16
    open_files: int = 64
    file_mb: int = 16
    output_kb: int = 256
    total_cpu_seconds: float = 60.0

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            counted = not option.name.endswith("_seconds")
            if isinstance(value, bool) or not isinstance(value, int if counted else (int, float)):
                kind = "a whole number" if counted else "a number"
                raise ValueError(f"limit {option.name} must be {kind}, got {value!r}")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"limit {option.name} must be finite and above 0, got {value!r}")
        if self.open_files < 16:
            raise ValueError(f"limit open_files must be at least 16 for an interpreter to work, got {self.open_files!r}")


@dataclass(frozen=True)
class Trial:
    """A solution and what it is tried on.

    Attributes:
        solution: untrusted source; runs in a process of its own as the module `solution`.
        names: of the solution that setup and checks need; bound there before the setup, as remote objects.
        setup: trusted source that runs in the judge, in the namespace of the names.
        checks: trusted sources; each runs in a copy of the setup's namespace and is a verdict.
        unittest: the checks are the test methods of the `TestCase` classes that the setup defines.
        operators: objects of the solution's classes take part in arithmetic, ordering and `in` with the values of the tests, so
            that a class says itself what `total - 5` is. A solution can then defeat tests that rely on it; see docs/sandbox.md.

    Raises:
        ValueError: checks with `unittest`, or a name that is none.
        TypeError: a source that is no text.
    """

    solution: str
    names: tuple[str, ...] = ()
    setup: str = ""
    checks: tuple[str, ...] = ()
    unittest: bool = False
    operators: bool = False

    def __post_init__(self) -> None:
        for name in ("names", "checks"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} must be several texts, got the text {value!r}")
            object.__setattr__(self, name, tuple(value))
        for source in (self.solution, self.setup, *self.checks):
            if not isinstance(source, str):
                raise TypeError(f"solution, setup and checks must be texts, got {type(source).__name__}")
        for name in self.names:
            if not (isinstance(name, str) and name.isidentifier()):
                raise ValueError(f"names must be Python identifiers, got {name!r}")
        if self.unittest and self.checks:
            raise ValueError(f"with unittest the setup's test methods are the checks; got {len(self.checks)} checks as well")


@dataclass(frozen=True)
class Outcome:
    """How the loading, the setup or a check ended.

    Attributes:
        name: "load", "setup", the number of a check from 0, or `Class.method` of a test.
        status: "passed"; "failed" by an AssertionError; "error" by another exception; "timeout" by CPU or waiting time; "memory";
            "exited" if the solution's process ended; "not run".
        exception: name of the exception's class.
        message: its text, or why it ended; cut.
        line: of the solution if an exception came from there, otherwise of the setup or check that raised it.
    """

    name: str
    status: Status
    exception: str = ""
    message: str = ""
    line: int | None = None

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(f"status must be one of {', '.join(get_args(Status))}, got {self.status!r}")

    @property
    def passed(self) -> bool:
        """Whether it ended as it should."""
        return self.status == "passed"


@dataclass(frozen=True)
class Report:
    """What a trial showed. A function of the trial and the limits, but for `cpu_seconds`, which therefore counts in no comparison.

    Attributes:
        loaded: how the solution's import ended.
        names: kind of every name that the solution has; the others are absent.
        setup: how the setup ended.
        checks: in order.
        output: of the solution, standard output and error together, cut.
        cpu_seconds: that the solution's processes used.
    """

    loaded: Outcome
    names: Mapping[str, NameKind]
    setup: Outcome
    checks: tuple[Outcome, ...]
    output: str = ""
    cpu_seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", MappingProxyType(dict(self.names)))

    def __hash__(self) -> int:
        return hash((self.loaded, tuple(self.names.items()), self.setup, self.checks, self.output))

    def __reduce__(self) -> tuple[type[Report], tuple[object, ...]]:
        return Report, (self.loaded, dict(self.names), self.setup, self.checks, self.output, self.cpu_seconds)

    @property
    def passed(self) -> int:
        """Number of checks that passed."""
        return sum(check.passed for check in self.checks)

    @property
    def pass_rate(self) -> float:
        """Share of the checks that passed, 0 without any. In [0, 1]."""
        return self.passed / len(self.checks) if self.checks else 0.0

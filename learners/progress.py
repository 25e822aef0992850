"""What a person sees while a run goes on: a live bar in a terminal, a line now and then elsewhere, nothing if not wanted."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

# Rate and time left are measured over this many of the latest reports, so that they follow a run that gets faster or slower.
_WINDOW = 50
_SMOOTHING = 0.9
_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows rows done, smoothed reward, env steps, speed and time left.

    A context manager: leaving it, by an exception too, gives the terminal back as it was.

    Args:
        total: rows of the whole run; None if nobody knows, as for an iterable data set.
        done: rows that were done before, on resume.
        unit: what a row is, in the plural.
        enabled: False shows nothing.
        stream: where to show it; standard error by default. A terminal gets a bar (which needs rich), anything else plain lines.
        clock: seconds, for speed and time left.

    Raises:
        ImportError: on entry, if a bar is to be shown and rich is not installed.
    """

    def __init__(
        self,
        total: int | None,
        *,
        done: int = 0,
        unit: str = "items",
        enabled: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._done = done
        self._unit = unit
        self._clock = clock
        self._env_step: int | None = None
        self._reward = _Smoothed()
        self._status: dict[str, str] = {}
        self._reports: deque[tuple[float, int, int]] = deque(maxlen=_WINDOW)
        stream = sys.stderr if stream is None else stream
        self._display: _Display = _Nothing()
        if enabled and stream is not None:  # some programs without a console have no standard error
            self._display = _Bar(stream) if stream.isatty() else _Lines(stream, clock)

    def __enter__(self) -> Progress:
        self._display.start(self._count(), self._done, self._total)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._display.stop()

    def start_phase(self, name: str, total: int | None, done: int = 0, *, unit: str = "items") -> None:
        """Count anew, for a part of the run.

        Args:
            name: of the part; "" if the run has no others.
            total: rows of the part.
            done: rows of it that were done before, on resume.
            unit: what a row is, in the plural.
        """
        self._total, self._done, self._unit = total, done, unit
        self._reports.clear()
        self._status.pop("speed", None)
        self._status.pop("left", None)
        if name:
            self._status["phase"] = name

    def advance(self, rows: int, *, env_step: int, reward: float | None = None) -> None:
        """Report rows that were trained on.

        Args:
            rows: how many more.
            env_step: of the run so far.
            reward: mean reward of these rows.
        """
        self._done += rows
        self._reports.append((self._clock(), self._done, env_step))
        if reward is not None:
            self._status["reward"] = f"reward {self._reward.add(reward):.3f}"
        self._status["env steps"] = f"{env_step:,} env steps"
        self._env_step = env_step
        self._status |= self._speed()
        order = ("phase", "reward", "evaluation", "env steps", "speed", "left")
        status = " · ".join(self._status[name] for name in order if name in self._status)
        self._display.show(self._count(), self._done, self._total, status)

    def show_evaluation(self, values: Mapping[str, float]) -> None:
        """Keep an evaluation's return in view; `values` by their names with `eval/`."""
        headline = headline_return(values, "eval/")
        if headline is not None:
            self._status["evaluation"] = f"eval {headline:.3f}"
            place = "" if self._env_step is None else f"env step {self._env_step:,}: "
            self._display.say(f"{place}evaluation return {headline:.3f}")

    def say(self, text: str) -> None:
        """Show a line of text and keep it."""
        self._display.say(text)

    def _count(self) -> str:
        of = "" if self._total is None else f"/{self._total:,}"
        return f"{self._done:,}{of} {self._unit}"

    def _speed(self) -> dict[str, str]:
        (then, rows_then, steps_then), (now, rows, steps) = self._reports[0], self._reports[-1]
        if now <= then:
            return {}
        # Training on stored data takes no env steps.
        speed = {"speed": f"{(steps - steps_then) / (now - then):.1f}/s"} if steps > steps_then else {}
        if self._total is not None and rows > rows_then:
            seconds = (self._total - rows) * (now - then) / (rows - rows_then)
            speed["left"] = f"{_duration(seconds)} left"
        return speed


def headline_return(values: Mapping[str, float], prefix: str = "") -> float | None:
    """The one number of an entry of metrics: the return from the first turn on, or else its reward; None without either."""
    for name in ("turn_1/expected_return", "turn_1/reward_mean"):
        if prefix + name in values:
            return values[prefix + name]
    return None


class _Smoothed:
    """An exponential average that starts at the first value and not at 0."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: float) -> float:
        self._sum = _SMOOTHING * self._sum + value
        self._weight = _SMOOTHING * self._weight + 1.0
        return self._sum / self._weight


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Display(Protocol):
    def start(self, count: str, done: int, total: int | None) -> None: ...

    def show(self, count: str, done: int, total: int | None, status: str) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> None: ...


class _Nothing:
    def start(self, count: str, done: int, total: int | None) -> None:
        pass

    def show(self, count: str, done: int, total: int | None, status: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class _Lines:
    """At most a line every ten seconds, and the last state at the end."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._shown_at: float | None = None
        self._pending: str | None = None

    def start(self, count: str, done: int, total: int | None) -> None:
        pass

    def show(self, count: str, done: int, total: int | None, status: str) -> None:
        self._pending = f"{count} · {status}"
        if self._shown_at is None or self._clock() - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = self._clock()
            self._print_pending()

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def stop(self) -> None:
        self._print_pending()

    def _print_pending(self) -> None:
        if self._pending is not None:
            self.say(self._pending)
            self._pending = None


class _Bar:
    """A bar of rich on a terminal; one that only moves to and fro while the total is unknown."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rich: RichProgress | None = None

    def start(self, count: str, done: int, total: int | None) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress
            from rich.table import Column
        except ImportError as error:
            raise ImportError("the progress bar needs rich: pip install 'llm-envs[train]', or switch progress off") from error
        self._rich = RichProgress(
            TextColumn("{task.fields[count]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True)),
            console=Console(file=self._stream),
            # Text that reward functions print appears above the bar. Unless it goes to a file: then it belongs there.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._rich.start()
        self._task = self._rich.add_task("", total=total, completed=done, count=count, status="")

    def show(self, count: str, done: int, total: int | None, status: str) -> None:
        if self._rich is not None:
            self._rich.update(self._task, total=total, completed=done, count=count, status=status)

    def say(self, text: str) -> None:
        if self._rich is not None:
            self._rich.console.print(text, markup=False, highlight=False, emoji=False)

    def stop(self) -> None:
        if self._rich is not None:
            self._rich.stop()
            self._rich = None

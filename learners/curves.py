"""The curves of a run as a figure, from its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from learners.run_folder import CONFIG_FILE, METRICS_FILE, PLOT_FILE
from learners.tracking import read_metrics
from llm_envs.types import Metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with any kind of colour vision, and in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
# From this many points on a curve is drawn as a running mean, over the raw one where there are few curves.
_SMOOTHED_FROM, _MOST_RAW = 20, 4

Series = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _Panel:
    """One diagram of the figure.

    Attributes:
        title: above it.
        unit: of the y axis.
        pattern: full match of the metrics it shows; the group `series` names the curve.
        evaluation: whether `eval/` metrics of the same names are shown too.
        minimum_series: not shown with fewer curves.
        hide_zeros: leave out curves that are 0 throughout.
        training: whether metrics of training are shown.
    """

    title: str
    unit: str
    pattern: str
    evaluation: bool = False
    minimum_series: int = 1
    hide_zeros: bool = False
    training: bool = True


_RETURNS = _Panel("Return from each turn on", "return", r"turn_(?P<series>\d+)/expected_return", evaluation=True)
# Where a model scores training, its scores and the task's rewards are in units of their own.
_SCORES = _Panel("Score of the reward model from each turn on", "score", _RETURNS.pattern)
_TASK_RETURNS = _Panel("Return of the task from each turn on", "return", _RETURNS.pattern, evaluation=True, training=False)
_PANELS = (
    # With one turn the reward is the return.
    _Panel("Reward of each turn", "reward", r"turn_(?P<series>\d+)/reward_mean", evaluation=True, minimum_series=2),
    _Panel("Pairs ranked right", "share", r"(?P<series>(?:preference|reward_model)/(?:holdout_)?accuracy)"),
    _Panel("Margin of pairs", "nats", r"preference/(?:(?P<series>.+)/)?margin"),
    _Panel("Completion length", "tokens", r"(?:(?P<series>.+)/)?completion_length"),
    _Panel("Entropy", "nats a token", r"(?:(?P<series>.+)/)?entropy"),
    _Panel("KL to the reference", "nats", r"turn_(?P<series>\d+)/reference_kl_mean"),
    _Panel("Gradient norm", "before clipping", r"(?:(?P<series>.+)/)?grad_norm"),
    _Panel("Completions cut at the limit", "share", r"(?:(?P<series>.+)/)?cut_share", hide_zeros=True),
    _Panel("States", "share", r"(?P<series>zero_spread_share|not_expanded_share)", hide_zeros=True),
)
# What a learner with names of its own gets.
_OTHER = _Panel("Metrics", "value", r"(?P<series>.+)")
_LABELS = {
    "zero_spread_share": "equal rewards",
    "not_expanded_share": "not expanded",
    "preference/accuracy": "by the policies",
    "reward_model/accuracy": "by the reward model",
    "reward_model/holdout_accuracy": "by the reward model, held out",
}


def plot(run_dir: str | Path, path: str | Path | None = None) -> Path:
    """The PNG with the curves of a run: returns in training and evaluation, lengths, entropies and what else was logged.

    Values that are not finite are left out and counted in the legend.

    Args:
        run_dir: folder of the run, with `metrics.jsonl` and perhaps `config.yaml`.
        path: of the PNG; `plot.png` in the folder by default.

    Raises:
        FileNotFoundError: there is no `metrics.jsonl`.
        ValueError: it holds nothing that can be drawn.
        ImportError: matplotlib is not installed.
    """
    try:
        # Figures made without pyplot need no display and leave the backend of the caller alone.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'llm-envs[train]'") from error
    run_dir = Path(run_dir)
    entries = read_metrics(run_dir / METRICS_FILE)
    scored = any("reward_model/loss" in entry.values for entry in entries)
    returns = (_TASK_RETURNS, _SCORES) if scored else (_RETURNS,)
    shown = _shown((*returns, *_PANELS), entries) or _shown((_OTHER,), entries)
    if not shown:
        raise ValueError(f"{run_dir / METRICS_FILE} holds nothing that can be drawn")
    heights = [3.2 if panel is shown[0][0] else 1.9 for panel, _, _ in shown]
    figure = Figure(figsize=(9.0, 0.9 + sum(heights)), dpi=130, layout="constrained")
    axes = figure.subplots(len(shown), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for ax, (panel, training, evaluation) in zip(axes, shown, strict=True):
        _draw_panel(ax, panel, training, evaluation)
    _finish(figure, axes[-1], _run_title(run_dir))
    path = run_dir / PLOT_FILE if path is None else Path(path)
    figure.savefig(path)
    return path


def _panel_series(panel: _Panel, entries: Sequence[Metrics]) -> tuple[Series, Series]:
    """Curves by name, in training and in evaluation: env steps and values, both [points]."""
    training: dict[str, list[tuple[int, float]]] = {}
    evaluation: dict[str, list[tuple[int, float]]] = {}
    for entry in entries:
        for name, value in entry.values.items():
            curves, plain = (evaluation, name.removeprefix("eval/")) if name.startswith("eval/") else (training, name)
            match = re.fullmatch(panel.pattern, plain)
            if match is not None and (panel.training if curves is training else panel.evaluation):
                curves.setdefault(match["series"] or "team", []).append((entry.env_step, value))
    return _arrays(training), _arrays(evaluation)


def _arrays(curves: Mapping[str, Sequence[tuple[int, float]]]) -> Series:
    arrays = {name: np.array(points, dtype=np.float64).T for name, points in curves.items()}
    return {name: (x, y) for name, (x, y) in arrays.items() if np.isfinite(y).any()}


def _shown(panels: Sequence[_Panel], entries: Sequence[Metrics]) -> list[tuple[_Panel, Series, Series]]:
    """The panels that have something to show, with their curves in training and evaluation."""
    found = []
    for panel in panels:
        training, evaluation = _panel_series(panel, entries)
        some = not panel.hide_zeros or any(y.any() for _, y in training.values())
        if some and len({*training, *evaluation}) >= panel.minimum_series:
            found.append((panel, training, evaluation))
    return found


def _draw_panel(ax: Axes, panel: _Panel, training: Series, evaluation: Series) -> None:
    names = list(dict.fromkeys([*training, *evaluation]))
    for index, name in enumerate(names):
        label = _label(panel, name, alone=len(names) == 1)
        # By place among all curves, hidden ones too: an agent keeps its colour from panel to panel.
        colour, line = _COLOURS[index % len(_COLOURS)], _LINES[index // len(_COLOURS) % len(_LINES)]
        if name in training and (training[name][1].any() or not panel.hide_zeros):
            text = f"{label}training" if panel.evaluation else label
            _draw_curve(ax, *training[name], text, colour, line, raw=len(names) <= _MOST_RAW)
        if name in evaluation:
            # A single turn needs no colour that tells it from others, so its evaluation gets one of its own.
            own = _COLOURS[1] if len(names) == 1 and training else colour
            _draw_evaluation(ax, *evaluation[name], f"{label}evaluation", own)
    title = panel.title.removesuffix(" from each turn on") if len(names) == 1 else panel.title
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold")
    ax.set_ylabel(panel.unit)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False, fontsize=9)
    ax.grid(color="#e4e4e4", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _label(panel: _Panel, name: str, *, alone: bool) -> str:
    if panel.evaluation:
        return "" if alone else f"turn {name}, "
    return f"turn {name}" if name.isdecimal() else _plain(_LABELS.get(name, name))


def _plain(text: str) -> str:
    """A text that matplotlib shows as it is: dollars would make it a formula, an underscore in front would hide it."""
    return text.replace("$", r"\$") if not text.startswith("_") else _plain(f" {text}")


def _draw_curve(ax: Axes, x: np.ndarray, y: np.ndarray, label: str, colour: str, line: str, *, raw: bool) -> None:
    finite = np.isfinite(y)
    label += _not_finite(finite)
    x, y = x[finite], y[finite]
    if len(x) < _SMOOTHED_FROM:
        ax.plot(x, y, label=label, linewidth=1.6, marker=".", color=colour, linestyle=line)
        return
    if raw:
        ax.plot(x, y, linewidth=0.8, alpha=0.3, color=colour)
    ax.plot(x, _running_mean(y, len(y) // _SMOOTHED_FROM), label=label, linewidth=1.8, color=colour, linestyle=line)


def _draw_evaluation(ax: Axes, x: np.ndarray, y: np.ndarray, label: str, colour: str) -> None:
    finite = np.isfinite(y)
    ax.plot(
        x[finite],
        y[finite],
        label=label + _not_finite(finite),
        color=colour,
        marker="o",
        markersize=5,
        markeredgecolor="white",
        linewidth=1.2,
        linestyle="--",
        zorder=3,
    )


def _not_finite(finite: np.ndarray) -> str:
    return "" if finite.all() else f" ({int((~finite).sum())} not finite)"


def _running_mean(values: np.ndarray, radius: int) -> np.ndarray:
    """Mean of the values at most `radius` places away, fewer at the ends. [points] → [points]."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    first, last = np.maximum(places - radius, 0), np.minimum(places + radius + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def _finish(figure: Figure, lowest: Axes, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    lowest.set_xlabel("env steps")
    low, high = lowest.get_xlim()
    if high - low < 2:  # a single point: the axis would show fractions of a step
        lowest.set_xlim(low - 1, high + 1)
    lowest.xaxis.set_major_locator(MaxNLocator(integer=True))
    lowest.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    figure.suptitle(_plain(title), x=0.01, horizontalalignment="left", fontsize=12)
    figure.align_ylabels()


def _run_title(run_dir: Path) -> str:
    """Learner, environment, model and seed of a run as far as its config says, and its folder's name."""
    file = run_dir / CONFIG_FILE
    config = {}
    if file.exists():
        import yaml

        config = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    learner, env, seed = _named(config, "learner"), _named(config, "env"), _of(config, "learner", "seed")
    parts = [" on ".join(part for part in (learner, env) if part), _named(config, "model")]
    parts += [f"seed {seed}" if seed is not None else "", run_dir.resolve().name]
    return " · ".join(part for part in parts if part)


def _of(config: Mapping, section: str, option: str) -> object:
    value = config.get(section)
    return value.get(option) if isinstance(value, Mapping) else None


def _named(config: Mapping, section: str) -> str:
    value = _of(config, section, "name") or config.get(section)
    return value if isinstance(value, str) else ""

"""Guards that a run folder turns into a figure with the right curves, a right summary, and completions that are safe to print."""

import io
import json
import math
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from learners.curves import plot
from learners.report import completions_text, readable, show_completions, summarize
from llm_envs.types import Completion, EnvStep

BLUE, VERMILLION, GREEN = "#0072b2", "#d55e00", "#009e73"


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws a run and gives the figure that was saved."""
    figures = []
    save = Figure.savefig

    def savefig(figure, path, **options):
        figures.append(figure)
        save(figure, path, dpi=30, **options)  # nobody looks at it

    monkeypatch.setattr(Figure, "savefig", savefig)

    def draw(rows, config=None):
        write(tmp_path, rows)
        if config is not None:
            (tmp_path / "config.yaml").write_text(config)
        path = plot(tmp_path)
        assert path.name == "plot.png" and path.read_bytes().startswith(b"\x89PNG")
        return figures[-1]

    return draw


def write(directory, rows):
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def curves(ax):
    """Points of every labelled curve, by its label."""
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines if line.get_label()[0] != "_"}


def colours(ax):
    return {line.get_label(): to_hex(line.get_color()) for line in ax.lines if line.get_label()[0] != "_"}


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def single_turn(step, value, **more):
    return {"env_step": step, "turn_1/reward_mean": value, "turn_1/expected_return": value, **more}


def test_returns_of_training_and_evaluation_share_the_env_step_axis(drawn):
    evaluation = {"env_step": 0, "eval/turn_1/expected_return": 0.25, "eval/turn_1/reward_mean": 0.25}
    figure = drawn([evaluation, single_turn(8, 0.5), single_turn(16, 0.75), {**evaluation, "env_step": 16}])
    assert titles(figure) == ["Return"], "with one turn the reward is the return, so it is shown once"
    (ax,) = figure.axes
    assert curves(ax) == {"training": ([8, 16], [0.5, 0.75]), "evaluation": ([0, 16], [0.25, 0.25])}
    assert colours(ax) == {"training": BLUE, "evaluation": VERMILLION}
    assert ax.get_xlabel() == "env steps" and ax.get_ylabel() == "return"


def test_every_turn_has_a_colour(drawn):
    row = {f"turn_{turn}/{name}": float(turn) for turn in (1, 2) for name in ("reward_mean", "expected_return")}
    evaluation = {f"eval/{name}": value for name, value in row.items()}
    figure = drawn([{"env_step": step, **values} for step in (1, 2) for values in (row, evaluation)])
    assert titles(figure) == ["Return from each turn on", "Reward of each turn"]
    for ax in figure.axes:
        assert colours(ax) == {
            "turn 1, training": BLUE,
            "turn 1, evaluation": BLUE,
            "turn 2, training": VERMILLION,
            "turn 2, evaluation": VERMILLION,
        }


def test_scores_of_a_reward_model_and_rewards_of_the_task_have_panels_of_their_own(drawn):
    fitted = {"reward_model/loss": 0.5, "reward_model/accuracy": 0.75, "reward_model/holdout_accuracy": 0.5}
    figure = drawn([{"env_step": 8, **fitted}, single_turn(16, 4.0), {"env_step": 16, "eval/turn_1/expected_return": 0.5}])
    assert titles(figure) == ["Return of the task", "Score of the reward model", "Pairs ranked right"]
    task, scores, accuracy = map(curves, figure.axes)
    assert (list(task.values()), list(scores.values())) == ([([16], [0.5])], [([16], [4.0])])
    assert accuracy == {"by the reward model": ([8], [0.75]), "by the reward model, held out": ([8], [0.5])}


def test_margins_of_pairs_are_drawn(drawn):
    figure = drawn([{"env_step": 8, "preference/margin": 1.0, "preference/agent_0/margin": 0.25, "preference/accuracy": 1.0}])
    assert titles(figure) == ["Pairs ranked right", "Margin of pairs"]
    assert curves(figure.axes[1]) == {"team": ([8], [1.0]), "agent_0": ([8], [0.25])}


def test_an_agent_keeps_its_colour_in_every_panel(drawn):
    def row(step):
        agents = {}
        for number, agent in enumerate(("writer_0", "reader_1")):
            # Only the second agent is ever cut, so the first has no curve there.
            agents |= {
                f"{agent}/completion_length": 5.0,
                f"{agent}/entropy": 1.0,
                f"{agent}/grad_norm": 2.0,
                f"{agent}/cut_share": number,
            }
            agents |= {f"{agent}/completion_length_max": 9.0, f"{agent}/loss": -1.0}
        return single_turn(step, 0.5, zero_spread_share=0.25, not_expanded_share=0.0, **agents)

    figure = drawn([row(1), row(2)])
    assert titles(figure) == ["Return", "Completion length", "Entropy", "Gradient norm", "Completions cut at the limit", "States"]
    both = {"writer_0": BLUE, "reader_1": VERMILLION}
    assert [colours(ax) for ax in figure.axes[1:]] == [both, both, both, {"reader_1": VERMILLION}, {"equal rewards": BLUE}]


def test_kl_is_shown_where_it_was_computed(drawn):
    figure = drawn([single_turn(step, 0.5, **{"turn_1/reference_kl_mean": 0.125}) for step in (1, 2)])
    assert titles(figure) == ["Return", "KL to the reference"] and list(curves(figure.axes[1])) == ["turn 1"]


def test_names_of_an_unknown_learner_are_drawn_as_they_are(drawn):
    figure = drawn([{"env_step": step, "margin": 0.5, "_cost/$": 1.0} for step in (1, 2)])
    assert titles(figure) == ["Metrics"] and [line.strip() for line in curves(figure.axes[0])] == ["margin", r"_cost/\$"]


def test_values_that_are_not_finite_are_left_out_and_counted(drawn):
    values = [math.nan, 0.5, math.inf, 0.25]
    text = {math.nan: "NaN"}
    rows = [single_turn(step, text.get(value, value) if not math.isnan(value) else "NaN") for step, value in enumerate(values)]
    figure = drawn([{**row, **{k: "Infinity" for k, v in row.items() if v == math.inf}} for row in rows])
    assert curves(figure.axes[0]) == {"training (2 not finite)": ([1, 3], [0.5, 0.25])}


def test_many_points_are_smoothed_over_the_raw_curve(drawn):
    """40 points, radius 40 // 20 = 2: at the ends means of 3 and 4 values, inside of 5."""
    values = [float(index % 2) for index in range(40)]
    figure = drawn([single_turn(step, value) for step, value in enumerate(values)])
    _, smooth = curves(figure.axes[0])["training"]
    expected = [np.mean(values[max(0, index - 2) : index + 3]) for index in range(40)]
    np.testing.assert_allclose(smooth, expected)
    raw = [line for line in figure.axes[0].lines if line.get_label()[0] == "_"]
    assert len(raw) == 1 and list(raw[0].get_ydata()) == values


def test_a_single_point_is_marked(drawn):
    (ax,) = drawn([single_turn(5, 0.5)]).axes
    assert ax.lines[0].get_marker() == "." and ax.get_xlim()[1] - ax.get_xlim()[0] >= 2


def test_the_title_says_what_ran(drawn, tmp_path):
    title = drawn([single_turn(1, 0.5)], "learner: {name: magrpo, seed: 3}\nenv: {name: split-v0}\nmodel: tiny\n").get_suptitle()
    assert title == f"magrpo on split-v0 · tiny · seed 3 · {tmp_path.name}"
    assert drawn([single_turn(1, 0.5)], "learner: magrpo\nmodel: null\n").get_suptitle() == f"magrpo · {tmp_path.name}"
    assert drawn([single_turn(1, 0.5)], "").get_suptitle() == tmp_path.name


def test_legends_do_not_cover_the_curves(drawn):
    figure = drawn([single_turn(step, 0.5, **{f"{agent}/entropy": 1.0 for agent in "abcdefghi"}) for step in (1, 2)])
    width, height = figure.canvas.get_width_height()
    for ax in figure.axes:
        legend, area = ax.get_legend().get_window_extent(), ax.get_window_extent()
        assert legend.x0 > area.x1, "outside"
        assert legend.x0 >= 0 and legend.x1 <= width and legend.y0 >= 0 and legend.y1 <= height, "inside the figure"


def test_a_killed_run_can_be_drawn(tmp_path):
    write(tmp_path, [single_turn(1, 0.5)])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"env_st')
    other = tmp_path / "other.png"
    assert plot(tmp_path, other) == other and other.exists()


def test_what_cannot_be_drawn_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"metrics\.jsonl"):
        plot(tmp_path)
    write(tmp_path, [])
    with pytest.raises(ValueError, match=r"metrics\.jsonl holds nothing"):
        plot(tmp_path)
    write(tmp_path, [{"env_step": 1, "turn_1/expected_return": "NaN"}])
    with pytest.raises(ValueError, match="holds nothing"):
        plot(tmp_path)


def test_plotting_leaves_the_callers_backend_alone(tmp_path):
    import matplotlib

    matplotlib.use("svg")
    write(tmp_path, [single_turn(1, 0.5)])
    plot(tmp_path)
    assert matplotlib.get_backend() == "svg"


def test_a_missing_matplotlib_is_named_with_its_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'llm-envs\[train\]'"):
        plot(tmp_path)


# The summary


def test_a_summary_has_first_and_last_evaluation_steps_and_time(tmp_path):
    """32 env steps at 16 a second and 64 more at 32 a second: 2 s + 2 s."""
    write(
        tmp_path,
        [
            {"env_step": 0, "eval/turn_1/expected_return": 0.25, "eval/own": 1.0},
            {"env_step": 32, "time/env_steps_per_second": 16.0},
            {"env_step": 96, "time/env_steps_per_second": 32.0},
            {"env_step": 96, "eval/turn_1/expected_return": 0.75},
        ],
    )
    summary = summarize(tmp_path)
    assert summary.env_steps == 96 and summary.training_seconds == 4.0
    assert summary.first_evaluation == {"turn_1/expected_return": 0.25, "own": 1.0}
    assert summary.last_evaluation == {"turn_1/expected_return": 0.75}
    assert str(summary) == "96 env steps in about 4 s; evaluation return 0.250 → 0.750"


def test_a_summary_says_only_what_is_known(tmp_path):
    write(tmp_path, [{"env_step": 1000, "turn_1/expected_return": 0.5}])
    assert str(summarize(tmp_path)) == "1,000 env steps"
    write(tmp_path, [])
    assert summarize(tmp_path).env_steps == 0


# Completions


def env_step(number, *, prompts=None, texts=None):
    prompts = prompts or {"writer_0": "Write.", "reader_1": "Write."}
    texts = texts or {"writer_0": f"text {number}", "reader_1": "two\nlines"}
    return EnvStep(
        env_step=number,
        episode=number // 2,
        state_id=number,
        next_state_id=None,
        turn=1,
        prompts=prompts,
        completions={agent: Completion(text) for agent, text in texts.items()},
        choice=dict.fromkeys(texts, 0),
        rewards={agent: 0.5 + index for index, agent in enumerate(texts)},
        terminated=True,
        truncated=False,
        next_prompts=None,
        global_state="",
    )


def test_completions_as_text():
    assert completions_text([env_step(1234)]) == "\n".join(
        [
            "env step 1,234 · episode 617 · turn 1",
            "  prompt of all:",
            "    Write.",
            "  writer_0, reward 0.500:",
            "    text 1234",
            "  reader_1, reward 1.500:",
            "    two",
            "    lines",
        ]
    )


def test_prompts_that_differ_are_shown_for_each_reader():
    text = completions_text([env_step(1, prompts={"writer_0": "Write.", "reader_1": "Read."})])
    assert "prompt of writer_0:\n    Write.\n  prompt of reader_1:\n    Read." in text
    alone = completions_text([env_step(1, prompts={"writer_0": "Write."}, texts={"writer_0": "x"})])
    assert "prompt of writer_0:" in alone


def test_a_few_steps_are_spread_over_all():
    text = completions_text([env_step(number) for number in range(100)], limit=4)
    assert [int(line.split()[2]) for line in text.splitlines() if line.startswith("env step")] == [0, 25, 50, 75]
    assert completions_text([]) == ""
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        completions_text([env_step(1)], limit=0)


def test_what_a_model_writes_cannot_steer_the_terminal():
    """Colours, cleared screens, carriage returns, text running backwards, half characters."""
    assert readable("\x1b[2Ja\rb\x07\t\u202ec\ud800\x9b\nd") == r"\x1b[2Ja\rb\x07\t\u202ec\ud800\x9b" + "\nd"
    assert readable("ünï ☃ 漢 🙂") == "ünï ☃ 漢 🙂"
    assert readable("") == "(empty)"


def test_long_texts_are_cut_and_the_rest_counted():
    assert readable("x" * 1410, 10) == "xxxxxxxxxx… (+1,400 characters)"
    assert "abc… (+3 characters)" in completions_text([env_step(1, texts={"writer_0": "abcdef"})], characters=3)


def test_a_pipe_gets_text_and_a_terminal_gets_tables():
    console = pytest.importorskip("rich.console")
    steps = [env_step(1, texts={"writer_0": "[bold]not markup[/bold] :smile: \x1b[31m", "reader_1": "b" * 300})]
    pipe, terminal = io.StringIO(), io.StringIO()
    show_completions(steps, console=console.Console(file=pipe, width=80))
    assert pipe.getvalue() == completions_text(steps) + "\n", "not wrapped either"
    show_completions(steps, console=console.Console(file=terminal, width=80, force_terminal=True, color_system=None))
    shown = terminal.getvalue()
    assert r"[bold]not markup[/bold] :smile: \x1b[31m" in shown and "\x1b[31m" not in shown
    assert "writer_0" in shown and "0.500" in shown and shown.count("b" * 20) >= 4
    assert all(len(line) <= 80 for line in shown.splitlines())

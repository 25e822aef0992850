"""Guards what a person sees of a run: a bar in a terminal that is always restored, plain lines elsewhere, nothing in quiet mode."""

import io
import os
import pty
import re
import subprocess
import sys
import textwrap

import pytest

from learners.progress import Progress, headline_return


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_away_from_a_terminal_a_line_is_shown_now_and_then():
    """One item a second, 8 env steps each: lines at 1 s (the first), 11 s, 21 s, and the last state at the end."""
    stream, clock = io.StringIO(), Clock()
    with Progress(1000, done=100, stream=stream, clock=clock) as progress:
        for second in range(1, 26):
            clock.now = float(second)
            progress.advance(1, env_step=8 * second, reward=0.5)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "101/1,000 items · reward 0.500 · 8 env steps"
    assert lines[1] == "111/1,000 items · reward 0.500 · 88 env steps · 8.0/s · 14:49 left"
    assert [line.split()[0] for line in lines] == ["101/1,000", "111/1,000", "121/1,000", "125/1,000"]


def test_the_speed_after_a_resume_counts_only_this_run():
    stream, clock = io.StringIO(), Clock()
    with Progress(4000, done=2000, stream=stream, clock=clock) as progress:
        progress.advance(10, env_step=1_000_040)
        clock.now = 20.0
        progress.advance(10, env_step=1_000_080)  # 40 env steps and 10 items in 20 s; 1,980 items are left
    assert stream.getvalue().splitlines()[-1] == "2,020/4,000 items · 1,000,080 env steps · 2.0/s · 1:06:00 left"


def test_rewards_are_smoothed_from_the_first_on():
    """0.9-exponential average, normalised: 1, then (0.9·1 + 0) / (0.9 + 1) = 0.474, then (0.81 + 0 + 1) / 2.71 = 0.668."""
    stream, clock = io.StringIO(), Clock()
    with Progress(None, stream=stream, clock=clock) as progress:
        for number, reward in enumerate([1.0, 0.0, 1.0]):
            clock.now = 100.0 * number
            progress.advance(1, env_step=number, reward=reward)
    assert re.findall(r"reward ([\d.]+)", stream.getvalue()) == ["1.000", "0.474", "0.668"]


def test_training_on_stored_data_has_no_speed_in_env_steps():
    stream, clock = io.StringIO(), Clock()
    with Progress(None, stream=stream, clock=clock) as progress:
        progress.start_phase("drawing", 2)
        progress.advance(2, env_step=16)
        progress.start_phase("training", 4, unit="pairs")
        progress.show_evaluation({"eval/turn_1/expected_return": 0.5})
        for second in (20.0, 40.0):
            clock.now = second
            progress.advance(2, env_step=16)
    assert stream.getvalue().splitlines() == [
        "2/2 items · drawing · 16 env steps",
        "env step 16: evaluation return 0.500",
        "2/4 pairs · training · eval 0.500 · 16 env steps",
        "4/4 pairs · training · eval 0.500 · 16 env steps · 0:00 left",
    ]


def test_without_a_length_there_is_no_end_in_sight():
    stream, clock = io.StringIO(), Clock()
    with Progress(None, stream=stream, clock=clock) as progress:
        progress.advance(5, env_step=20)
        clock.now = 10.0
        progress.advance(5, env_step=40)
    assert stream.getvalue().splitlines() == ["5 items · 20 env steps", "10 items · 40 env steps · 2.0/s"]


def test_evaluations_are_kept_in_view():
    stream = io.StringIO()
    with Progress(10, stream=stream, clock=Clock()) as progress:
        progress.show_evaluation({"eval/turn_1/reward_mean": 0.25, "eval/turn_1/expected_return": 0.5})
        progress.advance(1, env_step=1000)
        progress.show_evaluation({"eval/turn_1/reward_mean": 0.75})
        progress.show_evaluation({"eval/own": 1.0})
        progress.say("[bold] is text")
    assert stream.getvalue().splitlines() == [
        "evaluation return 0.500",
        "1/10 items · eval 0.500 · 1,000 env steps",
        "env step 1,000: evaluation return 0.750",
        "[bold] is text",
    ]


def test_the_headline_is_the_return_or_else_the_reward():
    assert headline_return({"turn_1/reward_mean": 1.0, "turn_1/expected_return": 3.0}) == 3.0
    assert headline_return({"eval/turn_1/reward_mean": 1.0}, "eval/") == 1.0
    assert headline_return({"loss": 1.0}) is None


def test_quiet_shows_nothing():
    stream = io.StringIO()
    with Progress(10, enabled=False, stream=stream) as progress:
        progress.advance(1, env_step=1, reward=1.0)
        progress.show_evaluation({"eval/turn_1/reward_mean": 1.0})
        progress.say("text")
    assert stream.getvalue() == ""


SCRIPT = """
    import sys
    from learners.progress import Progress

    total = None if "endless" in sys.argv else 3
    with Progress(total, done=0) as progress:
        for step in range(1, 4):
            print("printed by a reward")
            progress.advance(1, env_step=4 * step, reward=0.5)
        progress.show_evaluation({"eval/turn_1/reward_mean": 0.25})
        if "failing" in sys.argv:
            raise RuntimeError("the reward failed")
    print("after")
"""


def run_in_terminal(*arguments, stdout_too=True):
    """Output on a pseudo terminal 120 wide, and what went to standard output if that is not the terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments],
        stdin=theirs,
        stdout=theirs if stdout_too else subprocess.PIPE,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while block := os.read(ours, 65536):
                seen += block
        except OSError:  # Linux reports the end of a terminal as an error
            pass
        os.close(ours)
        piped = process.stdout.read().decode() if process.stdout is not None else ""
    return seen.decode(), piped, process.returncode


HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def test_a_terminal_gets_a_bar_and_is_restored():
    pytest.importorskip("rich")
    seen, _, code = run_in_terminal()
    assert code == 0
    for text in ("3/3 items", "reward 0.500", "12 env steps", "━", "printed by a reward", "evaluation return 0.250"):
        assert text in seen, text
    assert seen.count(HIDE) == seen.count(SHOW) == 1 and seen.index(SHOW) < seen.rindex("after")


def test_a_failing_run_restores_the_terminal_before_the_error_is_shown():
    pytest.importorskip("rich")
    seen, _, code = run_in_terminal("failing")
    assert code == 1 and "after" not in seen
    assert seen.count(HIDE) == seen.count(SHOW) == 1 and seen.index(SHOW) < seen.index("RuntimeError: the reward failed")


def test_an_unknown_total_moves_without_an_end():
    pytest.importorskip("rich")
    seen, _, code = run_in_terminal("endless")
    assert code == 0 and "3 items" in seen and "/3" not in seen and "left" not in seen


def test_output_in_a_file_stays_free_of_the_bar():
    pytest.importorskip("rich")
    seen, piped, _ = run_in_terminal(stdout_too=False)
    assert piped.splitlines() == ["printed by a reward"] * 3 + ["after"]
    assert "printed by a reward" not in seen and "3/3 items" in seen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_only_the_bar_needs_rich(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    with Progress(1, stream=io.StringIO()) as lines, Progress(1, stream=Terminal(), enabled=False) as quiet:
        lines.advance(1, env_step=1)
        quiet.advance(1, env_step=1)
    with (
        pytest.raises(ImportError, match=r"pip install 'llm-envs\[train\]', or switch progress off"),
        Progress(1, stream=Terminal()),
    ):
        pass

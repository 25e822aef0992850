"""Guards the machine: programs that loop, grow, flood, fork, kill or hide end in time, leave nothing and disturb nobody."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llm_envs.sandbox import Limits, Sandbox, SandboxError, Trial

SLEEPERS = """
import os, time
def f(x):
    for _ in range(64):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    return x
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(60)
    os._exit(0)
def f(x): return x
"""


def first(sandbox: Sandbox, solution: str, check: str = "assert f(1) == 1"):
    report = sandbox.run(Trial(solution, ("f",), checks=(check,)))
    return report.checks[0] if report.loaded.passed else report.loaded


def processes_of(sandbox: Sandbox) -> list[str]:
    """Command lines of all processes below the sandbox's own."""
    wardens = [worker._process.pid for worker in sandbox._pool._idle]
    command = ["ps", "-o", "pid=,args=", "--ppid", ",".join(map(str, wardens))]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.parametrize(
    ("solution", "status"),
    [
        ("while True: pass", "timeout"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass", "timeout"),
        ("import signal\nfor n in {*range(1, 32)} - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass", "timeout"),
        ("import os\ndef f(x):\n    if os.fork() == 0:\n        while True: pass\n    os.wait()", "timeout"),
        ("import time\ndef f(x): time.sleep(60)", "timeout"),
        ("def f(x): return len(bytearray(2 << 30))", "memory"),
        ("def f(x):\n    kept = []\n    while True: kept.append(bytes(1 << 24))", "memory"),
        ("def f(x):\n    while True: os.write(1, b'x' * 65536)\nimport os", "error"),
        ("def f(x):\n    with open('a', 'wb') as a:\n        for _ in range(1024): a.write(bytes(1 << 20))", "error"),
        ("def f(x):\n    kept = []\n    while True: kept.append(open('a', 'w'))", "error"),
        ("def f(x): return input()", "error"),
        ("import sys\ndef f(x): return sys.stdin.read() or x", "passed"),
        ("import os\ndef f(x): os.closerange(0, 64); return x", "exited"),
        ("import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return f(x)", ("timeout", "memory", "exited")),
        ("import os\ndef f(x): os.abort()", "exited"),
        ("import ctypes\ndef f(x): ctypes.string_at(0)", "exited"),
        ("def f(x):\n    def g():\n        while True: yield 1\n    return g()", "timeout"),  # the test itself would not end
        (SLEEPERS, ("error", "exited")),
        (DAEMON, "passed"),
    ],
)  # fmt: skip
def test_attacks_end(tight, solution, status):
    outcome = first(tight, solution, "assert sum(f(1)) == 1" if "yield" in solution else "assert f(1) == 1")
    assert outcome.status in status if isinstance(status, tuple) else outcome.status == status, outcome
    assert processes_of(tight) == []


def test_memory_counts_for_all_processes_together(tight):
    solution = """
import mmap, os, time
def f(x):
    for _ in range(6):
        if os.fork() == 0:
            kept = mmap.mmap(-1, 60 << 20, flags=mmap.MAP_PRIVATE | 0x8000)  # MAP_POPULATE: there without being touched
            time.sleep(60)
    time.sleep(60)
"""
    outcome = first(tight, solution)
    assert (outcome.status, outcome.message) == ("memory", "more than 128 MiB in all")


@pytest.mark.parametrize(
    "attack",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        "[os.kill(pid, 9) for pid in (HOST, WARDEN)]",
        "ctypes.CDLL(None).ptrace(16, HOST, 0, 0)",
        "open(f'/proc/{HOST}/environ').read()",
        "open(f'/proc/{HOST}/mem', 'r+b')",
        "ctypes.CDLL(None).unshare(0x10000000) == 0 or 1 / 0",
    ],
)
def test_others_are_out_of_reach(tight, attack):
    first(tight, "f = 1")
    warden = tight._pool._idle[0]._process.pid
    solution = f"import ctypes, os\nHOST, WARDEN = {os.getpid()}, {warden}\ndef f(x):\n    {attack}\n    return x"
    outcome = first(tight, solution)
    # A signal to what there is of one's own is allowed, where others cannot be seen.
    assert outcome.status in ("error", "exited") or "os.kill" in attack or "ptrace" in attack, outcome
    assert tight._pool._idle[0]._process.poll() is None and first(tight, "def f(x): return x").passed


@pytest.mark.parametrize(
    "attack",
    [
        "open(SENTINEL, 'w').write('changed')",
        "os.remove(SENTINEL)",
        "shutil.rmtree(os.path.dirname(SENTINEL))",
        "shutil.rmtree('..')",
        "os.rename('.', '../other')",
        "os.symlink(SENTINEL, 'link'); open('link', 'w')",
        "open('/tmp/llm-envs-sandbox-test-outside', 'w')",
        "os.listdir('/root')",
        "open(TESTS).read()",
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', 9))",
    ],
)
def test_files_and_network_are_out_of_reach(tight, tmp_path, attack):
    sentinel = tmp_path / "sentinel"
    sentinel.write_text("here")
    solution = (
        f"import os, shutil, socket\nSENTINEL, TESTS = {str(sentinel)!r}, {__file__!r}\ndef f(x):\n    {attack}\n    return x"
    )
    assert first(tight, solution).status == "error"
    assert sentinel.read_text() == "here"


def test_rows_of_the_installed_package_cannot_be_read(tight):
    """They have the tests in them."""
    rows = Path(__file__).parents[3] / "llm_envs" / "tasks" / "data"
    assert first(tight, f"import os\ndef f(x): return len(os.listdir({str(rows)!r}))").exception == "PermissionError"


def test_each_trial_has_a_folder_and_an_environment_of_its_own(tight):
    os.environ["SANDBOX_TEST_SECRET"] = "1"
    try:
        solution = "import os\nopen('left', 'w')\nos.environ['B'] = '1'\nos.chdir('/')\ndef f(x): return sorted(os.environ)"
        names = ["B", "HOME", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONHASHSEED", "TMPDIR", "TZ"]
        assert first(tight, solution, f"assert f(1) == {names}").passed
    finally:
        del os.environ["SANDBOX_TEST_SECRET"]
    assert first(tight, "import os\ndef f(x): return os.listdir('.')", "assert f(1) == []").passed


@pytest.mark.slow
def test_a_folder_without_rights_is_removed():
    with Sandbox(workers=1, without=("mounts",)) as plain:
        solution = "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nos.chmod('a/b', 0)\nos.chmod('a', 0)\nf = 1"
        assert plain.run(Trial(solution)).loaded.passed
        assert plain.run(Trial("import os\nassert os.listdir('.') == []")).loaded.passed
        folder = Path(plain._pool._idle[0]._folder)
    assert not folder.exists()


def test_neighbours_are_not_disturbed(tight):
    """Loops, memory and processes beside right solutions: those pass each time, though two processors are shared by all."""
    grows = "def f(x): return [bytes(1 << 24) for _ in range(99)]"
    bad = ["def f(x):\n    while True: pass", SLEEPERS, grows, DAEMON, "import os\nos._exit(0)"]
    good = [f"def f(x): return sum(range(x * 100_000)) * 0 + {n}" for n in range(8)]
    trials = [Trial(solution, ("f",), checks=("assert f(5) >= 0",)) for pair in zip(good, bad + bad) for solution in pair]  # noqa: B905
    reports = tight.run_all(trials)
    assert [report.passed for report in reports[::2]] == [1] * 8
    assert not any(report.passed for report, trial in zip(reports, trials, strict=True) if trial.solution in bad[:3])


def test_the_host_is_as_before(tight):
    """Nothing is patched, and what a clean-up needs still works."""
    names = ("os", "shutil", "subprocess", "builtins", "sys", "signal")

    def state() -> object:
        handlers = [signal.getsignal(number) for number in (1, 2, 13, 14, 15, 17)]
        return Path.cwd(), dict(os.environ), sys.getrecursionlimit(), handlers, sys.stdin, sys.stdout

    patched = {name: dict(vars(sys.modules[name])) for name in names}
    before = state()
    with ThreadPoolExecutor(1) as threads:  # trainers ask from threads
        assert threads.submit(first, tight, "def f(x):\n    while True: pass").result().status == "timeout"
    assert {name: dict(vars(sys.modules[name])) for name in names} == patched and state() == before
    folder = tempfile.mkdtemp()
    shutil.rmtree(folder)
    assert subprocess.run(["true"], check=True).returncode == 0 and not Path(folder).exists()


def test_a_failure_of_the_machinery_is_an_error_and_not_a_verdict():
    sandbox = Sandbox(workers=1)
    trial = Trial(DAEMON, ("f",), checks=("assert f(1) == 1",))
    assert sandbox.run(Trial("f = 2")).loaded.passed
    sandbox._pool._idle[0]._process.kill()
    sandbox._pool._idle[0]._process.wait()
    with pytest.raises(SandboxError, match="failed"):
        sandbox.run(trial)
    assert sandbox.run(trial).passed == 1  # not remembered, and by a new process
    worker = sandbox._pool._idle[0]
    del sandbox
    gc.collect()  # the exception's frames had it
    assert worker.closed and worker._process.returncode is not None and not Path(worker._folder).exists()


@pytest.mark.slow
def test_a_process_that_follows_one_that_slept_has_the_time_of_its_own_step():
    solution = "import time\ndef f(x):\n    if x == 0: time.sleep(60)\n    return x"
    trial = Trial(solution, ("f",), checks=("assert f(0) == 0", "assert f(1) == 1") * 2)
    with Sandbox(Limits(wall_seconds=0.4), workers=1, cache=0) as sandbox:
        for _ in range(3):
            assert [check.status for check in sandbox.run(trial).checks] == ["timeout", "passed"] * 2


@pytest.mark.slow
def test_answers_that_cost_the_judge_too_much_in_all_are_a_verdict():
    """Each check is within its limit. To be killed for the sum of them was an error of the machine, which ends a training run."""
    check = "import time\nwhile time.process_time() < {}: pass\nassert f(1) == 1"
    trial = Trial("def f(x): return x", ("f",), checks=tuple(check.format(seconds) for seconds in (3, 6, 9, 12, 15)))
    with Sandbox(Limits(cpu_seconds=4.0, total_cpu_seconds=1.0), workers=1, cache=0) as sandbox:
        assert [check.status for check in sandbox.run(trial).checks] == ["passed", "passed", "timeout", "not run", "not run"]


def test_nothing_is_left_when_the_trainer_is_killed(tmp_path):
    program = """
import os, threading, time
from llm_envs.sandbox import Sandbox, Trial
sandbox = Sandbox(workers=1)
sandbox.run(Trial(""))
worker = sandbox._pool._idle[0]
print(worker._folder, worker._process.pid, flush=True)
sleeps = "import os, time\\nif os.fork() == 0:\\n    os.setsid()\\ntime.sleep(60)"
threading.Thread(target=sandbox.run, args=(Trial(sleeps),), daemon=True).start()
time.sleep(1)
os.kill(os.getpid(), 9)
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONPATH": path})
    folder, warden = killed.stdout.split()
    for _ in range(100):
        if not Path(folder).exists() and not Path("/proc", warden).exists():
            return
        time.sleep(0.1)
    pytest.fail(f"{folder} or process {warden} is still there")

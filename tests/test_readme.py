"""Guards README and the pages in docs/: Python blocks run, links lead somewhere, the commands are those CI runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from llm_envs import registry

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Of the two commands that README promises: what stands between the markers is what CI runs.
COMMANDS = ("main-job", "test-command")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def marked(command: str) -> str:
    """The fenced lines between README's markers of a command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- {command} -->\n```bash\n(.*?)```\n<!-- /{command} -->", text, re.DOTALL)
    assert len(found) == 1, f"README.md needs one bash block between <!-- {command} --> and <!-- /{command} -->"
    return found[0]


# ---- what stands there runs ----


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))], ids=name_of)
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block.group(1), str(page), "exec"), names)


@pytest.mark.parametrize("command", COMMANDS)
def test_ci_runs_the_commands_of_the_readme(command):
    """`.ci/run` reads them from README, with a shell function that is tried here on the real file."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"readme {command}" in script
    [function] = re.findall(r"^readme\(\) \{.*?^\}", script, re.DOTALL | re.MULTILINE)
    shell = ["bash", "-euo", "pipefail", "-c", f"{function}\nreadme {command}"]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == marked(command).strip()


def test_the_commands_start_from_nothing():
    """They make their environment, which CI replaces by its own, and end with what they are for."""
    for command, last in (("main-job", "llm-marl train"), ("test-command", "python -m pytest -n auto --dist loadscope")):
        text = marked(command)
        assert "python3 -m venv .venv" in text
        assert "pip install" in text
        assert text.strip().endswith(f".venv/bin/{last}")


def train_commands() -> list[str]:
    """Those on the pages that need no file or run of the reader's."""
    lines = [line for page in PAGES for line in re.findall(r"^llm-marl train.*$", page.read_text(encoding="utf-8"), re.MULTILINE)]
    theirs = re.compile(r"my_|runs/|--config")
    return [line.partition(" #")[0].strip() for line in lines if not theirs.search(line)]


@pytest.mark.parametrize("command", train_commands())
def test_training_commands_are_understood(command):
    """Env, learner and every option exist; no model is loaded for it."""
    from learners.commands.settings import settings

    settings(shlex.split(command)[2:])


# ---- what it refers to exists ----


def anchors(path: Path) -> set[str]:
    """Where links into a page may lead: its headings, as the forges name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{name_of(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:llm_envs|learners|docs|examples|benchmarks|tests)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), f"{name_of(page)} names {name}"

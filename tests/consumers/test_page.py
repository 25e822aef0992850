"""Guards docs/reuse.md: the blocks of a library run with it, and are skipped without. `.ci/consumers` makes the environments."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reuse.md"
BLOCK = re.compile(r"^```python ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
PACKAGES = {
    "supersuit": ("supersuit", "stable_baselines3"),
    "torchrl": ("torchrl",),
    "tianshou": ("tianshou",),
    "rllib": ("ray.rllib",),
    "skrl": ("skrl",),
    "benchmarl": ("benchmarl",),
    "agilerl": ("agilerl",),
    "xuance": ("xuance",),
    "momaland": ("momaland",),
}


def blocks(library: str) -> list[tuple[int, str]]:
    """Line and code of the page's blocks that need no library or this one."""
    text = PAGE.read_text(encoding="utf-8")
    return [(text[: m.start(2)].count("\n"), m[2]) for m in BLOCK.finditer(text) if m[1] in ("", library)]


def test_every_library_of_the_page_is_tested():
    tags = {found[1] for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}
    assert tags == {"", *PACKAGES}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("library", PACKAGES)
def test_blocks_run(library, tmp_path, monkeypatch):
    for package in PACKAGES[library]:
        pytest.importorskip(package)
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    np.random.seed(0)  # Tianshou explores with it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    page = ModuleType("reuse")
    monkeypatch.setitem(sys.modules, page.__name__, page)  # some pickle what the page defines
    for line, code in blocks(library):
        exec(compile("\n" * line + code, str(PAGE), "exec"), page.__dict__)

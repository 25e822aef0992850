"""Guards what the pages say about the code: options and defaults, metrics, places in the source, the file tree."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import runpy
from pathlib import Path

import pytest

import llm_envs
from learners import MAGRPOConfig, MAGRPOTrainer, read_metrics

DOCS = Path(__file__).parents[1] / "docs"
ALGORITHMS = (DOCS / "algorithms.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text of a section, up to the next one of its level."""
    return re.split(r"^## ", ALGORITHMS.split(f"\n## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """Cells of all tables, without headers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if "`" in row[0]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_option_is_there_with_its_default():
    stated = {}
    for row in rows(section("Options")):
        options, defaults = names(row[0]), [part.strip(" `") for part in row[1].split(",")]
        stated.update(zip(options, defaults * len(options) if len(defaults) == 1 else defaults, strict=True))
    assert stated.pop("advantage_mode") == "of the class"
    fields = {field.name: field.default for field in dataclasses.fields(MAGRPOConfig) if field.name != "advantage_mode"}
    assert {name: ast.literal_eval(value) for name, value in stated.items()} == fields


def test_places_in_the_source_exist():
    """`module.name` in the implementation details: a module of `learners` or `llm_envs`, and what it has."""
    places = [name for name in names(section("Implementation details")) if re.fullmatch(r"[a-z_]+\.[A-Za-z_]+", name)]
    places = [place for place in places if place != "math.fsum"]
    assert len(places) > 20
    for place in places:
        module, _, attribute = place.partition(".")
        homes = [package for package in ("learners", "llm_envs") if importlib.util.find_spec(f"{package}.{module}")]
        assert any(hasattr(importlib.import_module(f"{home}.{module}"), attribute) for home in homes), place


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """Names of the metrics of a run that has everything: turns, terms, a reference, own metrics, evaluation."""
    env = llm_envs.TaskEnv(
        llm_envs.Task(
            items=[{"prompt": "a"}] * 4,
            eval_items=[{"prompt": "b"}],
            reward={"own": lambda one, two: [float(len(a) > len(b)) for a, b in zip(one, two, strict=True)]},
            num_turns=2,
            transition=lambda agent_completions: ["c", "d"],
        )
    )
    trainer = MAGRPOTrainer(
        env=env,
        agent_model="tiny-random",
        args=MAGRPOConfig(num_generations=2, max_new_tokens=4, num_train_epochs=1, logging_steps=1, reference_kl_enabled=True),
        metrics_callback=lambda rollouts: {"mine": 1.0},
        output_dir=tmp_path_factory.mktemp("run"),
        progress=False,
    )
    trainer.train()
    return {name for entry in read_metrics(trainer.output_dir / "metrics.jsonl") for name in entry.values}


def test_every_metric_is_there_and_every_one_there_is_logged(logged):
    stated = {name for row in rows(section("Metrics")) for name in names(row[0])}
    assert "`…_min` and `…_max`" in section("Metrics")
    stated |= {"<agent>/completion_length_min", "<agent>/completion_length_max"}

    def general(name: str) -> str:
        name = re.sub(r"turn_\d+", "turn_k", name).replace("reward/own", "reward/<term>").replace("mine", "<name>")
        who = "<team>" if name.endswith(("/loss", "/grad_norm")) else "<agent>"
        return re.sub(r"^agent_\d+", who, name)

    assert {general(name) for name in logged} == stated


def test_the_file_tree_is_that_of_now():
    tree = runpy.run_path(str(DOCS / "tree.py"))
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert tree["tree"]() in page, "renew it: python docs/tree.py --write"
    assert page.count("reinforce.py") > 1  # the tree is there, and the text names the file as well

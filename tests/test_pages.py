"""Guards what the pages say about the code: options and defaults, metrics, places in the source, the file tree."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import re
import runpy
from pathlib import Path

import pytest

import llm_envs
from learners import (
    IACConfig,
    IACTrainer,
    MAACConfig,
    MAACTrainer,
    MADPOConfig,
    MADPOIterConfig,
    MADPOIterTrainer,
    MAGRPOConfig,
    MAGRPOTrainer,
    MARLHFConfig,
    MARLHFIterConfig,
    MARLHFTrainer,
    read_metrics,
)

DOCS = Path(__file__).parents[1] / "docs"
ALGORITHMS = (DOCS / "algorithms.md").read_text(encoding="utf-8")
PREFERENCES = (DOCS / "preference-learning.md").read_text(encoding="utf-8")


def section(heading: str, page: str = ALGORITHMS) -> str:
    """The text of a section, up to the next one of its level."""
    return re.split(r"^## ", page.split(f"\n## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """Cells of all tables, without headers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if "`" in row[0]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def subsection(heading: str) -> str:
    """The text of a section one level down, up to the next one of its level or above."""
    return re.split(r"^##+ ", ALGORITHMS.split(f"\n### {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def defaults_in(text: str) -> dict[str, str]:
    """Option → default, as its tables state them."""
    stated: dict[str, str] = {}
    for row in rows(text):
        options, defaults = names(row[0]), [part.strip(" `") for part in row[1].split(",")]
        stated.update(zip(options, defaults * len(options) if len(defaults) == 1 else defaults, strict=True))
    return stated


def defaults_of(config: type) -> dict[str, object]:
    return {field.name: field.default for field in dataclasses.fields(config)}


def test_every_option_is_there_with_its_default():
    stated = defaults_in(section("Options"))
    assert stated.pop("advantage_mode") == "of the class"
    fields = {name: value for name, value in defaults_of(MAGRPOConfig).items() if name != "advantage_mode"}
    assert {name: ast.literal_eval(value) for name, value in stated.items()} == fields


@pytest.mark.parametrize("config", [IACConfig, MAACConfig])
def test_every_actor_critic_option_is_there_with_its_default(config):
    """The tables of every learner, of the family and of the class; the family's defaults go before those of every learner."""
    shared = section("Options").split("Those of every learner:")[1]
    family, *own = re.split(r"^Those of `(\w+)`:$", subsection("Options of the actor-critic family"), flags=re.MULTILINE)
    of_class = dict(zip(own[::2], own[1::2], strict=True))
    stated = defaults_in(shared) | defaults_in(family) | defaults_in(of_class[config.__name__])
    assert {name: ast.literal_eval(value) for name, value in stated.items()} == defaults_of(config)


def preference_defaults(config: type) -> dict[str, str]:
    """Option → default of a config, as the page's tables state them; "80; 20 in the iterative forms" has two."""
    text = section("Options", PREFERENCES)
    tables = {heading: defaults_in(table) for heading, table in re.findall(r"^(.+):\n\n((?:\|.*\n)+)", text, re.MULTILINE)}
    iterative, name = "Iter" in config.__name__, config.__name__
    marks = {"all preference learners": True, "iterative forms": iterative, "endpoint": iterative}
    marks |= {f"`{owner}`": owner in name.replace("Iter", "") or owner == name for owner in ("MADPOConfig", "MARLHFConfig")}
    marks["`MARLHFIterConfig` also"] = name == "MARLHFIterConfig"
    assert all(any(mark in heading for mark in marks) for heading in tables)
    stated: dict[str, str] = defaults_in(section("Options").split("Those of every learner:")[1])
    for heading, table in tables.items():
        if all(holds for mark, holds in marks.items() if mark in heading):
            stated |= table
    for option, value in stated.items():
        usual, _, other = value.replace("`", "").partition("; ")
        default, _, where = other.partition(" in ")
        stated[option] = default if iterative and where in ("the iterative forms", name) else usual
    [(of_madpo, of_marlhf)] = re.findall(r"`num_train_epochs` is (\d) in `MADPOIterConfig` and (\d) in `MARLHFIterConfig`", text)
    return stated | {"MADPOIterConfig": {"num_train_epochs": of_madpo}, "MARLHFIterConfig": {"num_train_epochs": of_marlhf}}.get(
        name, {}
    )


@pytest.mark.parametrize("config", [MADPOConfig, MADPOIterConfig, MARLHFConfig, MARLHFIterConfig])
def test_every_preference_option_is_there_with_its_default(config):
    stated = {name: ast.literal_eval(value) for name, value in preference_defaults(config).items()}
    assert stated == {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(config)
    }


def test_places_in_the_source_exist():
    """`module.name` in the implementation details: a module of `learners` or `llm_envs`, and what it has."""
    found = names(section("Implementation details")) + names(subsection("Details of the actor-critic family"))
    found += names(section("Implementation details", PREFERENCES))
    places = [name for name in found if re.fullmatch(r"([a-z_]+\.)+[A-Za-z_]+", name) and name != "math.fsum"]
    assert len(places) > 40
    assert sum(place.startswith("actor_critic.") for place in places) > 10
    assert sum(place.startswith("preference.") for place in places) > 20
    for place in places:
        module, _, attribute = place.rpartition(".")
        packages = [
            package for package in ("learners", "llm_envs") if importlib.util.find_spec(f"{package}.{module.split('.')[0]}")
        ]
        homes = [package for package in packages if importlib.util.find_spec(f"{package}.{module}")]
        assert any(hasattr(importlib.import_module(f"{home}.{module}"), attribute) for home in homes), place


def first_is_longer(one, two):
    return [float(len(a) > len(b)) for a, b in zip(one, two, strict=True)]


def logged_by(trainer_class, folder: Path, **options) -> set[str]:
    """Names of the metrics of a run that has everything: turns, terms, a reference, own metrics, evaluation."""
    env = llm_envs.TaskEnv(
        llm_envs.Task(
            items=[{"prompt": "a"}, {"prompt": "b"}] * 2,
            eval_items=[{"prompt": "b"}],
            reward={"own": llm_envs.set_reward_range(first_is_longer, 0.0, 1.0)},
            num_turns=2,
            transition=lambda agent_completions: ["c", "d"],
        )
    )
    config = trainer_class.learner_class.config_class(max_new_tokens=4, num_train_epochs=1, logging_steps=1, top_p=1.0, **options)
    trainer = trainer_class(
        env=env,
        agent_model="tiny-random",
        args=config,
        metrics_callback=lambda rollouts: {"mine": 1.0},
        output_dir=folder,
        progress=False,
    )
    trainer.train()
    return {name for entry in read_metrics(trainer.output_dir / "metrics.jsonl") for name in entry.values}


def general(name: str) -> str:
    """A metric's name as the page has it."""
    name = re.sub(r"turn_\d+", "turn_k", name).replace("reward/own", "reward/<term>").replace("mine", "<name>")
    who = {"loss": "<team>", "grad_norm": "<team>", "value_loss": "<critic>", "critic_grad_norm": "<critic>"}
    who |= {"chosen_logprob": "<team>", "rejected_logprob": "<team>"}
    name = re.sub(r"(reward_distribution)/[a-z_]+/[a-z]+/", r"\1/<kind>/<side>/", re.sub(r"bin_\d+", "bin_<n>", name))
    return re.sub(r"^team(?=/)|agent_\d+", who.get(name.rpartition("/")[2], "<agent>"), name)


def stated_metrics(text: str) -> set[str]:
    return {name for row in rows(text) for name in names(row[0])}


def reinforce_metrics() -> set[str]:
    assert "`…_min` and `…_max`" in section("Metrics")
    return stated_metrics(section("Metrics")) | {"<agent>/completion_length_min", "<agent>/completion_length_max"}


def test_every_metric_is_there_and_every_one_there_is_logged(tmp_path):
    logged = logged_by(MAGRPOTrainer, tmp_path / "run", num_generations=2, reference_kl_enabled=True)
    assert {general(name) for name in logged} == reinforce_metrics()


@pytest.mark.parametrize(
    "trainer_class, options", [(MAACTrainer, {}), (IACTrainer, {}), (IACTrainer, {"use_separate_critic": False})]
)
def test_every_actor_critic_metric_is_there_and_every_one_there_is_logged(trainer_class, options, tmp_path):
    logged = {general(name) for name in logged_by(trainer_class, tmp_path / "run", reference_kl_enabled=True, **options)}
    stated = (reinforce_metrics() - {"zero_spread_share"}) | stated_metrics(subsection("Metrics of the actor-critic family"))
    on_actors = {"<critic>/critic_grad_norm"} if "use_separate_critic" in options else set()
    assert logged == stated - on_actors


PAIRS = {"preference_num_candidates": 6, "preference_pairs_per_sample": 2}


def test_every_preference_metric_is_there_and_every_one_there_is_logged(tmp_path):
    """MADPOIter has all but those of a reward model, and MARLHF has them and those of its policy-gradient learner."""
    rounds = logged_by(MADPOIterTrainer, tmp_path / "rounds", **PAIRS, num_iterations=1, log_reward_distribution=True)
    learner = {"num_generations": 2, "rl_options": {"reference_kl_enabled": True}}
    model = logged_by(MARLHFTrainer, tmp_path / "model", **PAIRS, **learner)
    stated = {general(name) for name in stated_metrics(section("Metrics", PREFERENCES))}
    of_model = {name for name in stated if name.startswith(("reward_model/", "turn_k/reward/task"))}
    of_rounds = {name for name in stated if name.startswith(("preference/", "comparator/", "reward_distribution/"))}
    everywhere = {name for name in reinforce_metrics() if name.startswith(("eval/", "<name>"))}
    assert {general(name) for name in rounds} == (stated - of_model) | everywhere
    assert {general(name) for name in model} == (stated - of_rounds) | reinforce_metrics()


def test_the_file_tree_is_that_of_now():
    tree = runpy.run_path(str(DOCS / "tree.py"))
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert tree["tree"]() in page, "renew it: python docs/tree.py --write"
    assert page.count("reinforce.py") > 1  # the tree is there, and the text names the file as well

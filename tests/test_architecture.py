"""Guards the shape of the project: who may import whom, what an import loads and does, and the habits all files share."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for package in ("llm_envs", "learners") for path in (ROOT / package).rglob("*.py"))
MOST_LINES = 500
"""About 400 is the size at which to ask what a file does that another one owns."""

# Public functions of modules that have own rules, which `from llm_envs import …` would reach past them.
REGISTRY = {"make", "register", "list_envs", "spec", "EnvSpec"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
PATHS = {module_of(path): path for path in FILES}


def imported(module: str, *, at_import: bool = False) -> set[str]:
    """Full names of what a module imports, `package.module.name` for a name; all of it, or what is loaded with the module."""
    found: set[str] = set()
    for node in _statements(TREES[module]) if at_import else ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run on import, those for type checkers left out."""
    for node in tree.body:
        if isinstance(node, ast.If):
            if not isinstance(node.test, ast.Name) or node.test.id != "TYPE_CHECKING":
                yield from node.body + node.orelse
        else:
            yield node


def top(name: str) -> str:
    return name.partition(".")[0]


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def modules(package: str) -> list[str]:
    return [module for module in TREES if inside(module, package)]


# ---- who imports whom ----


def test_environments_know_no_learner_and_no_model():
    forbidden = {"learners", "torch", "transformers", "tokenizers", "peft", "safetensors", "wandb"}
    assert [(module, name) for module in modules("llm_envs") for name in imported(module) if top(name) in forbidden] == []


def test_environments_load_little():
    """What is imported with a module; data sets, sandboxes and other people's environments are imported where they are used."""
    light = {"numpy", "gymnasium", "pettingzoo", "llm_envs", *sys.stdlib_module_names}
    heavy = [
        (module, name) for module in modules("llm_envs") for name in imported(module, at_import=True) if top(name) not in light
    ]
    # cloudpickle comes with gymnasium.
    assert [
        (module, name) for module, name in heavy if (top(name), inside(module, "llm_envs.testing")) != ("cloudpickle", True)
    ] == []


def test_learners_know_no_task():
    names = [(module, name) for module in modules("learners") for name in imported(module)]
    assert [(module, name) for module, name in names if inside(name, "llm_envs.tasks")] == []
    direct = {f"llm_envs.{name}" for name in REGISTRY} | {"llm_envs.registry"}
    asking = {module for module, name in names if inside(name, "llm_envs.registry") or name in direct}
    assert {module for module in asking if not inside(module, "learners.commands")} <= {"learners.cli"}  # the command line


STREAM = {"types", "seeding", "rollouts", "recording", "wrappers"}
"""Parts of `llm_envs` that learners are made of: the stream and what gives it."""

MAKERS = {
    "learners.trainers": {"env", "task", "formatters", "rewards", "transitions"},  # builds an env of a user's functions and data
    "learners.trainer": {"env", "task"},  # runs on any env and asks its items for their length
    "learners.phases": {"env", "task"},
    "learners.actor_critic.trainers": {"env"},
    "learners.preference.trainers": {"env"},
    "learners.evaluation": {"env", "protocols"},
    "learners.preference.distributions": {"env"},  # asks an env for the range of its rewards
}
"""Modules that run or build an env, and what else they read for it."""


def test_learners_read_the_stream_alone():
    beyond = {}
    for module in modules("learners"):
        allowed = STREAM | MAKERS.get(module, set()) | ({"registry", "calling"} if module == "learners.cli" else set())
        if inside(module, "learners.testing"):
            allowed |= {"env", "task", "testing"}  # trains the learner under check on a toy
        parts = {name.split(".")[1] for name in imported(module) if inside(name, "llm_envs") and name != "llm_envs"}
        if not inside(module, "learners.commands") and parts - allowed:
            beyond[module] = parts - allowed
    assert beyond == {}


def test_values_know_nothing_of_the_project():
    assert {name for name in imported("llm_envs.types") if top(name) == "llm_envs"} <= {
        f"llm_envs.seeding.{name}" for name in ("ENVIRONMENT", "Path", "stream")
    }
    assert not {name for name in imported("llm_envs.seeding") if top(name) == "llm_envs"}


def test_maths_is_pure():
    own_or_foreign = {top(name) for name in imported("learners.losses")} - set(sys.stdlib_module_names)
    assert own_or_foreign <= {"torch"}
    for module in ("learners.credit", "learners.chains"):
        assert not {"torch", "learners"} & {top(name) for name in imported(module)}


def learner_modules() -> list[str]:
    """Modules with a class that has what the `Learner` protocol asks for."""
    found = []
    for module in modules("learners"):
        for node in TREES[module].body:
            methods = (
                {part.name for part in node.body if isinstance(part, ast.FunctionDef)} if isinstance(node, ast.ClassDef) else set()
            )
            protocol = isinstance(node, ast.ClassDef) and any(
                isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases
            )
            if {"update", "flush", "state_dict"} <= methods and not protocol:
                found.append(module)
    return sorted(set(found))


def test_no_learner_knows_another():
    learners = learner_modules()
    assert "learners.reinforce" in learners
    for module in learners:
        others = [other for other in learners if other != module]
        assert not {name for name in imported(module) if any(inside(name, other) for other in others)}


def test_signatures_of_users_functions_are_read_in_one_place():
    assert [module for module in modules("llm_envs") if any(inside(name, "inspect") for name in imported(module))] == [
        "llm_envs.calling"
    ]


# ---- what an import does ----


def place(module: str, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
    return f"{module}:{node.lineno}: {ast.unparse(node)[:80]}"


def test_nothing_runs_on_import():
    """A module defines things: imports, definitions, assignments, docstrings and blocks for type checkers or `python -m`."""
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    for module, node in ((module, node) for module, tree in TREES.items() for node in tree.body):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        guarded = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
        assert isinstance(node, definitions) or text or guarded, place(module, node)


def loaded_by(statement: str) -> set[str]:
    """Modules that a fresh interpreter has after the statement, which must print nothing."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1, done.stdout
    return set(json.loads(done.stdout))


def test_importing_the_environments_loads_no_model_library():
    loaded = loaded_by("import llm_envs")
    assert not {top(name) for name in loaded} & {"torch", "transformers", "datasets", "learners", "pandas", "pyarrow", "requests"}
    assert not {name for name in loaded if inside(name, "llm_envs.testing") or inside(name, "llm_envs.tasks")}
    assert "llm_envs.testing" in loaded_by("import llm_envs; llm_envs.testing.check_env")


def test_pairs_and_their_files_need_no_tensors():
    loaded = loaded_by("import learners.preference.pairs, learners.preference.replay, learners.preference.distributions")
    assert not {top(name) for name in loaded} & {"torch", "transformers", "safetensors"}


OPTIONAL = {"wandb", "ray", "vllm", "peft", "tensorboard", "datasets", "matplotlib", "rich", "jsonargparse", "tenacity"}


@pytest.mark.parametrize("statement", ["import learners", "import learners.cli", "from learners import list_learners"])
def test_learners_are_light_until_they_are_used(statement):
    """The command line answers `--help` without waiting for torch."""
    assert not {top(name) for name in loaded_by(statement)} & {"torch", "transformers", *OPTIONAL}


def loaded_with(*starts: str) -> set[str]:
    """Our modules that are loaded with these."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        if module in TREES and module not in found:
            found.add(module)
            waiting += [part for name in imported(module, at_import=True) for part in (name, name.rpartition(".")[0])]
    return found


def test_learners_import_optional_libraries_where_they_use_them():
    homes = set(importlib.import_module("learners")._HOMES.values())
    loaded = loaded_with(*homes, "learners.tracking", "learners.progress", "learners.report", "learners.curves")
    assert {"learners.policy", "learners.preference.madpo", "learners.actor_critic.critic"} <= loaded
    assert not {
        module: optional for module in loaded if (optional := {top(n) for n in imported(module, at_import=True)} & OPTIONAL)
    }


@pytest.mark.slow
def test_importing_every_learner_loads_no_optional_library():
    """Neither through other libraries."""
    statement = "from learners import *; import learners.tracking, learners.progress, learners.report, learners.curves"
    assert not {top(name) for name in loaded_by(statement)} & OPTIONAL


# ---- public names ----


@pytest.mark.parametrize("package", ["llm_envs", "learners"])
def test_public_names_exist(package):
    """Each name of `__all__` is there, once; other names are an AttributeError."""
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_names_imported_when_used_have_one_home():
    """What a type checker reads, what is exported and where it is imported from agree."""
    learners = importlib.import_module("learners")
    block = next(node for node in TREES["learners"].body if isinstance(node, ast.If))
    read = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert read == learners._HOMES
    assert sorted(read) == sorted(learners.__all__)
    assert set(learners.__all__) <= set(dir(learners))


def public(module: str, tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.Module | ast.FunctionDef | ast.ClassDef]]:
    """A module or class, and the functions, classes and methods in it without a leading underscore, by name."""
    yield module, tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and isinstance(tree, ast.Module):
            yield from public(f"{module}.{node.name}", node)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{module}.{node.name}", node


def test_public_definitions_have_docstrings():
    assert [name for module, tree in TREES.items() for name, node in public(module, tree) if not ast.get_docstring(node)] == []


# ---- size and habits ----


def test_files_are_of_a_size_to_read():
    lines = {module: path.read_text(encoding="utf-8").count("\n") for module, path in PATHS.items()}
    long = {module: count for module, count in lines.items() if count > MOST_LINES}
    assert not long, "what do they do that other files own?"


def test_there_is_no_drawer_for_everything():
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "misc", "common")]


def test_nothing_draws_from_a_global_stream():
    """Python's and numpy's global generators may be saved and restored, not used; numbers come from paths."""
    harmless = {"getstate", "setstate", "get_state", "set_state", "Generator", "PCG64", "SeedSequence", "BitGenerator"}
    for module, tree in TREES.items():
        # A process that runs somebody's program is seeded, so that its draws can be repeated.
        allowed = harmless | ({"seed"} if module == "llm_envs.sandbox.guest" else set())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("random", "np.random", "numpy.random"):
                assert node.attr in allowed, place(module, node)


def test_a_broad_except_raises_again():
    for module in modules("llm_envs"):
        handlers = [node for node in ast.walk(TREES[module]) if isinstance(node, ast.ExceptHandler)]
        broad = [node for node in handlers if node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")]
        if module != "llm_envs.sandbox.outcomes":  # where what foreign code raises becomes a value
            carrying_on = [place(module, node) for node in broad if not isinstance(node.body[-1], ast.Raise)]
            assert carrying_on == []

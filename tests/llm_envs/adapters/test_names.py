"""Guards the ids of other people's environments: resolved by prefix, without the package until one is made."""

from __future__ import annotations

import pytest

import llm_envs
from learners.commands.targets import description, env_options, find_env
from llm_envs.registry import _ADAPTERS


@pytest.mark.parametrize("prefix", _ADAPTERS)
def test_options_are_known_without_the_package(prefix):
    found = llm_envs.spec(f"{prefix}:anything")
    assert found.source == f"the package {prefix}"
    assert {"size", "eval_size", "num_turns"} <= set(found.options())
    with pytest.raises(TypeError, match=f"{prefix}:anything has no option 'sizes'"):
        found.make(sizes=3)


@pytest.mark.parametrize("prefix", _ADAPTERS)
def test_the_command_line_has_options_and_help(prefix):
    found = find_env(f"{prefix}:anything")
    options = {option.name: option.help for option in env_options(found)}
    assert options["env.size"] and "env.render_mode" not in options
    assert not description(found).startswith("partial(")


def test_a_prefix_alone_is_no_environment():
    with pytest.raises(ValueError, match="expected module:function, got 'textarena:'"):
        llm_envs.spec("textarena:")
    with pytest.raises(ValueError, match=r"or module:function, textarena:…, reasoning-gym:…"):
        llm_envs.spec("nothing-v0")

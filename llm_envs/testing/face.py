"""The rules of the PettingZoo face: what other libraries rely on when they use an environment."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import random
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from llm_envs.testing.compare import difference
from llm_envs.testing.subject import Subject, ViolationError, actions, demand, most_steps, play

_AGENT = re.compile(r"[a-z]+_[0-9]+")  # PettingZoo's api_test warns about any other


def api_test(subject: Subject) -> None:
    """PettingZoo's `parallel_api_test` passes, warnings being errors."""
    from pettingzoo.test import parallel_api_test

    with _strict():
        parallel_api_test(subject.fresh(), num_cycles=50)


def seed_test(subject: Subject) -> None:
    """PettingZoo's `parallel_seed_test` passes, warnings being errors."""
    from pettingzoo.test import parallel_seed_test

    with _strict():
        parallel_seed_test(subject.fresh, num_cycles=50)


def aec_test(subject: Subject) -> None:
    """PettingZoo's `api_test` passes through the conversion to turn-based play, warnings being errors."""
    from pettingzoo.test import api_test as turn_based_test
    from pettingzoo.utils.conversions import parallel_to_aec

    with _strict():
        # These it raises for everything that is no plain array; it knows the games of its own that are not by their names.
        warnings.filterwarnings("ignore", "Observation is not a NumPy array")
        warnings.filterwarnings("ignore", "(Observation|Action) space for each agent probably should be")
        turn_based_test(parallel_to_aec(subject.fresh()), num_cycles=20)


@contextlib.contextmanager
def _strict() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("error")
        yield


def direct_base(subject: Subject) -> None:
    """`ParallelEnv` is a direct base of the environment's class."""
    bases = type(subject.fresh()).__bases__
    demand(ParallelEnv in bases, f"the bases are {', '.join(base.__name__ for base in bases)}")


def names(subject: Subject) -> None:
    """`possible_agents` is a list of different names like `writer_0`, a small-letter word and a number, known before a reset."""
    agents = subject.fresh().possible_agents
    demand(isinstance(agents, list) and bool(agents), f"possible_agents is {agents!r}")
    wrong = [agent for agent in agents if not isinstance(agent, str) or not _AGENT.fullmatch(agent)]
    demand(not wrong and len(set(agents)) == len(agents), f"possible_agents is {agents!r}")


def metadata(subject: Subject) -> None:
    """`metadata` has `name` and `render_modes`, and there is a `render_mode`."""
    env = subject.fresh()
    demand(isinstance(env.metadata, dict), f"metadata is {env.metadata!r}")
    demand(isinstance(env.metadata.get("name"), str) and "render_modes" in env.metadata, f"metadata is {env.metadata!r}")
    demand(hasattr(env, "render_mode"), "there is no attribute render_mode")


def attributes(subject: Subject) -> None:
    """There is no attribute `num_envs`, `device` or `seed`, and new attributes can be set."""
    env = subject.fresh()
    found = [name for name in ("num_envs", "device", "seed") if hasattr(env, name)]
    demand(not found, f"it has the attribute {found[:1]}")
    env.max_cycles = 1000  # type: ignore[attr-defined]  # parallel_api_test does so


def stable_spaces(subject: Subject) -> None:
    """Spaces are the same objects at each call, in the dicts `observation_spaces` and `action_spaces`, and from `unwrapped`."""
    env = subject.fresh()
    for agent in env.possible_agents:
        demand(env.observation_space(agent) is env.observation_space(agent), f"observation_space({agent!r}) is new at each call")
        demand(env.action_space(agent) is env.action_space(agent), f"action_space({agent!r}) is new at each call")
        demand(env.observation_spaces[agent] == env.observation_space(agent), f"observation_spaces[{agent!r}] is another space")
        demand(env.action_spaces[agent] == env.action_space(agent), f"action_spaces[{agent!r}] is another space")
        inner = env.unwrapped
        same = (inner.observation_space(agent), inner.action_space(agent)) == (
            env.observation_space(agent),
            env.action_space(agent),
        )
        demand(same, f"unwrapped has other spaces for {agent!r}")


def equal_spaces(subject: Subject) -> None:
    """All agents have equal spaces."""
    env = subject.fresh()
    for kind in (env.observation_space, env.action_space):
        different = [agent for agent in env.possible_agents if kind(agent) != kind(env.possible_agents[0])]
        demand(not different, f"{kind.__name__} of {different[:1]} is not that of {env.possible_agents[0]}")


def observations_belong(subject: Subject) -> None:
    """Every observation, also the last, is a member of its space."""
    env = subject.fresh()
    for where, returned in play(env, subject.episodes, seed=0):
        for agent, seen in returned[0].items():
            demand(env.observation_space(agent).contains(seen), f"{where}: {agent} observes {seen!r:.300}")


def all_in_order(subject: Subject) -> None:
    """Each returned dict holds all agents, in the order of `possible_agents`, and nothing else."""
    env = subject.fresh()
    for where, returned in play(env, subject.episodes, seed=0):
        for part in returned:
            demand(isinstance(part, dict) and list(part) == env.possible_agents, f"{where}: the keys are {list(part)}")


def agents_at_start(subject: Subject) -> None:
    """`agents` equals `possible_agents` after each reset, as another list, and `possible_agents` never changes."""
    env = subject.fresh()
    before = list(env.possible_agents)
    for where, _ in play(env, subject.episodes, seed=0):
        demand(env.possible_agents == before, f"{where}: possible_agents is {env.possible_agents!r}, it was {before!r}")
        if where.startswith("reset"):
            demand(env.agents == before, f"{where}: agents is {env.agents!r}")
            demand(env.agents is not env.possible_agents, f"{where}: agents and possible_agents are one list")


def agents_at_end(subject: Subject) -> None:
    """All agents end together, by termination or by truncation alone; `agents` is empty right then and full before."""
    env = subject.fresh()
    for where, returned in play(env, subject.episodes, seed=0):
        if where.startswith("reset"):
            continue
        _, _, terminations, truncations, _ = returned
        flags = [*terminations.values(), *truncations.values()]
        demand(all(type(flag) is bool for flag in flags), f"{where}: the flags are {flags!r}")
        for part in (terminations, truncations):
            demand(len(set(part.values())) == 1, f"{where}: {terminations} terminated, {truncations} truncated")
        ended, cut = all(terminations.values()), all(truncations.values())
        demand(not (ended and cut), f"{where}: terminated and truncated at once")
        expected = [] if ended or cut else env.possible_agents
        demand(env.agents == expected, f"{where}: agents is {env.agents!r}")


def ends_in_time(subject: Subject) -> None:
    """An episode ends after `num_turns` steps at the latest."""
    env = subject.fresh()
    for _ in play(env, 1, seed=0):
        pass
    demand(not env.agents, f"the episode still runs after {most_steps(env)} steps")


def step_after_end(subject: Subject) -> None:
    """A step after the end raises, or returns nothing for nobody; a reset starts anew."""
    env = subject.fresh()
    last: dict[str, Any] = {}
    for _, returned in play(env, 1, seed=0):
        last = returned[0]
    joint = actions(env, last, 0, 0)
    returned: Any = None
    with contextlib.suppress(Exception):  # an error of whatever type is what should come
        returned = env.step(joint)
    nothing = returned is None or not any(returned)
    demand(nothing and not env.agents, f"a step after the end returned {returned!r:.300}")
    env.reset()
    demand(env.agents == env.possible_agents, f"after the end and a reset, agents is {env.agents!r}")


def finite_rewards(subject: Subject) -> None:
    """Rewards are finite floats."""
    for where, returned in play(subject.fresh(), subject.episodes, seed=0):
        if where.startswith("turn"):
            wrong = {
                agent: reward for agent, reward in returned[1].items() if not isinstance(reward, float) or not math.isfinite(reward)
            }
            demand(not wrong, f"{where}: the rewards are {wrong!r}")


def infos_of_resets(subject: Subject) -> None:
    """Reset infos are empty; or numbers only, the same keys for all agents, and step infos add none."""
    keys: set[str] = set()
    for where, (*_, infos) in play(subject.fresh(), subject.episodes, seed=0):
        demand(all(isinstance(info, dict) for info in infos.values()), f"{where}: the infos are {infos!r:.300}")
        if where.startswith("reset"):
            keys = set().union(*infos.values())
            demand(all(set(info) == keys for info in infos.values()), f"{where}: agents have different keys: {infos!r:.300}")
            values = [value for info in infos.values() for value in info.values()]
            numbers = all(isinstance(value, (int, float, np.number, np.ndarray, np.bool_)) for value in values)
            demand(numbers, f"{where}: the infos are {infos!r:.300}")
        elif keys:
            added = set().union(*infos.values()) - keys
            demand(not added, f"{where}: the infos have new keys {sorted(added)}")


def new_objects(subject: Subject) -> None:
    """Each call returns new dicts, one info for each agent, and nothing done to them changes the environment."""
    env, twin = subject.fresh(), subject.fresh()
    kept: list[Any] = []  # objects that live have different ids
    for (where, returned), (_, expected) in zip(play(env, 1, 0), play(twin, 1, 0), strict=True):
        found = difference(returned, expected)
        demand(found is None, f"{where}: changing what was returned earlier changed the episode{found}")
        kept_ids = {id(one) for one in kept}
        new = [*returned, *returned[-1].values(), *(seen for seen in returned[0].values() if isinstance(seen, (dict, np.ndarray)))]
        ids = [id(one) for one in new]
        demand(len(set(ids)) == len(ids) and not kept_ids.intersection(ids), f"{where}: an object is returned twice")
        kept.extend(new)
        for info in returned[-1].values():
            info["written by somebody else"] = 1
        for part in returned[1:]:
            part.clear()


def state_of_env(subject: Subject) -> None:
    """`state()` works during an episode and after it, changes nothing, and belongs to `state_space` if there is one."""
    env = subject.fresh()
    for where, _ in play(env, 1, seed=0):
        found = difference(env.state(), env.state())
        demand(found is None, f"{where}: two calls of state() differ{found}")
        if hasattr(env, "state_space"):
            demand(env.state_space.contains(env.state()), f"{where}: state() is not in state_space")  # type: ignore[attr-defined]


def whole_episodes_repeat(subject: Subject) -> None:
    """Environments seeded alike stay alike over several episodes, for every seed, 0 included; resets without a seed go on."""
    for seed in (0, 1):
        pairs = zip(play(subject.fresh(), subject.episodes, seed), play(subject.fresh(), subject.episodes, seed), strict=True)
        for (where, one), (_, two) in pairs:
            found = difference(one, two)
            demand(found is None, f"seed {seed}, {where}: {found}")


def reset_again(subject: Subject) -> None:
    """A reset with a seed starts the same episodes again, whatever was played before."""
    env = subject.fresh()
    first = [returned for _, returned in play(env, 1, seed=3)]
    for _ in play(env, subject.episodes, seed=None):
        pass
    second = [returned for _, returned in play(env, 1, seed=3)]
    found = difference(_without_counter(first), _without_counter(second))
    demand(found is None, f"the second time differs{found}")


def _without_counter(value: Any) -> Any:
    # `env_step` counts on over the life of the environment.
    if isinstance(value, Mapping):
        return {key: _without_counter(entry) for key, entry in value.items() if key != "env_step"}
    return [_without_counter(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def global_streams(subject: Subject) -> None:
    """Making, resetting and stepping leave the global random streams of Python, numpy and torch as they were."""
    before = _global_states()
    for _ in play(subject.fresh(), subject.episodes, seed=0):
        pass
    for _ in play(subject.fresh(), 1, seed=None):
        pass
    changed = [name for name, state in _global_states().items() if difference(before[name], state) is not None]
    demand(not changed, f"the stream of {', '.join(changed)} moved")


def _global_states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state()}
    if "torch" in sys.modules:  # not imported here: only an environment that uses it can move it
        states["torch"] = sys.modules["torch"].get_rng_state().numpy()
    return states


def copies(subject: Subject) -> None:
    """A copy and a pickled copy taken in mid-episode go on like the original."""
    env = subject.fresh()
    observations, _ = env.reset(seed=0)
    for turn in range(most_steps(env)):
        try:
            others = {"deepcopy": copy.deepcopy(env), "cloudpickle": cloudpickle.loads(cloudpickle.dumps(env))}
        except Exception as error:
            raise ViolationError(
                f"before turn {turn + 1} it cannot be copied or pickled: {type(error).__name__}: {error}"
            ) from error
        joint = actions(env, observations, 0, turn)
        returned = env.step(joint)
        for how, other in others.items():
            found = difference(returned, other.step(joint))
            demand(found is None, f"turn {turn + 1} of the {how}: {found}")
        observations = returned[0]
        if not env.agents:
            return


def foreign_actions(subject: Subject) -> None:
    """Texts from other libraries are texts too: numpy strings and arrays without dimensions."""
    env, twin = subject.fresh(), subject.fresh()
    agents = env.possible_agents
    if not all(isinstance(env.action_space(agent), spaces.Text) for agent in agents):
        return
    for form in (np.str_, np.array):
        env.reset(seed=0)
        twin.reset(seed=0)
        one, two = twin.step(dict.fromkeys(agents, "red é")), env.step({agent: form("red é") for agent in agents})
        found = difference(one, two)
        demand(found is None, f"an action given as {form.__name__} does something else{found}")

"""PettingZoo environments of texts, written by hand as others would write them."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Higher(ParallelEnv):
    """Two players name a digit for three rounds; who comes nearer to a drawn one earns a point. Players see the last draw."""

    rounds = 3

    def __init__(self):
        self.metadata = {"name": "higher_v0"}
        self.possible_agents = ["player_0", "player_1"]
        self.observation_spaces = {
            a: spaces.Dict({"hint": spaces.Text(200), "round": spaces.Discrete(9)}) for a in self.possible_agents
        }
        self.action_spaces = {a: spaces.Text(3, charset="0123456789", min_length=0) for a in self.possible_agents}
        self.agents = []

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.round = 0
        self.said = "name a digit" if options is None else options["greeting"]
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self):
        return {agent: {"hint": f"{agent}: {self.said}", "round": self.round} for agent in self.agents}

    def draw(self):
        return int(self.rng.integers(10))

    def step(self, actions):
        for agent, action in actions.items():
            assert self.action_spaces[agent].contains(action), f"{agent} played {action!r}"
        drawn = self.draw()
        self.round += 1
        self.said = f"it was {drawn}"
        distance = {agent: abs(int(action or 99) - drawn) for agent, action in actions.items()}
        least = min(distance.values())
        rewards = {agent: float(value == least) for agent, value in distance.items()}
        over = self.round == self.rounds
        returned = self._seen(), rewards, dict.fromkeys(actions, over), dict.fromkeys(actions, False), self.infos(drawn)
        if over:
            self.agents = []
        return returned

    def infos(self, drawn):
        return {agent: {"drawn": drawn, "rng": object()} for agent in self.agents}


class Saving(Higher):
    """With a snapshot of its own."""

    def snapshot(self):
        return self.rng.bit_generator.state, self.round, self.said, list(self.agents)

    def restore(self, snapshot):
        self.rng = np.random.default_rng()
        self.rng.bit_generator.state, self.round, self.said, self.agents = snapshot


class ForgetfulSaving(Saving):
    """A snapshot without the generator."""

    def restore(self, snapshot):
        _, self.round, self.said, self.agents = snapshot
        self.rng = np.random.default_rng(0)


class Locked(Higher):
    """It holds what cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class SharesOnCopy(Higher):
    """A copy is the same object, so the copies play one game."""

    def __deepcopy__(self, memo: Any):
        return self


class Global(Higher):
    """It seeds the global stream and draws from it."""

    def reset(self, seed=None, options=None):
        random.seed(seed)
        return super().reset(seed, options)

    def draw(self):
        return random.randrange(10)


class Unseeded(Higher):
    """It draws from nowhere that a seed reaches."""

    resets = itertools.count()

    def reset(self, seed=None, options=None):
        return super().reset(next(self.resets), options)


class OneLeaves(Higher):
    """player_1 leaves after the first round."""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        if "player_1" in actions:
            terminations["player_1"] = True
            self.agents = [agent for agent in self.agents if agent != "player_1"]
        return observations, rewards, terminations, truncations, infos


class CutOff(Higher):
    """After three rounds it is cut off."""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        return observations, rewards, truncations, terminations, infos


class Stones(AECEnv):
    """Two players put down stones in turn, "1" or "2"; who puts the fifth wins. `hidden` shows no move until both have moved."""

    def __init__(self, hidden=False):
        self.metadata = {"name": "stones_v0", "is_parallelizable": False}
        self.hidden = hidden
        self.possible_agents = ["black", "white"]
        self.observation_spaces = {agent: spaces.Text(200) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Text(1, charset="12", min_length=0) for agent in self.possible_agents}
        super().__init__()

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        first = int(np.random.default_rng(seed).integers(2))
        self.order = self.agents[first:] + self.agents[:first]
        self.agent_selection = self.order[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.moves: list[tuple[str, int]] = []

    def observe(self, agent):
        shown = self.moves
        if self.hidden and len(self.moves) % 2 and not self.terminations[agent]:
            shown = self.moves[:-1]
        return f"{agent}: " + " ".join(f"{who} {count}" for who, count in shown)

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.moves.append((agent, int(action or 1)))
        other = next(one for one in self.possible_agents if one != agent)
        if sum(count for _, count in self.moves) >= 5:
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        self.agent_selection = other

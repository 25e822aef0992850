"""Guards the check of learners: the built-in ones and both examples pass it, and one that breaks a rule fails by that rule."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from learners import IAC, MAAC, MAGRPO, MAREINFORCE, MARLOO, IACConfig, MAACConfig, MAReMax, SamplingConfig, TrainingConfig
from learners.actor_critic.critic import Critic, ValueHead
from learners.testing import RULES, ConformanceError, TabularPolicy, check_learner, tabular_team
from learners.testing.subject import TEAM
from llm_envs import Metrics

EXAMPLES = Path(__file__).parents[2] / "examples"
AC = {"rollout_buffer_size": 2, "agent_learning_rate": 1e-2}


@pytest.mark.parametrize(
    ("learner", "num_turns"),
    [
        (MAGRPO, 2),
        (MARLOO, 1),
        *(pytest.param(MAGRPO, 1, marks=pytest.mark.slow), pytest.param(MARLOO, 2, marks=pytest.mark.slow)),
        *(pytest.param(other, turns, marks=pytest.mark.slow) for other in (MAREINFORCE, MAReMax) for turns in (1, 2)),
    ],
)
def test_the_reinforce_family_passes(learner, num_turns):
    config = learner.config_class(num_generations=3, agent_learning_rate=1e-2, reference_kl_enabled=learner is MARLOO)
    held = check_learner(lambda policies: learner(policies, config), num_turns=num_turns)
    assert held == tuple(rule.statement for rule in RULES)


def test_waiting_and_accumulating_learners_pass():
    """Cross mode, a large buffer in small batches, several mini-batches a step, shared weights."""
    config = MAGRPO.config_class(
        num_generations=2, joint_mode="cross", rollout_buffer_size=3, train_batch_size=2, gradient_accumulation_steps=2
    )

    def shared(agents):
        policy = TabularPolicy()
        return dict.fromkeys(agents, policy)

    check_learner(lambda policies: MAGRPO(policies, config))
    check_learner(lambda policies: MAGRPO(policies, config), make_policies=shared, num_turns=2)


@pytest.fixture
def small_team(tiny_policy):
    """`small_team(agents)`: the smallest models that write something."""

    def team(agents):
        sampling = SamplingConfig(max_new_tokens=2)
        return {agent: tiny_policy(seed=seed, hidden=8, layers=1, sampling=sampling) for seed, agent in enumerate(agents)}

    return team


@pytest.fixture
def small_critic(tiny_model, byte_tokenizer):
    """`small_critic()`: a critic with a model of its own, the same at each call."""
    return lambda: Critic(tiny_model(seed=9, hidden=8, layers=1, context=512), ValueHead(8, seed=1), byte_tokenizer)


def test_maac_passes(small_critic):
    config = MAACConfig(**AC, num_generations=1)
    check_learner(lambda policies: MAAC(policies, small_critic(), config), num_turns=2)


@pytest.mark.slow
def test_maac_passes_with_models(small_team, small_critic):
    config = MAACConfig(**AC, num_generations=1)
    check_learner(lambda policies: MAAC(policies, small_critic(), config), make_policies=small_team, num_turns=2)


@pytest.mark.parametrize("separate", [pytest.param(True, marks=pytest.mark.slow), False])
def test_iac_passes(small_team, small_critic, separate):
    config = IACConfig(**AC, num_generations=2 if separate else 1, use_separate_critic=separate)

    def head_on(policy):
        return Critic(policy.model, ValueHead(8, seed=1), policy.tokenizer, owns_model=False)

    def learner(policies):
        critics = {agent: small_critic() if separate else head_on(policy) for agent, policy in policies.items()}
        return IAC(policies, critics, config)

    check_learner(learner, make_policies=small_team)


@pytest.mark.parametrize("num_turns", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_examples_pass(monkeypatch, num_turns):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "third_party_learner"))
    # Other tests import modules of these names from elsewhere.
    for module in ("moving_baseline", "own_learner"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    from moving_baseline import MovingBaseline, MovingBaselineConfig
    from own_learner import BestOfK

    check_learner(lambda policies: BestOfK(policies, TrainingConfig(), 8, 3), num_turns=num_turns)
    config = MovingBaselineConfig(num_generations=3, gradient_accumulation_steps=2)
    check_learner(lambda policies: MovingBaseline(policies, config), num_turns=num_turns)
    for module in ("moving_baseline", "own_learner"):
        del sys.modules[module]


# ---- broken learners ----


class Around:
    """MAGRPO, with whatever a subclass breaks."""

    def __init__(self, policies):
        self.inner: Any = MAGRPO(policies, MAGRPO.config_class(num_generations=3, rollout_buffer_size=2, agent_learning_rate=1e-2))
        self.policies = self.inner.policies
        self.rollout: Any = self.inner.rollout

    @property
    def states_until_update(self):
        return self.inner.states_until_update

    def update(self, steps):
        return self.inner.update(steps)

    def flush(self):
        return self.inner.flush()

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


class LacksFlush(Around):
    flush = None


class TurnsTheTeam(Around):
    def __init__(self, policies):
        super().__init__(policies)
        self.policies = dict(reversed(self.policies.items()))


class RolloutIsANumber(Around):
    def __init__(self, policies):
        super().__init__(policies)
        self.rollout = 3


class CountsFromZero(Around):
    @property
    def states_until_update(self):
        return self.inner.states_until_update - 1


class PromisesTooMuch(Around):
    @property
    def states_until_update(self):
        return 8


class CountsUpwards(Around):
    """2, 3: more room after an episode, without an update."""

    @property
    def states_until_update(self):
        return 4 - self.inner.states_until_update


class LogsATensor(Around):
    def update(self, steps):
        return [Metrics(entry.env_step, {"loss": torch.tensor(1.0)}) for entry in super().update(steps)]


class LogsTheFuture(Around):
    def update(self, steps):
        return [Metrics(steps[-1].env_step + 1, {"loss": 1.0})]


class LogsNothing(Around):
    def update(self, steps):
        super().update(steps)

    def flush(self):
        super().flush()
        return []


class Frozen(Around):
    def update(self, steps):
        return [Metrics(steps[-1].env_step, {"loss": 1.0})]

    def flush(self):
        return []


class ForgetsOneAgent(Around):
    def update(self, steps):
        kept = self.policies[TEAM[1]].state_dict()["logits"].clone()
        metrics = super().update(steps)
        self.policies[TEAM[1]].load_state_dict({"logits": kept})
        return metrics

    def flush(self):
        return []


class ThrowsAwayTheRest(Around):
    def flush(self):
        self.inner._buffer.clear()
        return []


class NeverFlushes(Around):
    def flush(self):
        metrics = super().flush() if self.inner._buffer else []
        self.again = [*metrics, Metrics(1, {"flushed": 1.0})]
        return self.again


class TidiesUpSteps(Around):
    def update(self, steps):
        metrics = super().update(steps)
        for step in steps:
            step.infos[TEAM[0]].clear()
        return metrics


class DrawsFromTheGlobalStream(Around):
    def update(self, steps):
        random.random()
        return super().update(steps)


class SeedsTorchWhenLoading(Around):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        torch.manual_seed(1)


class TakesNaNForZero(Around):
    def update(self, steps):
        finite = [step for step in steps if all(abs(value) < 1e9 for value in step.rewards.values())]
        return super().update(finite)


class NoticesTooLate(Around):
    def update(self, steps):
        worst = max(abs(value) for step in steps for value in step.rewards.values())
        if not worst < 1e9 or worst != worst or any(value != value for step in steps for value in step.rewards.values()):
            with torch.no_grad():
                self.policies[TEAM[0]].logits.add_(1)
        return super().update(steps)


class KeepsObjects(Around):
    def state_dict(self):
        return {**super().state_dict(), "rollout": self.rollout}


class ForgetsItsBuffer(Around):
    def state_dict(self):
        return {**super().state_dict(), "buffer": []}


class ForgetsItsCounter(Around):
    """The counter names the random stream of a later update."""

    def load_state_dict(self, state):
        super().load_state_dict({**state, "updates": 0})


class TakesAnyState(Around):
    def load_state_dict(self, state):
        teams = dict(zip((team.name for team in self.inner._teams), state["teams"].values(), strict=True))
        super().load_state_dict({**state, "teams": teams})


class StopsHalfway(Around):
    def load_state_dict(self, state):
        for policy in self.policies.values():
            with torch.no_grad():
                policy.logits.add_(1)
        super().load_state_dict(state)


class FailsOtherwise(Around):
    def load_state_dict(self, state):
        for team in self.inner._teams:
            team.load_state_dict(state["teams"][team.name])
        super().load_state_dict(state)


BROKEN = [
    (LacksFlush, "It has `policies`", "flush cannot be called"),
    (TurnsTheTeam, "`policies` maps every agent", "the team is ['writer_0', 'editor_0']"),
    (RolloutIsANumber, "`rollout` is", "it is 3"),
    (CountsFromZero, "`states_until_update`", "after episode 0 it is 0"),
    (PromisesTooMuch, "`states_until_update`", "the policies changed after episode 1"),
    (CountsUpwards, "`states_until_update`", "it was 2 before an episode of 1 states and is 3 now"),
    (LogsATensor, "`update` and `flush` return", "no Python number"),
    (LogsTheFuture, "`update` and `flush` return", "logs at env step 4, and it has seen those from 1 to 3"),
    (LogsNothing, "`update` and `flush` return", "returned no list but None"),
    (Frozen, "After enough episodes", "the old ones of writer_0, editor_0"),
    (ForgetsOneAgent, "After enough episodes", "the old ones of editor_0"),
    (ThrowsAwayTheRest, "`flush` updates", "changed no weights"),
    (NeverFlushes, "After `flush` nothing waits", "a second flush logs"),
    (TidiesUpSteps, "`update` leaves the steps", "infos"),
    (DrawsFromTheGlobalStream, "Training, saving and restoring", "global stream ['python']"),
    (SeedsTorchWhenLoading, "Training, saving and restoring", "load_state_dict drew from or seeded the global stream ['torch']"),
    (TakesNaNForZero, "A reward that is not finite", "a reward of nan raised nothing"),
    (NoticesTooLate, "A reward that is not finite", "only after it had changed weights['writer_0']"),
    (KeepsObjects, "The state is a tree", "RolloutSpec"),
    (ForgetsItsBuffer, "A run that is saved", "resumed after episode 1 of 5"),
    (ForgetsItsCounter, "A run that is saved", "state['updates']"),
    (TakesAnyState, "The state of another team", "was taken by the team writer_0, editor_0"),
    (StopsHalfway, "The state of another team", "only after it had changed state"),
    (FailsOtherwise, "The state of another team", "ended in KeyError"),
]


def test_the_whole_wrapper_passes():
    check_learner(Around)


@pytest.mark.parametrize("broken, rule, found", BROKEN, ids=[entry[0].__name__ for entry in BROKEN])
def test_a_broken_learner_fails_by_its_rule(broken, rule, found):
    with pytest.raises(ConformanceError) as caught:
        check_learner(broken)
    message = str(caught.value)
    assert message.startswith(rule), message
    assert found in message
    assert "What goes wrong without it: " in message


def test_every_rule_is_broken_by_some_learner():
    stated = [rule for _, rule, _ in BROKEN]
    assert not [rule.statement for rule in RULES if not any(rule.statement.startswith(start) for start in stated)]


def test_tables_are_the_default_team():
    team = tabular_team(["a_0", "b_0"])
    assert list(team) == ["a_0", "b_0"] and team["a_0"] is not team["b_0"]

"""Guards the REINFORCE-family learner: one update against a naive loop, equivalences, buffers, resume, each option."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from learners import credit
from learners.reinforce import MAGRPO, MAREINFORCE, MARLOO, MAGRPOConfig, MAREINFORCEConfig, MAReMax, MAReMaxConfig, ReinforceConfig
from learners.sampling import SamplingConfig
from llm_envs.env import TaskEnv
from llm_envs.rollouts import Numbering, collect
from llm_envs.task import Task
from llm_envs.types import EnvStep

AGENTS = ("writer_0", "editor_0")
LEARNERS = [MAREINFORCE, MAGRPO, MARLOO, MAReMax]
ONE_AND_THE_OTHERS = [MAGRPO, *(pytest.param(other, marks=pytest.mark.slow) for other in LEARNERS if other is not MAGRPO)]


def vowels(first: Sequence[str], second: Sequence[str]) -> list[float]:
    """A reward that differs between almost any two texts: weighted byte sums."""
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


def answer(agent_completions: Sequence[str], turn: int) -> list[str]:
    return [f"turn {turn}: {text[:3]}" for text in reversed(agent_completions)]


def make_env(num_turns: int = 1) -> TaskEnv:
    items = [{"prompt": f"item {i}" * (1 + i % 2)} for i in range(4)]
    return TaskEnv(
        Task(reward=vowels, items=items, agents=AGENTS, num_turns=num_turns, transition=answer if num_turns > 1 else None)
    )


def config(learner: type = MAGRPO, **options: object) -> ReinforceConfig:
    defaults = {"num_generations": 3, "temperature": 0.8, "top_p": 1.0, "top_k": None, "max_new_tokens": 6}
    return learner.config_class(**{**defaults, **options})


@pytest.fixture
def make_policies(tiny_policy):
    """`make_policies(temperature=, shared=False, dtype=)`: a policy for each agent, equal at each call."""

    def make(temperature: float = 0.8, shared: bool = False, double: bool = False, layers: int = 1, **model: object) -> dict:
        sampling = SamplingConfig(temperature=temperature, max_new_tokens=6)
        policies = [tiny_policy(seed=seed, sampling=sampling, layers=layers, **model) for seed in range(1 if shared else 2)]
        if double:
            for policy in policies:
                policy.model.double()
        return {agent: policies[0 if shared else i] for i, agent in enumerate(AGENTS)}

    return make


def parameters_of(policies: Mapping) -> list[torch.Tensor]:
    return [parameter.detach().clone() for policy in policies.values() for parameter in policy.parameters()]


def gradient_after(learner_class: type, policies: dict, steps: list[EnvStep], **options: object) -> list[torch.Tensor]:
    """Gradients of one update: the optimiser waits in an accumulation window, so they stay on the parameters."""
    size = len({step.state_id for step in steps})
    learner = learner_class(policies, config(learner_class, rollout_buffer_size=size, gradient_accumulation_steps=99, **options))
    learner.update(steps)
    return [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for policy in policies.values()
        for parameter in policy.parameters()
    ]


def naive_gradient(policies: dict, steps: list[EnvStep], mode: str, temperature: float) -> list[torch.Tensor]:
    """The policy gradient with one plain forward pass a completion and a loop over its tokens."""
    states = sorted({step.state_id for step in steps})
    gradients = []
    for agent, policy in policies.items():
        policy.model.zero_grad(set_to_none=True)
        loss = torch.zeros((), dtype=torch.float64)
        for state in states:
            siblings = [step for step in steps if step.state_id == state]
            values = [_naive_return(step, steps, agent) for step in siblings]
            chosen = credit.advantages(values, mode, False)
            for step, advantage in zip(siblings, chosen, strict=True):
                completion = step.completions[agent]
                ids = torch.tensor([completion.prompt_ids + completion.token_ids])
                logits = policy.model(ids).logits[0]
                start = len(completion.prompt_ids)
                for position, token in enumerate(completion.token_ids):
                    scores = torch.log_softmax(logits[start + position - 1] / temperature, dim=-1)
                    loss = loss - advantage * scores[token] / (len(siblings) * len(states))
        loss.backward()
        gradients += [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in policy.parameters()]
        policy.model.zero_grad(set_to_none=True)
    return gradients


def _naive_return(step: EnvStep, steps: list[EnvStep], agent: str) -> float:
    children = [other for other in steps if other.state_id == step.next_state_id]
    return step.rewards[agent] + (sum(_naive_return(c, steps, agent) for c in children) / len(children) if children else 0.0)


def collected(policies: dict, turns: int = 1, items: int = 2, **options: object) -> list[EnvStep]:
    env = make_env(turns)
    return collect(env, policies, env.items[:items], config(**options).rollout, seed=5)


@pytest.mark.parametrize(
    ("learner_class", "turns"),
    [
        *((learner, 1) for learner in LEARNERS),
        (MAGRPO, 2),
        *(pytest.param(learner, 2, marks=pytest.mark.slow) for learner in LEARNERS if learner is not MAGRPO),
    ],
)
def test_gradient_of_an_update_equals_a_loop_over_tokens_in_float64(make_policies, learner_class, turns):
    # GPT-2, whose norms and positions stay in double precision all the way.
    policies = make_policies(double=True, arch="gpt2")
    steps = collected(policies, turns)
    mode = config(learner_class).advantage_mode
    expected = naive_gradient(policies, steps, mode, temperature=0.8)
    found = gradient_after(learner_class, policies, steps, advantage_normalization=False)
    assert max(gradient.abs().max() for gradient in expected) > 1e-3
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_the_four_baselines_train_differently_without_normalisation_and_alike_with_it(make_policies):
    policies = make_policies()
    steps = collected(policies)
    apart = [
        gradient_after(learner, policies, steps, advantage_normalization=False)[0].clone()
        for learner in LEARNERS
        if not _clear(policies)
    ]
    alike = [gradient_after(learner, policies, steps)[0].clone() for learner in LEARNERS if not _clear(policies)]
    assert all(not torch.allclose(a, b) for i, a in enumerate(apart) for b in apart[:i])
    for other in alike[1:]:
        torch.testing.assert_close(alike[0], other)


def _clear(policies: dict) -> None:
    for policy in policies.values():
        policy.model.zero_grad(set_to_none=True)


@pytest.mark.parametrize("aggregation", ["sequence_sum", "sequence_mean", "token_mean"])
def test_micro_batches_of_one_completion_give_the_gradient_of_the_whole_batch(make_policies, aggregation):
    whole, split = make_policies(), make_policies(policy={"micro_batch_tokens": 1})
    steps = collected(whole)
    expected = gradient_after(MAGRPO, whole, steps, loss_aggregation=aggregation)
    found = gradient_after(MAGRPO, split, steps, loss_aggregation=aggregation)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_shared_policy_gets_the_sum_of_the_gradients_of_equal_copies(make_policies):
    shared = make_policies(shared=True)
    copies = {agent: make_policies(shared=True)[agent] for agent in AGENTS}
    steps = collected(shared)
    summed = gradient_after(MAGRPO, shared, steps)
    both = gradient_after(MAGRPO, copies, steps)
    count = len(both) // 2
    for index, gradient in enumerate(summed[:count]):
        torch.testing.assert_close(gradient, both[index] + both[count + index], rtol=1e-4, atol=1e-6)


def test_order_of_the_agents_changes_nothing(make_policies):
    policies = make_policies()
    steps = collected(policies)
    forward = gradient_after(MAGRPO, policies, steps)
    _clear(policies)
    turned = gradient_after(MAGRPO, dict(reversed(policies.items())), steps)
    count = len(forward) // 2
    for one, other in zip(forward, turned[count:] + turned[:count], strict=True):
        torch.testing.assert_close(one, other)


def test_threads_train_to_the_same_weights(make_policies):
    alone, threaded = make_policies(), make_policies()
    steps = collected(alone)
    MAGRPO(alone, config(agent_learning_rate=1e-2)).update(steps)
    with ThreadPoolExecutor(2) as executor:
        MAGRPO(threaded, config(agent_learning_rate=1e-2), executor=executor).update(steps)
    for one, other in zip(parameters_of(alone), parameters_of(threaded), strict=True):
        assert torch.equal(one, other)


def test_an_update_comes_when_the_buffer_is_full_and_flush_takes_the_rest(make_policies):
    policies = make_policies()
    env = make_env()
    learner = MAGRPO(policies, config(rollout_buffer_size=3))
    steps = collect(env, policies, env.items, learner.rollout)
    before = parameters_of(policies)
    assert learner.update(steps[:6]) == []
    assert learner.states_until_update == 1
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(policies), strict=True))
    groups = [metrics.group for metrics in learner.update(steps[6:])]
    assert groups == ["turn_1", "update"]
    assert learner.states_until_update == 2
    after = parameters_of(policies)
    assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert [metrics.group for metrics in learner.flush()] == ["turn_1", "update"]
    assert not all(torch.equal(a, b) for a, b in zip(after, parameters_of(policies), strict=True))
    assert learner.flush() == []


def test_train_batch_size_makes_several_optimiser_steps_of_a_buffer(make_policies):
    policies = make_policies()
    learner = MAGRPO(policies, config(rollout_buffer_size=4, train_batch_size=3))
    env = make_env()
    learner.update(collect(env, policies, env.items, learner.rollout))
    assert learner.state_dict()["teams"]["writer_0"]["optimizer"]["updates"] == 2


def test_metrics_of_an_update(make_policies):
    """Two turns of one item, K=3: turn 1 has one node, turn 2 three; all means are over the joint actions."""
    policies = make_policies()
    steps = collected(policies, turns=2, items=1)
    learner = MAGRPO(policies, config(rollout_buffer_size=4))
    by_group = {metrics.group: metrics for metrics in learner.update(steps)}
    first = [step for step in steps if step.turn == 1]
    second = [step for step in steps if step.turn == 2]
    mean_second = sum(step.rewards["writer_0"] for step in second) / 9
    mean_first = sum(step.rewards["writer_0"] for step in first) / 3
    assert by_group["turn_1"].values["turn_1/reward_mean"] == pytest.approx(mean_first)
    assert by_group["turn_1"].values["turn_1/expected_return"] == pytest.approx(mean_first + mean_second)
    assert by_group["turn_2"].values["turn_2/expected_return"] == pytest.approx(mean_second)
    assert by_group["turn_2"].env_step == 12
    update = by_group["update"].values
    lengths = {(s.state_id, s.choice["editor_0"]): len(s.completions["editor_0"].token_ids) for s in steps}
    assert update["editor_0/completion_length"] == pytest.approx(sum(lengths.values()) / 12)
    assert update["not_expanded_share"] == 0.0
    assert update["writer_0/grad_norm"] > 0
    assert update["writer_0/entropy"] > 0


def test_zero_spread_and_not_expanded_shares(make_policies):
    env = TaskEnv(Task(reward=lambda a, b: [1.0] * len(a), items=[{"prompt": "x"}], agents=AGENTS, num_turns=2, transition=answer))
    policies = make_policies()
    learner = MAGRPO(policies, config(rollout_buffer_size=1, early_termination_threshold=0.5))
    steps = collect(env, policies, env.items, learner.rollout)
    assert len(steps) == 3
    update = learner.update(steps)[-1].values
    assert (update["zero_spread_share"], update["not_expanded_share"]) == (1.0, 1.0)


def test_a_state_that_was_stopped_counts_though_one_of_its_branches_had_ended(make_policies):
    """Three branches: the first ends by itself, the other two are not expanded because 1.0 exceeds the threshold."""
    calls = iter(range(3))
    task = Task(
        reward=lambda a, b: [1.0] * len(a),
        items=[{"prompt": "x"}],
        agents=AGENTS,
        num_turns=2,
        transition=lambda prompt: None if next(calls) == 0 else ["go on", "go on"],
    )
    policies = make_policies()
    learner = MAGRPO(policies, config(rollout_buffer_size=1, early_termination_threshold=0.5))
    steps = collect(TaskEnv(task), policies, task.items, learner.rollout)
    assert [(step.terminated, step.next_state_id) for step in steps] == [(True, None), (False, None), (False, None)]
    assert learner.update(steps)[-1].values["not_expanded_share"] == 1.0


def test_discount_reaches_the_returns(make_policies):
    policies = make_policies()
    steps = collected(policies, turns=2, items=1)
    returns = [
        MAGRPO(make_policies(), config(rollout_buffer_size=4, discount=discount)).update(steps)[0].values["turn_1/expected_return"]
        for discount in (1.0, 0.0)
    ]
    mean_first = sum(step.rewards["writer_0"] for step in steps if step.turn == 1) / 3
    assert returns[1] == pytest.approx(mean_first)
    assert returns[0] != pytest.approx(mean_first)


class TestReferenceKL:
    """The penalty for leaving the initial policy."""

    def test_is_zero_before_any_update_and_positive_after(self, make_policies):
        policies = make_policies()
        learner = MAGRPO(policies, config(rollout_buffer_size=2, reference_kl_enabled=True, agent_learning_rate=1e-2))
        env = make_env()
        numbering = Numbering()
        values = []
        for _ in range(2):
            steps = collect(env, policies, env.items[:2], learner.rollout, numbering=numbering)
            values.append(learner.update(steps)[0].values)
        assert values[0]["turn_1/reference_kl_mean"] == pytest.approx(0.0, abs=1e-6)
        assert values[1]["turn_1/reference_kl_mean"] > 1e-3
        assert values[1]["turn_1/reference_kl_penalty_mean"] == pytest.approx(0.1 * values[1]["turn_1/reference_kl_mean"])

    def test_the_reference_stays_as_it_was(self, make_policies):
        policies = make_policies()
        before = parameters_of(policies)
        learner = MAGRPO(policies, config(reference_kl_enabled=True, agent_learning_rate=1e-2))
        learner.update(collected(policies))
        frozen = [tensor for state in learner.state_dict()["references"].values() for tensor in state.values()]
        assert all(torch.equal(a, b) for a, b in zip(before, frozen, strict=True))

    def test_the_policy_itself_is_refused_as_reference(self, make_policies):
        policies = make_policies()
        with pytest.raises(ValueError, match=r"reference of writer_0, editor_0 is the policy itself"):
            MAGRPO(policies, config(reference_kl_enabled=True), references=policies)

    def test_changes_the_update(self, make_policies):
        """A reference that differs makes completions unequal that the reward cannot tell apart."""
        policies, others = make_policies(), make_policies()
        for policy in others.values():
            with torch.no_grad():
                for parameter in policy.model.parameters():
                    parameter.mul_(0.7)
        steps = [dataclasses.replace(step, rewards=dict.fromkeys(AGENTS, 1.0)) for step in collected(policies)]
        size = {"rollout_buffer_size": 2, "gradient_accumulation_steps": 9, "advantage_normalization": False}
        norms = []
        for enabled in (False, True):
            _clear(policies)
            options = {"reference_kl_enabled": enabled, **size}
            MAGRPO(policies, config(**options), references=others if enabled else None).update(steps)
            norms.append(sum(p.grad.norm() for p in policies["writer_0"].parameters()))
        assert norms[0] == pytest.approx(0.0, abs=1e-7)
        assert norms[1] > 1e-3


def test_ratio_clipping_leaves_on_policy_gradients_and_stops_far_ones(make_policies):
    policies = make_policies()
    steps = collected(policies)
    plain = gradient_after(MAGRPO, policies, steps)
    _clear(policies)
    on_policy = gradient_after(MAGRPO, policies, steps, ratio_clip_range=0.2)
    for one, other in zip(plain, on_policy, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    far = [_shifted(step, -5.0) for step in steps]
    _clear(policies)
    clipped = gradient_after(
        MAREINFORCE, policies, [_positive(s) for s in far], ratio_clip_range=0.2, advantage_normalization=False
    )
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in clipped)


def _shifted(step: EnvStep, by: float) -> EnvStep:
    completions = {
        agent: dataclasses.replace(c, logprobs=tuple(value + by for value in c.logprobs)) for agent, c in step.completions.items()
    }
    return dataclasses.replace(step, completions=completions)


def _positive(step: EnvStep) -> EnvStep:
    return dataclasses.replace(step, rewards=dict.fromkeys(AGENTS, 1.0))


@pytest.mark.parametrize("learner_class", ONE_AND_THE_OTHERS)
def test_resuming_in_mid_buffer_and_mid_window_equals_going_on(make_policies, learner_class):
    options = {
        "rollout_buffer_size": 3,
        "gradient_accumulation_steps": 2,
        "agent_learning_rate": 1e-2,
        "reference_kl_enabled": True,
    }
    straight = make_policies()
    learner = learner_class(straight, config(learner_class, **options))
    env = make_env(2)
    numbering = Numbering()
    chunks = [collect(env, make_policies(), [item], learner.rollout, numbering=numbering) for item in env.items]
    for chunk in chunks[:2]:
        learner.update(chunk)
    state = copy.deepcopy(learner.state_dict())
    json.dumps(state["buffer"])
    resumed = make_policies()
    other = learner_class(resumed, config(learner_class, **options))
    other.load_state_dict(state)
    for chunk in chunks[2:]:
        assert learner.update(chunk) == other.update(chunk)
    learner.flush()
    other.flush()
    for one, two in zip(parameters_of(straight), parameters_of(resumed), strict=True):
        assert torch.equal(one, two)


def test_a_state_of_another_team_is_refused_and_changes_nothing(make_policies):
    learner = MAGRPO(make_policies(), config())
    before = parameters_of(learner.policies)
    state = MAGRPO(make_policies(shared=True), config()).state_dict()
    with pytest.raises(ValueError, match=r"holds the teams writer_0\+editor_0, this learner has writer_0, editor_0"):
        learner.load_state_dict(state)
    with pytest.raises(ValueError, match="shape"):
        learner.load_state_dict(MAGRPO(make_policies(hidden=16), config()).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(learner.policies), strict=True))


def test_a_state_of_another_optimiser_is_refused_and_changes_nothing(make_policies):
    """The same models, but the last agent of the saved run did not train its embeddings."""
    other = make_policies(scale=3.0)
    other[AGENTS[-1]].model.get_input_embeddings().requires_grad_(False)
    learner = MAGRPO(make_policies(), config())
    before = parameters_of(learner.policies)
    with pytest.raises(ValueError, match=r"optimiser state of .* cannot be loaded"):
        learner.load_state_dict(MAGRPO(other, config()).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(learner.policies), strict=True))


def test_a_reward_that_is_not_finite_raises_and_leaves_the_weights(make_policies):
    policies = make_policies()
    steps = [dataclasses.replace(step, rewards=dict.fromkeys(AGENTS, float("nan"))) for step in collected(policies)]
    before = parameters_of(policies)
    with pytest.raises(FloatingPointError):
        MAGRPO(policies, config()).update(steps)
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(policies), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_generations": 1}, "num_generations must be at least 2 with advantage_mode='mean'"),
        ({"joint_mode": "alignd"}, "joint_mode must be one of 'aligned', 'cross', 'crossed', got 'alignd'"),
        ({"advantage_mode": "median"}, "advantage_mode must be one of"),
        ({"advantage_normalization": "both"}, "advantage_normalization must be one of"),
        ({"loss_aggregation": "sum"}, "loss_aggregation must be one of"),
        ({"rollout_buffer_size": 0}, "rollout_buffer_size must be a whole number of at least 1, got 0"),
        ({"train_batch_size": 0}, "train_batch_size must be a whole number of at least 1 or None, got 0"),
        ({"temperature": 0}, "temperature must be a number above 0, got 0"),
        ({"top_p": 1.2}, "top_p must be a number above 0 and at most 1, got 1.2"),
        ({"top_k": -1}, "top_k must be a whole number of at least 0 or None, got -1"),
        ({"discount": 1.5}, "discount must be a number at least 0 and at most 1, got 1.5"),
        ({"agent_learning_rate": 0}, "agent_learning_rate must be a number above 0, got 0"),
        ({"reference_kl_coef": -1}, "reference_kl_coef must be a number at least 0, got -1"),
        ({"ratio_clip_range": float("nan")}, "ratio_clip_range must be a number above 0 or None, got nan"),
        ({"lr_scheduler_type": "linear"}, "lr_scheduler_type='linear' needs lr_decay_steps"),
        ({"parallel_training": "mp"}, "parallel_training='mp' needs agent_devices"),
        ({"num_train_epochs": True}, "num_train_epochs must be a whole number"),
        ({"eval_interval": -1}, "eval_interval must be a whole number of at least 0"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_value(options, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        config(**options)


def test_one_generation_is_enough_without_a_baseline():
    assert MAREINFORCEConfig(num_generations=1).rollout.num_generations == 1
    with pytest.raises(ValueError, match="advantage_mode='max'"):
        MAReMaxConfig(num_generations=1)


def test_crossed_means_cross():
    assert MAGRPOConfig(joint_mode="crossed").rollout == MAGRPOConfig(joint_mode="cross").rollout

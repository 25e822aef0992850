"""Guards updates of IAC: gradients against a hand-written one, targets, clipping, what critics read, equivalences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tabular import TabularPolicy
from team import (
    AGENTS,
    KINDS,
    TWO_KINDS,
    WINDOW,
    assert_close,
    collected,
    gradients_of,
    make_env,
    naive_logprob,
    naive_targets,
    naive_value,
    own_rewards,
    parameters_of,
    same,
    values_fixed_at,
    values_of,
    weights_of,
    with_rewards,
)

from learners.actor_critic.critic import Critic, ValueHead
from learners.actor_critic.iac import IAC, IACConfig
from llm_envs.env import TaskEnv
from llm_envs.rollouts import collect
from llm_envs.seeding import PLAY
from llm_envs.task import Task
from llm_envs.types import EnvStep, RolloutSpec


def config(**options: object) -> IACConfig:
    return IACConfig(**{"agent_learning_rate": 1e-2, "critic_learning_rate": 1e-2, "rollout_buffer_size": 4, **options})


def gradients_after(policies: dict, critics: dict, steps: Sequence[EnvStep], **options: object) -> list[torch.Tensor]:
    """Of one update on all the steps."""
    separate = next(iter(critics.values())).owns_model
    options = {"rollout_buffer_size": len(steps), "gradient_accumulation_steps": WINDOW, **options}
    IAC(policies, critics, config(use_separate_critic=separate, **options)).update(steps)
    return gradients_of(policies, critics)


# ---- one update ----


def read_by(step: EnvStep, agent: str, kind: str) -> tuple[int, ...]:
    completion = step.completions[agent]
    return completion.prompt_ids + (completion.token_ids if kind == "q" else ())


def naive_gradients(policies: dict, critics: dict, steps: list[EnvStep], kind: str, discount: float, normalize: bool) -> list:
    """δ = r + γ v' − v; −δ Σ log π and .6 (r + γ v' − v)², each a mean over the agent's samples; one plain forward each."""
    for agent, policy in policies.items():
        values = {step.env_step: naive_value(critics[agent], read_by(step, agent, kind)) for step in steps}
        fixed = {number: value.item() for number, value in values.items()}
        targets = naive_targets(steps, fixed, agent, discount)
        advantages = {number: targets[number] - fixed[number] for number in targets}
        loss = torch.zeros((), dtype=torch.float64)
        for step in steps:
            group = torch.tensor([advantages[s.env_step] for s in steps if s.turn == step.turn], dtype=torch.float64)
            advantage = advantages[step.env_step]
            if normalize:
                advantage = (advantage - group.mean()) / group.std(correction=0)
            error = (targets[step.env_step] - values[step.env_step]) ** 2
            loss = loss + (0.6 * error - advantage * naive_logprob(policy, step, agent)) / len(steps)
        loss.backward()
    return gradients_of(policies, critics)


@pytest.mark.parametrize(("separate", "kind"), KINDS)
@pytest.mark.parametrize(
    ("turns", "generations", "normalize"),
    [
        (1, 3, True),
        (2, 1, False),
        pytest.param(1, 3, False, marks=pytest.mark.slow),
        pytest.param(2, 1, True, marks=pytest.mark.slow),
    ],
)
def test_an_update_equals_a_hand_written_one_in_float64(make_policies, make_critics, separate, kind, turns, generations, normalize):
    # GPT-2, whose norms and positions stay in double precision all the way.
    policies = make_policies(double=True, arch="gpt2")
    critics = make_critics(policies, separate, double=True, arch="gpt2", hidden_dim=8)
    steps = collected(make_env(turns), policies, generations)
    expected = naive_gradients(policies, critics, steps, kind, 0.9, normalize)
    options = {"critic_type": kind, "discount": 0.9, "advantage_normalization": normalize}
    found = gradients_after(policies, critics, steps, **options)
    assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_one_agent_alone_is_plain_actor_critic(make_policies, make_critics):
    """The same, the optimiser's step included: AdamW of torch on the hand-written gradient gives the learner's weights."""
    policies = {AGENTS[0]: make_policies(double=True, arch="gpt2")[AGENTS[0]]}
    critics = make_critics(policies, double=True, arch="gpt2")
    items = [{"prompt": "one"}, {"prompt": "another"}]
    env = TaskEnv(Task(reward=lambda texts: [sum(text.encode()) % 17 / 7 for text in texts], items=items, agents=AGENTS[:1]))
    steps = collect(env, policies, env.items, RolloutSpec(3), seed=5)
    hand_policies = {AGENTS[0]: make_policies(double=True, arch="gpt2")[AGENTS[0]]}
    hand_critics = make_critics(hand_policies, double=True, arch="gpt2")
    for parameter, gradient in zip(
        parameters_of(hand_policies, hand_critics),
        naive_gradients(hand_policies, hand_critics, steps, "v", 1.0, True),
        strict=True,
    ):
        parameter.grad = gradient
    torch.optim.AdamW(parameters_of(hand_policies, hand_critics), lr=1e-2, weight_decay=0.01).step()
    before = weights_of(policies, critics)
    IAC(policies, critics, config(rollout_buffer_size=6)).update(steps)
    assert not same(before, weights_of(policies, critics))
    assert_close(weights_of(policies, critics), weights_of(hand_policies, hand_critics), rtol=1e-6, atol=1e-8)


# ---- targets ----


def test_targets_of_two_turns_and_returns_by_hand(make_policies, fixed_critics):
    """V = .5 everywhere, γ = .9, rewards r₁, r₂: targets r₁ + .45 and r₂; with λ = .5 r₁ + .9(.25 + .5 r₂). Returns r₁ + r₂, r₂."""
    policies = make_policies()
    steps = collected(make_env(2), policies, items=1)
    first, second = (step.rewards[AGENTS[0]] for step in steps)
    for gae_lambda, target in [(0.0, first + 0.45), (0.5, first + 0.9 * (0.25 + 0.5 * second)), (1.0, first + 0.9 * second)]:
        learner = IAC(policies, fixed_critics(policies), config(rollout_buffer_size=2, discount=0.9, gae_lambda=gae_lambda))
        found = values_of(learner.update(steps))
        for agent in AGENTS:
            assert found[f"turn_1/{agent}/target_mean"] == pytest.approx(target)
            assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(second)
            assert found[f"turn_1/{agent}/critic_loss"] == pytest.approx((target - 0.5) ** 2)
        assert found["turn_1/expected_return"] == pytest.approx(first + second)
        assert found["turn_2/expected_return"] == pytest.approx(second)


@pytest.mark.parametrize(("separate", "foreign"), [(True, False), (True, True), (False, False)])
def test_a_cut_episode_goes_on_with_the_value_of_what_comes_next(make_policies, make_critics, make_tokenizer, separate, foreign):
    policies = make_policies()
    tokenizer = {"tokenizer": make_tokenizer(pad=True)} if foreign else {}
    critics = make_critics(policies, separate, **tokenizer)
    steps = collected(make_env(3, limit=2), policies, items=1)
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, True)]
    expected = {}
    for agent, policy in policies.items():
        prompt = steps[1].next_prompts[agent]
        ids = policy.encode([prompt]) if not foreign else critics[agent].encode([prompt])
        expected[agent] = steps[1].rewards[agent] + 0.9 * critics[agent].values(ids).item()
    found = values_of(
        IAC(policies, critics, config(use_separate_critic=separate, discount=0.9, rollout_buffer_size=2)).update(steps)
    )
    for agent in AGENTS:
        assert expected[agent] != pytest.approx(steps[1].rewards[agent], abs=1e-2)
        assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(expected[agent], abs=1e-5)


def test_a_cut_episode_with_a_q_critic_goes_on_with_an_action_drawn_for_it(make_policies, make_critics):
    """The draw has a stream of its own, named by seed, purpose, env step and agent: the same at any time, in any company."""
    policies = make_policies()
    critics = make_critics(policies)
    steps = collected(make_env(3, limit=2), policies, items=2)
    expected = {}
    for index, (agent, policy) in enumerate(policies.items()):
        values = []
        for step in steps[1::2]:
            ((drawn,),) = policy.generate([step.next_prompts[agent]], 1, [(7, PLAY, step.env_step, index)])
            ids = drawn.prompt_ids + drawn.token_ids
            values.append(step.rewards[agent] + 0.9 * critics[agent].values([ids]).item())
        expected[agent] = sum(values) / 2
    options = {"critic_type": "q", "discount": 0.9, "seed": 7}
    for order in (1, -1):
        fresh = make_policies()
        turned = {agent: fresh[agent] for agent in AGENTS[::order]}
        found = values_of(IAC(turned, make_critics(fresh), config(**options)).update(steps))
        for agent in AGENTS:
            assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(expected[agent], abs=1e-5)


@pytest.mark.parametrize("kind", ["v", "q"])
def test_a_terminated_end_is_worth_its_reward_even_if_a_limit_falls_on_it(make_policies, fixed_critics, kind):
    policies = make_policies()
    for steps in (collected(make_env(2), policies, items=1), collected(make_env(2, limit=2), policies, items=1)):
        both = [steps[0], dataclasses.replace(steps[1], truncated=True, next_prompts=steps[1].prompts)]
        for chain in (steps, both):
            learner = IAC(policies, fixed_critics(policies), config(critic_type=kind, rollout_buffer_size=2))
            found = values_of(learner.update(chain))
            for agent in AGENTS:
                assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(steps[1].rewards[agent])


def test_an_episode_that_the_threshold_stops_is_worth_its_reward(make_policies, fixed_critics):
    policies = make_policies()
    env = make_env(2, reward=lambda a, b: [1.0] * len(a))
    learner = IAC(policies, fixed_critics(policies), config(early_termination_threshold=0.5, rollout_buffer_size=2))
    steps = collect(env, policies, env.items[:2], learner.rollout, seed=5)
    assert [step.turn for step in steps] == [1, 1]
    found = values_of(learner.update(steps))
    assert found[f"turn_1/{AGENTS[0]}/target_mean"] == 1.0
    assert found["not_expanded_share"] == 1.0


def test_a_cut_step_that_does_not_say_what_comes_next_is_an_error(make_policies, make_critics):
    policies = make_policies()
    steps = [dataclasses.replace(step, next_prompts=None) for step in collected(make_env(3, limit=2), policies, items=1)]
    with pytest.raises(ValueError, match="env step 2 was cut by a limit, but has no next_prompts"):
        IAC(policies, make_critics(policies), config()).update(steps)


def test_each_agent_is_trained_on_its_own_rewards(make_policies, make_critics):
    policies = make_policies()
    steps = collected(make_env(reward=own_rewards), policies, items=4)
    found = values_of(IAC(policies, make_critics(policies), config()).update(steps))
    for agent in AGENTS:
        own = [step.rewards[agent] for step in steps]
        assert found[f"turn_1/{agent}/target_mean"] == pytest.approx(sum(own) / 4)
    assert found[f"turn_1/{AGENTS[0]}/target_mean"] != pytest.approx(found[f"turn_1/{AGENTS[1]}/target_mean"])
    swapped = [dataclasses.replace(step, rewards=dict(zip(AGENTS, reversed(step.rewards.values()), strict=True))) for step in steps]
    one, other = (gradients_after(policies, make_critics(policies), chosen) for chosen in (steps, swapped))
    assert not torch.allclose(one[0], other[0])


# ---- clipping ----


@pytest.mark.parametrize(
    ("separate", "clip_range", "moved", "error"),
    [
        (False, 0.2, 1.0, 1.8**2),
        (False, None, 1.0, 1.0),
        (False, 0.2, 0.1, 1.9**2),
        (False, 0.2, -1.0, 3.0**2),
        (True, 0.2, 1.0, 1.0),
    ],
)
def test_values_are_clipped_around_those_at_collection_and_only_on_actors(
    make_policies, fixed_critics, separate, clip_range, moved, error
):
    """V = 0 at collection, then its bias moves; all rewards are 2. For v = 1 and ε = .2: (2 − 1)² = 1 or (2 − .2)²."""
    policies = make_policies()
    critics = fixed_critics(policies, 0.0, separate)
    options = {"use_separate_critic": separate, "value_clip_range": clip_range, "advantage_normalization": False}
    learner = IAC(policies, critics, config(rollout_buffer_size=3, **options))
    assert learner.update(with_rewards(collected(make_env(), policies), 2.0)) == []
    for critic in critics.values():
        values_fixed_at(critic, moved)
    metrics = learner.flush()
    assert values_of(metrics)[f"{AGENTS[0]}/value_loss"] == pytest.approx(0.6 * error)


# ---- what critics read ----


def rows_read_by(critic: Critic) -> list[list[tuple[int, ...]]]:
    """Filled with the unpadded sequences of each forward of a critic that the library's own code runs."""
    calls: list[list[tuple[int, ...]]] = []

    def note(module, args, kwargs):
        pairs = zip(kwargs["input_ids"], kwargs["attention_mask"].bool(), strict=True)
        calls.append([tuple(ids[real].tolist()) for ids, real in pairs])

    critic.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    return calls


@pytest.mark.parametrize(("kind", "rows"), [("v", 2), ("q", 8)])
def test_samples_of_one_prompt_are_read_once_in_v_mode(make_policies, make_critics, kind, rows):
    """Two items of K = 4: once when they are collected and once when they are trained on, 2 prompts or 8 completions each."""
    policies = make_policies()
    critics = make_critics(policies, arch="gpt2")
    calls = {agent: rows_read_by(critic) for agent, critic in critics.items()}
    steps = collected(make_env(), policies, 4)
    assert len({step.completions[AGENTS[0]].token_ids for step in steps}) == 8
    IAC(policies, critics, config(critic_type=kind, num_generations=4, rollout_buffer_size=8)).update(steps)
    for agent in AGENTS:
        assert [len(call) for call in calls[agent]] == [rows, rows]
        for call in calls[agent]:
            assert set(call) == {read_by(step, agent, kind) for step in steps}


@pytest.mark.parametrize(("kind", "written"), [("v", "{prompt}"), ("q", "{prompt}\n\n{text}")])
def test_a_critic_of_another_family_reads_the_text_in_its_own_tokens(make_policies, make_critics, make_tokenizer, kind, written):
    policies = make_policies()
    tokenizer = make_tokenizer(bos=True)
    critics = make_critics(policies, arch="gpt2", tokenizer=tokenizer)
    calls = {agent: rows_read_by(critic) for agent, critic in critics.items()}
    steps = collected(make_env(), policies, items=4)
    IAC(policies, critics, config(critic_type=kind)).update(steps)
    for agent in AGENTS:
        texts = [written.format(prompt=step.prompts[agent], text=step.completions[agent].text) for step in steps]
        expected = {tuple(ids) for ids in tokenizer(texts)["input_ids"]}
        assert {ids[0] for ids in expected} == {tokenizer.bos_token_id}
        assert set(calls[agent][0]) == set(calls[agent][1]) == expected


def test_a_critic_with_less_context_reads_the_newest_part_and_the_action(make_policies, make_critics):
    policies = make_policies()
    critics = make_critics(policies, arch="gpt2", context=10)
    calls = rows_read_by(critics[AGENTS[0]])
    steps = collected(make_env(), policies, items=4)
    with pytest.warns(UserWarning, match="cut to 10"):
        IAC(policies, critics, config(critic_type="q")).update(steps)
    assert {len(ids) for ids in calls[0]} <= {9, 10}
    for step in steps:
        completion = step.completions[AGENTS[0]]
        assert (completion.prompt_ids + completion.token_ids)[-10:] in calls[0]


def test_a_critic_with_less_context_reads_the_newest_part_of_what_comes_next(make_policies, make_critics):
    policies = make_policies()
    critics = make_critics(policies, arch="gpt2", context=10)
    steps = collected(make_env(3, limit=2), policies, items=1)
    with pytest.warns(UserWarning, match="cut to 10"):
        found = values_of(IAC(policies, critics, config(rollout_buffer_size=2)).update(steps))
    fresh = make_critics(policies, arch="gpt2", context=10)
    for agent, policy in policies.items():
        (ids,) = policy.encode([steps[1].next_prompts[agent]])
        assert len(ids) > 10
        target = steps[1].rewards[agent] + fresh[agent].values([ids[-10:]]).item()
        assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(target, abs=1e-5)


def test_a_policy_without_ids_of_its_own_has_its_text_read(make_critic):
    policies = {agent: TabularPolicy(["red", "blue"]) for agent in AGENTS}
    critics = {agent: make_critic("gpt2", seed) for seed, agent in enumerate(AGENTS)}
    calls = rows_read_by(critics[AGENTS[0]])
    steps = collected(make_env(), policies, items=4)
    IAC(policies, critics, config(critic_type="q")).update(steps)
    texts = {f"{step.prompts[AGENTS[0]]}\n\n{step.completions[AGENTS[0]].text}" for step in steps}
    assert {bytes(ids_to_bytes(critics[AGENTS[0]], ids)).decode() for ids in calls[0]} == texts


def ids_to_bytes(critic: Critic, ids: Sequence[int]) -> bytes:
    return str(critic.tokenizer.decode(list(ids))).encode()


# ---- equivalences ----


@pytest.mark.parametrize(("separate", "kind"), TWO_KINDS)
def test_micro_batches_of_one_give_the_gradient_of_the_whole_batch(make_policies, make_critics, separate, kind):
    whole, split = make_policies(), make_policies(policy={"micro_batch_tokens": 1})
    steps = collected(make_env(), whole, 3)
    expected = gradients_after(whole, make_critics(whole, separate), steps, critic_type=kind)
    critics = make_critics(split, separate, critic={"micro_batch_tokens": 1})
    found = gradients_after(split, critics, steps, critic_type=kind)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("separate", [True, False])
def test_padding_changes_nothing(make_policies, make_critics, separate):
    """One long prompt among short ones pads these; apart, nothing is padded. Means over 4 are those of 2 and 2."""
    policies = make_policies()
    critics = make_critics(policies, separate)
    steps = collected(make_env(), policies, items=4)
    assert len({len(step.completions[AGENTS[0]].prompt_ids) for step in steps}) == 2
    options = {"advantage_normalization": False}
    together = gradients_after(policies, critics, steps, **options)
    parts = [gradients_after(policies, critics, chosen, **options) for chosen in (steps[0::2], steps[1::2])]
    apart = [(one + other) / 2 for one, other in zip(*parts, strict=True)]
    assert_close(together, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("separate", "kind"), TWO_KINDS)
def test_order_of_agents_and_of_critics_changes_nothing(make_policies, make_critics, separate, kind):
    steps = collected(make_env(2), make_policies())
    weights = []
    for order in (1, -1):
        policies = make_policies()
        critics = make_critics(policies, separate)
        turned = {agent: policies[agent] for agent in AGENTS[::order]}
        options = {"critic_type": kind, "train_batch_size": 2, "use_separate_critic": separate}
        IAC(turned, {agent: critics[agent] for agent in AGENTS}, config(**options)).update(steps)
        weights.append(weights_of(policies, critics))
    assert same(*weights)


def test_order_of_the_steps_changes_nothing(make_policies, make_critics):
    steps = collected(make_env(2), make_policies(), items=4)
    weights = []
    for order in (steps, steps[::-1], steps[::2] + steps[1::2]):
        policies = make_policies()
        critics = make_critics(policies)
        IAC(policies, critics, config(rollout_buffer_size=4)).update(order)
        weights.append(weights_of(policies, critics))
    assert same(weights[0], weights[1]) and same(weights[0], weights[2])


@pytest.mark.parametrize("separate", [True, False])
def test_threads_train_to_the_same_weights(make_policies, make_critics, separate):
    steps = collected(make_env(2), make_policies())
    weights = []
    with ThreadPoolExecutor(2) as threads:
        for executor in (None, threads):
            policies = make_policies()
            critics = make_critics(policies, separate)
            learner = IAC(policies, critics, config(use_separate_critic=separate), executor=executor)
            learner.update(steps)
            weights.append(weights_of(policies, critics))
    assert same(*weights)


@pytest.mark.parametrize("separate", [True, False])
def test_agents_that_share_policy_and_critic_get_the_sum_of_what_equal_copies_get(make_policies, make_critics, separate):
    shared = make_policies(shared=True)
    copies = {agent: make_policies(shared=True)[agent] for agent in AGENTS}
    one_critic = make_critics(shared, separate)
    own_critics = {agent: make_critics({agent: copies[agent]}, separate)[agent] for agent in AGENTS}
    steps = collected(make_env(reward=own_rewards), shared, items=4)
    both = gradients_after(copies, own_critics, steps)
    summed = gradients_after(shared, one_critic, steps)
    policy_count, critic_count = len(parameters_of(copies)) // 2, len(parameters_of(own_critics)) // 2
    halves = both[: 2 * policy_count], both[2 * policy_count :]
    expected = [
        one + other
        for half, count in zip(halves, (policy_count, critic_count), strict=True)
        for one, other in zip(half[:count], half[count:], strict=True)
    ]
    assert_close(summed, expected, rtol=1e-4, atol=1e-5)


def test_a_shared_separate_critic_has_one_optimiser(make_policies, make_critics):
    policies = make_policies(shared=True)
    learner = IAC(policies, make_critics(policies), config(rollout_buffer_size=2))
    learner.update(collected(make_env(), policies))
    optimizers = learner.state_dict()["critic_optimizers"]
    assert list(optimizers) == ["writer_0+editor_0"]
    assert optimizers["writer_0+editor_0"]["updates"] == 1


def test_agents_that_share_a_policy_may_have_heads_of_their_own(make_policies):
    policies = make_policies(shared=True)
    policy = policies[AGENTS[0]]
    critics = {a: Critic(policy.model, ValueHead(32, seed=i), policy.tokenizer, owns_model=False) for i, a in enumerate(AGENTS)}
    heads = [critic.head.layers[0].weight.detach().clone() for critic in critics.values()]
    learner = IAC(policies, critics, config(use_separate_critic=False, rollout_buffer_size=2))
    learner.update(collected(make_env(), policies))
    for before, critic in zip(heads, critics.values(), strict=True):
        assert not torch.equal(before, critic.head.layers[0].weight)

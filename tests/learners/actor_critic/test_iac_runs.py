"""Guards runs of IAC: buffers, mini-batches, warm-up, rates, reference KL, resume, metrics, what is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Sequence

import pytest
import torch
from team import (
    AGENTS,
    TWO_KINDS,
    WINDOW,
    assert_close,
    collected,
    gradients_of,
    make_env,
    one_by_one,
    own_rewards,
    same,
    spoil,
    values_fixed_at,
    values_of,
    weights_of,
    with_rewards,
)

from learners.actor_critic.critic import Critic, ValueHead, value_head
from learners.actor_critic.iac import IAC, IACConfig
from learners.policy import HFPolicy
from learners.sampling import SamplingConfig
from llm_envs.rollouts import collect
from llm_envs.types import EnvStep


def config(**options: object) -> IACConfig:
    return IACConfig(**{"agent_learning_rate": 1e-2, "critic_learning_rate": 1e-2, "rollout_buffer_size": 4, **options})


def gradients_after(policies: dict, critics: dict, steps: Sequence[EnvStep], **options: object) -> list[torch.Tensor]:
    """Of one update on all the steps."""
    separate = next(iter(critics.values())).owns_model
    options = {"rollout_buffer_size": len(steps), "gradient_accumulation_steps": WINDOW, **options}
    IAC(policies, critics, config(use_separate_critic=separate, **options)).update(steps)
    return gradients_of(policies, critics)


# ---- buffers and steps ----


def test_an_update_comes_when_the_buffers_are_full_and_flush_takes_the_rest(make_policies, make_critics):
    policies = make_policies()
    critics = make_critics(policies)
    learner = IAC(policies, critics, config(rollout_buffer_size=3))
    first, second, third, fourth = one_by_one(make_env(2), policies)
    before = weights_of(policies, critics)
    assert learner.states_until_update == 3
    assert learner.update(first) == []
    assert learner.states_until_update == 1
    assert same(before, weights_of(policies, critics))
    # The episode is taken whole: four samples, not three.
    assert [entry.group for entry in learner.update(second)] == ["turn_1", "turn_2", "update"]
    assert learner.states_until_update == 3
    after = weights_of(policies, critics)
    assert not same(before, after)
    assert learner.update(third) == []
    assert [entry.group for entry in learner.flush()] == ["turn_1", "turn_2", "update"]
    assert not same(after, weights_of(policies, critics))
    assert learner.flush() == []
    assert [entry.group for entry in learner.update([*fourth, *renumbered(fourth, 100)])] == ["turn_1", "turn_2", "update"]


def renumbered(steps: Sequence[EnvStep], by: int) -> list[EnvStep]:
    """The same once more, as another episode."""
    return [
        dataclasses.replace(
            step,
            env_step=step.env_step + by,
            episode=step.episode + by,
            state_id=step.state_id + by,
            next_state_id=None if step.next_state_id is None else step.next_state_id + by,
        )
        for step in steps
    ]


def test_samples_of_one_state_are_never_parted_by_an_update(make_policies, make_critics):
    """Buffers of 4 and K = 3: the first update takes both states, 6 samples."""
    policies = make_policies()
    learner = IAC(policies, make_critics(policies), config(num_generations=3, rollout_buffer_size=4))
    assert learner.states_until_update == 2
    steps = collected(make_env(), policies, 3, items=4)
    metrics = learner.update(steps)
    assert [entry.env_step for entry in metrics] == [6, 6, 12, 12]


def test_updates_within_one_call_are_those_of_several_calls_where_the_weights_stay(make_policies, make_critics):
    """With rates so small that weights stay, values and so metrics agree."""
    policies = make_policies()
    options = {"agent_learning_rate": 1e-12, "critic_learning_rate": 1e-12, "weight_decay": 0.0, "rollout_buffer_size": 2}
    chunks = one_by_one(make_env(2), policies)
    together = IAC(policies, make_critics(policies), config(**options)).update([step for chunk in chunks for step in chunk])
    learner = IAC(policies, make_critics(policies), config(**options))
    apart = [entry for chunk in chunks for entry in learner.update(chunk)]
    assert [(entry.env_step, entry.group) for entry in together] == [(entry.env_step, entry.group) for entry in apart]
    for one, other in zip(together, apart, strict=True):
        assert one.values == pytest.approx(other.values, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("separate", [True, False])
def test_train_batch_size_makes_several_steps_of_a_buffer(make_policies, make_critics, separate):
    policies = make_policies()
    learner = IAC(policies, make_critics(policies, separate), config(use_separate_critic=separate, train_batch_size=3))
    learner.update(collected(make_env(), policies, items=4))
    state = learner.state_dict()
    optimizers = [team["optimizer"] for team in state["teams"].values()] + list(state["critic_optimizers"].values())
    assert len(optimizers) == (4 if separate else 2)
    assert [optimizer["updates"] for optimizer in optimizers] == [2] * len(optimizers)


def test_the_mean_of_the_mini_batches_is_the_whole_buffer(make_policies, make_critics):
    """Two mini-batches of 2 that wait in one window: every sample is in one of them, whatever the order."""
    policies = make_policies()
    steps = collected(make_env(reward=own_rewards), policies, items=4)
    whole = gradients_after(policies, make_critics(policies), steps)
    options = {"train_batch_size": 2, "seed": 3}
    learner = IAC(policies, make_critics(policies), config(gradient_accumulation_steps=WINDOW, **options))
    learner.update(steps)
    halves = [gradient / 2 for gradient in gradients_of(learner.policies, learner.critics)]
    assert_close(halves, whole, rtol=1e-4, atol=1e-5)


# ---- warm-up and rates ----


@pytest.mark.parametrize("separate", [True, False])
def test_warm_up_trains_the_critics_alone(make_policies, make_critics, separate):
    policies = make_policies()
    critics = make_critics(policies, separate)
    learner = IAC(policies, critics, config(use_separate_critic=separate, critic_warmup_updates=2, rollout_buffer_size=2))
    actors = weights_of(policies)
    seen = []
    for chunk in one_by_one(make_env(2), policies)[:3]:
        before = weights_of(critics)
        metrics = values_of(learner.update(chunk))
        seen.append((same(actors, weights_of(policies)), same(before, weights_of(critics)), f"{AGENTS[0]}/loss" in metrics))
        # The actors' schedule waits for them; a head on an actor has the actor's.
        assert (f"{AGENTS[0]}/grad_norm" in metrics) == (len(seen) > 2 or not separate)
    assert seen == [(True, False, False), (True, False, False), (False, False, True)]
    assert learner.state_dict()["teams"][AGENTS[0]]["optimizer"]["updates"] == (1 if separate else 3)


def test_heads_on_actors_have_a_rate_of_their_own(make_policies, make_critics):
    """AdamW's first step moves weights by their rate (decay left out)."""
    policies = make_policies(arch="gpt2")
    critics = make_critics(policies, separate=False)
    options = {"agent_learning_rate": 1e-4, "value_head_learning_rate": 1e-2, "weight_decay": 0.0}
    actor = weights_of({AGENTS[0]: policies[AGENTS[0]]})
    head = critics[AGENTS[0]].head.layers[0].weight.detach().clone()
    IAC(policies, critics, config(use_separate_critic=False, **options)).update(collected(make_env(), policies, items=4))
    moved = max((a - b).abs().max().item() for a, b in zip(actor, policies[AGENTS[0]].parameters(), strict=True))
    assert moved == pytest.approx(1e-4, rel=1e-2)
    assert (critics[AGENTS[0]].head.layers[0].weight - head).abs().max().item() == pytest.approx(1e-2, rel=1e-2)


# ---- reference KL ----


def test_the_kl_from_the_reference_is_taken_off_targets_and_returns(make_policies, fixed_critics, make_reference):
    """V = .5: the target of turn 1 is r₁ − .3 KL₁ + .5, of turn 2 r₂ − .3 KL₂."""
    policies, references = make_policies(), make_reference(0.7)
    steps = collected(make_env(2), policies, items=1)
    options = {"reference_kl_enabled": True, "reference_kl_coef": 0.3, "rollout_buffer_size": 2}
    learner = IAC(policies, fixed_critics(policies), config(**options), references=references)
    found = values_of(learner.update(steps))
    kl = {(agent, step.turn): naive_kl(references[agent], step, agent) for agent in AGENTS for step in steps}
    shaped = {key: steps[key[1] - 1].rewards[key[0]] - 0.3 * value for key, value in kl.items()}
    assert min(kl.values()) > 0.05
    for agent in AGENTS:
        assert found[f"turn_1/{agent}/target_mean"] == pytest.approx(shaped[agent, 1] + 0.5, abs=1e-4)
        assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(shaped[agent, 2], abs=1e-4)
    for turn in (1, 2):
        mean_kl = sum(kl[agent, turn] for agent in AGENTS) / 2
        assert found[f"turn_{turn}/reference_kl_mean"] == pytest.approx(mean_kl, rel=1e-4)
        assert found[f"turn_{turn}/reference_kl_penalty_mean"] == pytest.approx(0.3 * mean_kl, rel=1e-4)
        assert found[f"turn_{turn}/reward_mean"] == pytest.approx(sum(steps[turn - 1].rewards.values()) / 2)
    assert found["turn_1/expected_return"] == pytest.approx(sum(shaped.values()) / 2, abs=1e-4)


@pytest.fixture
def make_reference(make_policies):
    """`make_reference(factor)`: policies whose weights are `factor` times the usual."""

    def make(factor: float) -> dict[str, HFPolicy]:
        references = make_policies()
        for policy in references.values():
            for parameter in policy.model.parameters():
                parameter.data.mul_(factor)
        return references

    return make


def naive_kl(reference: HFPolicy, step: EnvStep, agent: str) -> float:
    """Σ exp(d) − d − 1 over the completion's tokens, d = log π_ref − log π as sampled."""
    completion = step.completions[agent]
    scores = reference.logprobs([completion]).logprobs[0].tolist()
    return sum(math.expm1(s - p) - (s - p) for s, p in zip(scores, completion.logprobs, strict=True))


def test_references_are_the_policies_at_the_start(make_policies, make_critics):
    policies = make_policies()
    learner = IAC(policies, make_critics(policies), config(reference_kl_enabled=True, rollout_buffer_size=2))
    env = make_env()
    found = []
    for number in range(2):
        steps = collect(env, policies, env.items[:2], learner.rollout, seed=number)
        found.append(values_of(learner.update(steps))["turn_1/reference_kl_mean"])
    assert found[0] == pytest.approx(0.0, abs=1e-6)
    assert found[1] > 1e-3
    with pytest.raises(ValueError, match="reference of writer_0, editor_0 is the policy itself"):
        IAC(policies, make_critics(policies), config(reference_kl_enabled=True), references=policies)


# ---- resume ----


@pytest.mark.parametrize(("separate", "kind"), TWO_KINDS)
def test_resuming_in_mid_buffer_and_mid_window_equals_going_on(make_policies, make_critics, separate, kind):
    options = {
        "use_separate_critic": separate,
        "critic_type": kind,
        "rollout_buffer_size": 3,
        "train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "critic_warmup_updates": 1,
        "reference_kl_enabled": True,
        "value_head_learning_rate": 1e-3,
    }
    # Four turns cut after two, so that values behind the cut are asked for as well.
    chunks = one_by_one(make_env(4, limit=2), make_policies())
    straight, resumed = make_policies(), make_policies()
    critics, other_critics = make_critics(straight, separate), make_critics(resumed, separate)
    learner = IAC(straight, critics, config(**options))
    for chunk in chunks[:3]:
        learner.update(chunk)
    state = copy.deepcopy(learner.state_dict())
    json.dumps(state["buffers"])
    assert [len(episode) for episode in state["buffers"]] == [2]
    spoil(resumed, other_critics)
    other = IAC(resumed, other_critics, config(**options))
    other.load_state_dict(state)
    assert other.states_until_update == learner.states_until_update == 1
    assert learner.update(chunks[3]) == other.update(chunks[3])
    assert learner.flush() == other.flush()
    assert same(weights_of(straight, critics), weights_of(resumed, other_critics))


def test_a_state_of_another_team_is_refused_and_changes_nothing(make_policies, make_critics):
    def learner(policies, separate=True, **critics):
        return IAC(policies, make_critics(policies, separate, **critics), config(use_separate_critic=separate))

    own = learner(make_policies())
    before = weights_of(own.policies, own.critics)
    others = {
        r"the teams writer_0\+editor_0, this learner has writer_0, editor_0": learner(make_policies(shared=True)),
        "has shape": learner(make_policies(), hidden=16),
        "missing": learner(make_policies(), arch="gpt2"),
        "optimiser state of": learner(make_policies(), separate=False),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=message):
            own.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match=r"the critics none, this learner has writer_0, editor_0"):
        own.load_state_dict({**own.state_dict(), "critics": {}})
    assert same(before, weights_of(own.policies, own.critics))


@pytest.mark.parametrize("separate", [True, False])
def test_saved_critics_come_back_from_their_folders(make_policies, make_critics, tmp_path, separate):
    policies = make_policies(arch="gpt2")
    critics = make_critics(policies, separate, arch="gpt2")
    IAC(policies, critics, config(use_separate_critic=separate)).save_critics(tmp_path)
    for index, critic in enumerate(critics.values()):
        folder = tmp_path / f"agent_{index}" / ("critic" if separate else "")
        again = value_head(critic.model, folder, None, seed=99)
        assert torch.equal(again.layers[0].weight, critic.head.layers[0].weight)
        assert (folder / "config.json").exists() == separate


# ---- metrics ----


def test_metrics_of_an_update_by_hand(make_policies, make_critics):
    policies = make_policies()
    critics = make_critics(policies)
    steps = collected(make_env(reward={"length": lambda a, b: [len(x) / 10 for x in a], "sum": own_rewards}), policies, items=4)
    agent = AGENTS[1]
    values = [critics[agent].values([step.completions[agent].prompt_ids]).item() for step in steps]
    entries = {entry.group: entry for entry in IAC(policies, critics, config()).update(steps)}
    turn, update = entries["turn_1"].values, entries["update"].values
    targets = [step.rewards[agent] for step in steps]
    advantages = [target - value for target, value in zip(targets, values, strict=True)]
    assert turn[f"turn_1/{agent}/value_mean"] == pytest.approx(sum(values) / 4, abs=1e-5)
    assert turn[f"turn_1/{agent}/value_std"] == pytest.approx(deviation(values), abs=1e-5)
    assert turn[f"turn_1/{agent}/target_mean"] == pytest.approx(sum(targets) / 4)
    assert turn[f"turn_1/{agent}/critic_loss"] == pytest.approx(sum(a * a for a in advantages) / 4, rel=1e-4)
    assert turn[f"turn_1/{agent}/advantage_std"] == pytest.approx(deviation(advantages), rel=1e-4)
    explained = 1 - deviation(advantages) ** 2 / deviation(targets) ** 2
    assert turn[f"turn_1/{agent}/explained_variance"] == pytest.approx(explained, rel=1e-3)
    rewards = [reward for step in steps for reward in step.rewards.values()]
    assert turn["turn_1/reward_mean"] == turn["turn_1/expected_return"] == pytest.approx(sum(rewards) / 8)
    lengths = [len(step.completions[AGENTS[0]].text) / 10 for step in steps]
    assert turn["turn_1/reward/length"] == pytest.approx(sum(lengths) / 4)
    assert turn["turn_1/reward/length"] + turn["turn_1/reward/sum"] == pytest.approx(turn["turn_1/reward_mean"])
    assert update[f"{agent}/value_loss"] == pytest.approx(0.6 * sum(a * a for a in advantages) / 4, rel=1e-4)
    scaled = [(a - sum(advantages) / 4) / deviation(advantages) for a in advantages]
    scores = [sum(step.completions[agent].logprobs) for step in steps]
    assert update[f"{agent}/loss"] == pytest.approx(-sum(a * s for a, s in zip(scaled, scores, strict=True)) / 4, rel=1e-3)
    tokens = [len(step.completions[agent].token_ids) for step in steps]
    assert update[f"{agent}/completion_length"] == sum(tokens) / 4
    assert update[f"{agent}/entropy"] == pytest.approx(-sum(scores) / sum(tokens))
    assert update[f"{agent}/grad_norm"] > 0 and update[f"{agent}/critic_grad_norm"] > 0
    assert update["not_expanded_share"] == 0.0
    assert {entry.env_step for entry in entries.values()} == {4}


def deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def test_explained_variance_is_left_out_where_there_is_none(make_policies, make_critics):
    policies = make_policies()
    steps = with_rewards(collected(make_env(), policies, items=4), 1.0)
    found = values_of(IAC(policies, make_critics(policies), config()).update(steps))
    assert not any(name.endswith("explained_variance") for name in found)
    assert all(math.isfinite(value) for value in found.values())


# ---- what is not finite ----


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_raises_and_leaves_the_weights(make_policies, make_critics, separate, bad):
    policies = make_policies()
    critics = make_critics(policies, separate)
    learner = IAC(policies, critics, config(use_separate_critic=separate))
    before = weights_of(policies, critics)
    with pytest.raises(FloatingPointError, match="should be finite"):
        learner.update(with_rewards(collected(make_env(), policies, items=4), bad))
    assert same(before, weights_of(policies, critics))
    assert learner.states_until_update == 4


def test_a_value_that_is_not_finite_raises_and_leaves_the_weights(make_policies, make_critics):
    policies = make_policies()
    critics = make_critics(policies)
    values_fixed_at(critics[AGENTS[1]], math.nan)
    before = weights_of(policies)
    with pytest.raises(FloatingPointError, match="the critic's values are not finite"):
        IAC(policies, critics, config()).update(collected(make_env(), policies, items=4))
    assert same(before, weights_of(policies))


@pytest.mark.parametrize("window", [1, 3])
def test_a_loss_of_the_last_agent_that_is_not_finite_leaves_every_agent_and_critic(make_policies, make_critics, window):
    """The values were fine when they were collected; by the update the second agent's critic is broken."""
    policies = make_policies()
    critics = make_critics(policies)
    learner = IAC(policies, critics, config(gradient_accumulation_steps=window))
    learner.update(collected(make_env(), policies))
    values_fixed_at(critics[AGENTS[1]], math.inf)
    before = weights_of(policies, critics)
    with pytest.raises(FloatingPointError, match="weights are unchanged"):
        learner.flush()
    assert same(before, weights_of(policies, critics))
    assert not any(gradient.any() for gradient in gradients_of(policies, critics))


# ---- refusals ----


def test_trees_are_refused(make_policies, make_critics):
    policies = make_policies()
    steps = collected(make_env(2), policies, 2)
    with pytest.raises(ValueError, match="a chain has one"):
        IAC(policies, make_critics(policies), config()).update(steps)


def test_critics_that_do_not_fit_are_refused(make_policies, make_critics, make_critic):
    policies = make_policies()
    separate, heads = make_critics(policies), make_critics(policies, separate=False)
    first, second = AGENTS
    with pytest.raises(ValueError, match="IAC needs a critic for each of writer_0, editor_0, got writer_0"):
        IAC(policies, {first: separate[first]}, config())
    with pytest.raises(ValueError, match="use_separate_critic=True, but the critic of writer_0 is a head on an actor"):
        IAC(policies, heads, config())
    with pytest.raises(ValueError, match="use_separate_critic=False, but the critic of writer_0 is a model of its own"):
        IAC(policies, separate, config(use_separate_critic=False))
    with pytest.raises(ValueError, match="the critic of writer_0 is a head on another model than the one writer_0 acts with"):
        IAC(policies, {first: heads[second], second: heads[first]}, config(use_separate_critic=False))
    with pytest.raises(ValueError, match=r"writer_0\+editor_0 have one critic but not one policy; a critic for the team is MAAC's"):
        IAC(policies, dict.fromkeys(AGENTS, separate[first]), config())


def test_weights_that_two_optimisers_would_train_are_refused(make_policies, make_critics):
    policies = make_policies()
    first, second = AGENTS
    separate = make_critics(policies)
    actors_model = Critic(policies[first].model, ValueHead(32), policies[first].tokenizer)
    with pytest.raises(ValueError, match="writer_0 and writer_0's critic have weights in common"):
        IAC(policies, {**separate, first: actors_model}, config())
    one_model = Critic(separate[first].model, ValueHead(32), separate[first].tokenizer)
    with pytest.raises(ValueError, match="writer_0's critic and editor_0's critic have weights in common"):
        IAC(policies, {**separate, second: one_model}, config())
    one_head = {
        agent: Critic(policy.model, separate[first].head, policy.tokenizer, owns_model=False) for agent, policy in policies.items()
    }
    with pytest.raises(ValueError, match="writer_0 and editor_0 have weights in common"):
        IAC(policies, one_head, config(use_separate_critic=False))


def test_an_adapter_is_trained_with_its_head_and_the_base_stays(tiny_model, byte_tokenizer):
    peft = pytest.importorskip("peft")
    options = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"])
    sampling = SamplingConfig(max_new_tokens=6)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        models = [peft.get_peft_model(tiny_model("llama", seed), options) for seed in range(2)]
    policies = {a: HFPolicy(model, byte_tokenizer, sampling) for a, model in zip(AGENTS, models, strict=True)}
    critics = {a: Critic(p.model, ValueHead(32), p.tokenizer, owns_model=False) for a, p in policies.items()}
    before = {name: tensor.clone() for name, tensor in policies[AGENTS[0]].model.state_dict().items()}
    learner = IAC(policies, critics, config(use_separate_critic=False, reference_kl_enabled=True))
    learner.update(collected(make_env(), policies, items=4))
    changed = {name for name, tensor in policies[AGENTS[0]].model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed and all("lora_" in name for name in changed)
    assert all("lora_" in name for name in learner.state_dict()["teams"][AGENTS[0]]["policy"])

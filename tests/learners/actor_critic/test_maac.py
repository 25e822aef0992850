"""Guards MAAC: one update against a hand-written one, one critic step a batch, what the critic reads, baselines, cuts, resume."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tabular import TabularPolicy
from team import (
    AGENTS,
    WINDOW,
    assert_close,
    collected,
    gradients_of,
    make_env,
    naive_logprob,
    naive_targets,
    naive_value,
    one_by_one,
    own_rewards,
    same,
    spoil,
    team_reward,
    values_fixed_at,
    values_of,
    weights_of,
    with_rewards,
)

from learners.actor_critic.critic import Critic, ValueHead, value_head
from learners.actor_critic.maac import MAAC, MAACConfig
from llm_envs.rollouts import collect
from llm_envs.seeding import PLAY
from llm_envs.types import EnvStep


def config(**options: object) -> MAACConfig:
    return MAACConfig(**{"agent_learning_rate": 1e-2, "critic_learning_rate": 1e-2, "rollout_buffer_size": 4, **options})


@pytest.fixture
def critic_of_team(make_critic):
    """`critic_of_team(**make_critic options)`: one that can read the joint history of the task."""
    return lambda arch="qwen2", context=512, **options: make_critic(arch, context=context, **options)


def gradients_after(policies: dict, critic: Critic, steps: Sequence[EnvStep], **options: object) -> list[torch.Tensor]:
    """Of one update on all the steps."""
    options = {"rollout_buffer_size": len(steps), "gradient_accumulation_steps": WINDOW, **options}
    MAAC(policies, critic, config(**options)).update(steps)
    return gradients_of(policies, {"team": critic})


def with_actions(state: str, texts: Mapping[str, str]) -> str:
    """What a Q critic reads, written out."""
    return f"{state}\n\n[writer_0 writes]\n{texts['writer_0']}\n\n[editor_0 writes]\n{texts['editor_0']}"


def texts_of(step: EnvStep) -> dict[str, str]:
    return {agent: completion.text for agent, completion in step.completions.items()}


def read_by(step: EnvStep, kind: str) -> str:
    return step.global_state if kind == "v" else with_actions(step.global_state, texts_of(step))


# ---- one update ----


def naive_gradients(policies: dict, critic: Critic, steps: list[EnvStep], kind: str, discount: float, normalize: bool) -> list:
    """Actors as in IAC, each a mean over its own samples; the critic .6 times the mean over the samples of all agents."""
    ids = {step.env_step: critic.tokenizer([read_by(step, kind)])["input_ids"][0] for step in steps}
    values = {step.env_step: naive_value(critic, ids[step.env_step]) for step in steps}
    fixed = {number: value.item() for number, value in values.items()}
    loss = torch.zeros((), dtype=torch.float64)
    for agent, policy in policies.items():
        targets = naive_targets(steps, fixed, agent, discount)
        advantages = {number: targets[number] - fixed[number] for number in targets}
        for step in steps:
            group = torch.tensor([advantages[s.env_step] for s in steps if s.turn == step.turn], dtype=torch.float64)
            advantage = advantages[step.env_step]
            if normalize:
                advantage = (advantage - group.mean()) / group.std(correction=0)
            error = (targets[step.env_step] - values[step.env_step]) ** 2
            loss = loss + (0.6 * error / len(policies) - advantage * naive_logprob(policy, step, agent)) / len(steps)
    loss.backward()
    return gradients_of(policies, {"team": critic})


@pytest.mark.parametrize("kind", ["v", "q"])
@pytest.mark.parametrize(
    ("turns", "generations", "normalize", "reward"),
    [
        (1, 3, True, team_reward),
        (1, 3, False, own_rewards),
        (2, 1, True, own_rewards),
        *(pytest.param(1, 3, *other, marks=pytest.mark.slow) for other in [(True, own_rewards), (False, team_reward)]),
        *(pytest.param(2, 1, *other, marks=pytest.mark.slow) for other in [(True, team_reward), (False, own_rewards)]),
        pytest.param(2, 1, False, team_reward, marks=pytest.mark.slow),
    ],
)
def test_an_update_equals_a_hand_written_one_in_float64(make_policies, critic_of_team, kind, turns, generations, normalize, reward):
    # GPT-2, whose norms and positions stay in double precision all the way.
    policies = make_policies(double=True, arch="gpt2")
    critic = critic_of_team("gpt2", double=True, hidden_dim=8)
    steps = collected(make_env(turns, reward=reward), policies, generations)
    expected = naive_gradients(policies, critic, steps, kind, 0.9, normalize)
    options = {"critic_type": kind, "discount": 0.9, "advantage_normalization": normalize}
    found = gradients_after(policies, critic, steps, **options)
    assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reward", [team_reward, own_rewards])
def test_the_critic_takes_one_step_a_mini_batch(make_policies, critic_of_team, reward):
    """Buffers of 4 in mini-batches of 3: two optimiser steps of each agent and two of the critic, though the agents are two."""
    policies = make_policies()
    learner = MAAC(policies, critic_of_team(), config(train_batch_size=3))
    learner.update(collected(make_env(reward=reward), policies, items=4))
    state = learner.state_dict()
    assert [optimizer["updates"] for optimizer in state["critic_optimizers"].values()] == [2]
    assert [team["optimizer"]["updates"] for team in state["teams"].values()] == [2, 2]


def test_agents_that_share_a_policy_get_the_sum_of_what_equal_copies_get(make_policies, critic_of_team):
    shared = make_policies(shared=True)
    copies = {agent: make_policies(shared=True)[agent] for agent in AGENTS}
    steps = collected(make_env(reward=own_rewards), shared, items=4)
    summed, both = gradients_after(shared, critic_of_team(), steps), gradients_after(copies, critic_of_team(), steps)
    count = len(list(shared[AGENTS[0]].parameters()))
    expected = [one + other for one, other in zip(both[:count], both[count : 2 * count], strict=True)] + both[2 * count :]
    assert_close(summed, expected, rtol=1e-4, atol=1e-5)


# ---- targets ----


def fixed_critic(critic_of_team, value: float = 0.5) -> Critic:
    return values_fixed_at(critic_of_team(), value)


@pytest.mark.parametrize("reward", [team_reward, own_rewards])
def test_targets_by_hand_for_team_rewards_and_own_ones(make_policies, critic_of_team, reward):
    """V = .5 everywhere, γ = .9, λ = .5: each agent's r₁ + .9(.25 + .5 r₂) and r₂."""
    policies = make_policies()
    steps = collected(make_env(2, reward=reward), policies, items=1)
    learner = MAAC(policies, fixed_critic(critic_of_team), config(rollout_buffer_size=2, discount=0.9, gae_lambda=0.5))
    found = values_of(learner.update(steps))
    targets = []
    for agent in AGENTS:
        first, second = (step.rewards[agent] for step in steps)
        targets += [first + 0.9 * (0.25 + 0.5 * second), second]
        assert found[f"turn_1/{agent}/target_mean"] == pytest.approx(targets[-2])
        assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(second)
    assert found["team/value_loss"] == pytest.approx(0.6 * sum((target - 0.5) ** 2 for target in targets) / 4, rel=1e-5)


def test_a_cut_episode_goes_on_with_the_value_of_the_joint_history(make_policies, critic_of_team):
    policies = make_policies()
    critic = critic_of_team()
    steps = collected(make_env(3, limit=2), policies, items=1)
    uncut = collected(make_env(3), policies, items=1)
    beyond = critic.values(critic.encode([uncut[2].global_state])).item()
    found = values_of(MAAC(policies, critic, config(discount=0.9, rollout_buffer_size=2)).update(steps))
    assert abs(beyond) > 0.05
    for agent in AGENTS:
        assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(steps[1].rewards[agent] + 0.9 * beyond, abs=1e-5)


def test_a_cut_episode_with_a_q_critic_goes_on_with_joint_actions_drawn_for_it(make_policies, critic_of_team):
    """Each agent draws from the stream of seed, purpose, env step and its position in the env, whatever order the team is in."""
    policies = make_policies()
    critic = critic_of_team()
    steps = collected(make_env(3, limit=2), policies)
    beyond = []
    for step in steps[1::2]:
        keys = [(7, PLAY, step.env_step, index) for index in range(2)]
        drawn = [policies[a].generate([step.next_prompts[a]], 1, [key])[0][0].text for a, key in zip(AGENTS, keys, strict=True)]
        text = with_actions(step.next_global_state, dict(zip(AGENTS, drawn, strict=True)))
        beyond.append(critic.values(critic.encode([text])).item())
    assert beyond[0] != pytest.approx(beyond[1])
    for order in (1, -1):
        fresh = make_policies()
        learner = MAAC(
            {agent: fresh[agent] for agent in AGENTS[::order]}, critic_of_team(), config(critic_type="q", discount=0.9, seed=7)
        )
        found = values_of(learner.update(steps))
        for agent in AGENTS:
            expected = [step.rewards[agent] + 0.9 * value for step, value in zip(steps[1::2], beyond, strict=True)]
            assert found[f"turn_2/{agent}/target_mean"] == pytest.approx(sum(expected) / 2, abs=1e-5)


@pytest.mark.parametrize("kind", ["v", "q"])
def test_other_ends_are_worth_their_reward(make_policies, critic_of_team, kind):
    """The task's own end, also where a limit falls on it, and a stop by the threshold."""
    policies = make_policies()
    steps = collected(make_env(2), policies, items=1)
    both = [steps[0], dataclasses.replace(steps[1], truncated=True, next_prompts=steps[1].prompts, next_global_state="x")]
    stopped = [dataclasses.replace(steps[0], next_state_id=None)]
    for chain in (steps, both, stopped):
        learner = MAAC(policies, fixed_critic(critic_of_team), config(critic_type=kind, rollout_buffer_size=1))
        found = values_of(learner.update(chain))
        last = chain[-1]
        for agent in AGENTS:
            assert found[f"turn_{last.turn}/{agent}/target_mean"] == pytest.approx(last.rewards[agent])
        assert found["not_expanded_share"] == (1.0 if chain is stopped else 0.0)


@pytest.mark.parametrize("kind", ["v", "q"])
def test_a_cut_step_that_does_not_say_what_comes_next_is_an_error(make_policies, critic_of_team, kind):
    policies = make_policies()
    steps = collected(make_env(3, limit=2), policies, items=1)
    with pytest.raises(ValueError, match="env step 2 was cut by a limit, but has no next_global_state"):
        MAAC(policies, critic_of_team(), config(critic_type=kind)).update(
            [dataclasses.replace(step, next_global_state=None) for step in steps]
        )


# ---- what the critic reads ----


def read_in(critic: Critic) -> list[list[str]]:
    """Filled with the texts of each forward of a critic that the library's own code runs."""
    calls: list[list[str]] = []

    def note(module, args, kwargs):
        pairs = zip(kwargs["input_ids"], kwargs["attention_mask"].bool(), strict=True)
        calls.append([str(critic.tokenizer.decode(ids[real].tolist())) for ids, real in pairs])

    critic.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    return calls


@pytest.mark.parametrize(("kind", "rows"), [("v", 2), ("q", 8)])
def test_the_joint_history_is_read_once_for_all_agents_and_samples(make_policies, critic_of_team, kind, rows):
    """Two items of K = 4 and two agents: 2 histories or 8 joint actions, once when collected and once when trained on."""
    policies = make_policies()
    critic = critic_of_team("gpt2")
    calls = read_in(critic)
    steps = collected(make_env(), policies, 4)
    MAAC(policies, critic, config(critic_type=kind, num_generations=4, rollout_buffer_size=8)).update(steps)
    assert [len(call) for call in calls] == [rows, rows]
    assert set(calls[0]) == set(calls[1]) == {read_by(step, kind) for step in steps}


def test_a_joint_text_that_is_too_long_keeps_the_actions(make_policies, critic_of_team):
    policies = make_policies()
    critic = critic_of_team("gpt2", context=60)
    calls = read_in(critic)
    steps = collected(make_env(2), policies, items=4)
    with pytest.warns(UserWarning, match="cut to 60"):
        MAAC(policies, critic, config(critic_type="q", rollout_buffer_size=8)).update(steps)
    # Some bytes are no text by themselves, so that a cut may change the first one.
    assert {text[1:] for text in calls[0]} == {read_by(step, "q").encode()[-60:].decode(errors="replace")[1:] for step in steps}


def test_the_critic_needs_no_tokenizer_of_the_agents(make_critic, make_tokenizer):
    policies = {agent: TabularPolicy(["red", "blue"]) for agent in AGENTS}
    critic = make_critic("gpt2", context=512, tokenizer=make_tokenizer(bos=True))
    calls = read_in(critic)
    steps = collected(make_env(2), policies, items=4)
    MAAC(policies, critic, config(critic_type="q", rollout_buffer_size=8)).update(steps)
    assert {text.removeprefix("<bos>") for text in calls[0]} == {read_by(step, "q") for step in steps}


# ---- the counterfactual baseline ----


def table_policies(words: Sequence[str] = ("red", "blue", "green")) -> dict[str, TabularPolicy]:
    return {agent: TabularPolicy(words) for agent in AGENTS}


def test_the_counterfactual_baseline_by_hand(critic_of_team):
    """Advantage of sample k: r_k − mean over k' of Q(h, own word of k', the other's of k), one text at a time."""
    policies = table_policies()
    critic = critic_of_team()
    steps = collected(make_env(), policies, 4)
    options = {"critic_type": "q", "num_generations": 4, "rollout_buffer_size": 8, "advantage_normalization": False}
    learner = MAAC(policies, critic, config(counterfactual_baseline=True, gradient_accumulation_steps=WINDOW, **options))
    learner.update(steps)
    found = gradients_of(policies)
    expected = []
    for agent, policy in policies.items():
        loss = torch.zeros(())
        for step in steps:
            own = [other.completions[agent].text for other in steps if other.state_id == step.state_id]
            texts = [with_actions(step.global_state, {**texts_of(step), agent: word}) for word in own]
            baseline = sum(critic.values(critic.encode([text])).item() for text in texts) / 4
            index = policy.words.index(step.completions[agent].text)
            loss = loss - (step.rewards[agent] - baseline) * policy.logits.log_softmax(0)[index] / len(steps)
        expected.append(torch.autograd.grad(loss, policy.logits)[0])
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    plain = MAAC(policies, critic_of_team(), config(gradient_accumulation_steps=WINDOW, **options))
    plain.update(steps)
    assert not torch.allclose(gradients_of(policies)[0], expected[0], rtol=1e-2)


def test_the_baseline_credits_only_what_the_agent_did_itself(critic_of_team):
    """An agent that always writes the same gets Q itself as baseline, whatever the others do."""
    policies = {AGENTS[0]: TabularPolicy(["red"]), AGENTS[1]: TabularPolicy(["red", "blue", "green"])}
    steps = collected(make_env(), policies, 8, items=1)
    assert len({step.completions[AGENTS[1]].text for step in steps}) > 1
    stds = {}
    for counterfactual in (True, False):
        options = {"critic_type": "q", "num_generations": 8, "counterfactual_baseline": counterfactual}
        found = values_of(MAAC(policies, critic_of_team(), config(**options)).update(steps))
        stds[counterfactual] = [found[f"turn_1/{agent}/advantage_std"] for agent in AGENTS]
    assert stds[True][0] == pytest.approx(stds[False][0], rel=1e-4)
    assert stds[True][1] != pytest.approx(stds[False][1], rel=1e-2)


def test_the_critic_is_trained_towards_the_same_with_the_baseline(critic_of_team):
    options = {"critic_type": "q", "num_generations": 4, "rollout_buffer_size": 8}
    gradients = []
    for counterfactual in (True, False):
        policies, critic = table_policies(), critic_of_team()
        steps = collected(make_env(), policies, 4)
        found = gradients_after(policies, critic, steps, counterfactual_baseline=counterfactual, **options)
        gradients.append(found[len(policies) :])
    assert same(*gradients)


# ---- equivalences ----


@pytest.mark.parametrize("kind", ["v", "q"])
def test_micro_batches_of_one_give_the_gradient_of_the_whole_batch(make_policies, critic_of_team, kind):
    whole, split = make_policies(), make_policies(policy={"micro_batch_tokens": 1})
    steps = collected(make_env(reward=own_rewards), whole, 3)
    expected = gradients_after(whole, critic_of_team(), steps, critic_type=kind)
    found = gradients_after(split, critic_of_team(critic={"micro_batch_tokens": 1}), steps, critic_type=kind)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["v", "q"])
def test_order_of_agents_and_of_steps_changes_nothing(make_policies, critic_of_team, kind):
    steps = collected(make_env(2, reward=own_rewards), make_policies())
    weights = []
    for order, stream in [(1, steps), (-1, steps), (1, steps[::-1])]:
        policies, critic = make_policies(), critic_of_team()
        turned = {agent: policies[agent] for agent in AGENTS[::order]}
        MAAC(turned, critic, config(critic_type=kind, train_batch_size=2)).update(stream)
        weights.append(weights_of(policies, {"team": critic}))
    for other in weights[1:]:
        # The critic's sum over the agents is taken in another order.
        for one, two in zip(weights[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_threads_train_to_the_same_weights(make_policies, critic_of_team):
    steps = collected(make_env(2), make_policies())
    weights = []
    with ThreadPoolExecutor(2) as threads:
        for executor in (None, threads):
            policies, critic = make_policies(), critic_of_team()
            MAAC(policies, critic, config(), executor=executor).update(steps)
            weights.append(weights_of(policies, {"team": critic}))
    assert same(*weights)


# ---- buffers, warm-up, KL ----


def test_an_update_comes_when_the_buffers_are_full_and_flush_takes_the_rest(make_policies, critic_of_team):
    policies, critic = make_policies(), critic_of_team()
    learner = MAAC(policies, critic, config(rollout_buffer_size=3))
    chunks = one_by_one(make_env(2), policies)
    before = weights_of(policies, {"team": critic})
    assert learner.update(chunks[0]) == []
    assert learner.states_until_update == 1
    assert same(before, weights_of(policies, {"team": critic}))
    assert [entry.group for entry in learner.update(chunks[1])] == ["turn_1", "turn_2", "update"]
    assert not same(before, weights_of(policies, {"team": critic}))
    assert learner.update(chunks[2]) == []
    assert [entry.group for entry in learner.flush()] == ["turn_1", "turn_2", "update"]
    assert learner.flush() == []


def test_warm_up_trains_the_critic_alone(make_policies, critic_of_team):
    policies, critic = make_policies(), critic_of_team()
    learner = MAAC(policies, critic, config(critic_warmup_updates=2, rollout_buffer_size=2))
    actors = weights_of(policies)
    seen = []
    for chunk in one_by_one(make_env(2), policies)[:3]:
        before = weights_of({"team": critic})
        metrics = values_of(learner.update(chunk))
        moved = not same(before, weights_of({"team": critic}))
        seen.append(
            (same(actors, weights_of(policies)), moved, f"{AGENTS[0]}/loss" in metrics, f"{AGENTS[0]}/grad_norm" in metrics)
        )
    assert seen == [(True, True, False, False), (True, True, False, False), (False, True, True, True)]
    # The actors' schedule waits for them.
    assert learner.state_dict()["teams"][AGENTS[0]]["optimizer"]["updates"] == 1


def test_the_kl_from_the_reference_is_taken_off_each_agents_targets(make_policies, critic_of_team):
    """V = .5, one turn: the target is the reward less .3 KL, and KL is 0 against the policies as they were."""
    policies = make_policies()
    learner = MAAC(policies, fixed_critic(critic_of_team), config(reference_kl_enabled=True, reference_kl_coef=0.3))
    env = make_env()
    for number in range(2):
        steps = collect(env, policies, env.items, learner.rollout, seed=number)
        found = values_of(learner.update(steps))
        kl = found["turn_1/reference_kl_mean"]
        targets = sum(found[f"turn_1/{agent}/target_mean"] for agent in AGENTS) / 2
        assert targets == pytest.approx(found["turn_1/reward_mean"] - 0.3 * kl, abs=1e-5)
        assert (kl > 1e-3) == (number == 1)


# ---- metrics ----


def test_metrics_by_hand(make_policies, critic_of_team):
    policies, critic = make_policies(), critic_of_team()
    steps = collected(make_env(reward=own_rewards), policies, items=4)
    values = critic.values(critic.encode([step.global_state for step in steps])).tolist()
    found = values_of(MAAC(policies, critic, config()).update(steps))
    errors = []
    for agent in AGENTS:
        own = [step.rewards[agent] - value for step, value in zip(steps, values, strict=True)]
        assert found[f"turn_1/{agent}/value_mean"] == pytest.approx(sum(values) / 4, abs=1e-5)
        assert found[f"turn_1/{agent}/critic_loss"] == pytest.approx(sum(e * e for e in own) / 4, rel=1e-4)
        targets = [step.rewards[agent] for step in steps]
        explained = 1 - torch.tensor(own).var(correction=0) / torch.tensor(targets).var(correction=0)
        assert found[f"turn_1/{agent}/explained_variance"] == pytest.approx(explained.item(), rel=1e-3)
        assert found[f"{agent}/grad_norm"] > 0
        errors += own
    assert found["team/value_loss"] == pytest.approx(0.6 * sum(e * e for e in errors) / 8, rel=1e-4)
    assert found["team/critic_grad_norm"] > 0


# ---- resume and saving ----


@pytest.mark.parametrize("kind", ["v", "q"])
def test_resuming_in_mid_buffer_and_mid_window_equals_going_on(make_policies, critic_of_team, kind):
    options = {
        "critic_type": kind,
        "rollout_buffer_size": 3,
        "train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "critic_warmup_updates": 1,
        "reference_kl_enabled": True,
    }
    chunks = one_by_one(make_env(4, limit=2), make_policies())
    straight, resumed, critic, other_critic = make_policies(), make_policies(), critic_of_team(), critic_of_team()
    learner = MAAC(straight, critic, config(**options))
    for chunk in chunks[:3]:
        learner.update(chunk)
    state = copy.deepcopy(learner.state_dict())
    json.dumps(state["buffers"])
    assert [len(episode) for episode in state["buffers"]] == [2]
    spoil(resumed, {"team": other_critic})
    other = MAAC(resumed, other_critic, config(**options))
    other.load_state_dict(state)
    assert learner.update(chunks[3]) == other.update(chunks[3])
    assert learner.flush() == other.flush()
    assert same(weights_of(straight, {"team": critic}), weights_of(resumed, {"team": other_critic}))


def test_a_state_of_another_critic_is_refused_and_changes_nothing(make_policies, critic_of_team):
    own = MAAC(make_policies(), critic_of_team(), config())
    before = weights_of(own.policies, {"team": own.critic})
    other = MAAC(make_policies(), critic_of_team(hidden=16), config())
    with pytest.raises(ValueError, match="has shape"):
        own.load_state_dict(other.state_dict())
    shared = MAAC(make_policies(shared=True), critic_of_team(), config())
    with pytest.raises(ValueError, match=r"the teams writer_0\+editor_0, this learner has writer_0, editor_0"):
        own.load_state_dict(shared.state_dict())
    assert same(before, weights_of(own.policies, {"team": own.critic}))


def test_the_saved_critic_comes_back_from_its_folder(make_policies, critic_of_team, tmp_path):
    critic = critic_of_team("gpt2", hidden_dim=4)
    MAAC(make_policies(), critic, config()).save_critics(tmp_path)
    again = value_head(critic.model, tmp_path / "critic", 4)
    assert same(list(again.parameters()), critic.head_parameters())
    assert (tmp_path / "critic" / "tokenizer.json").exists()


# ---- errors ----


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_raises_and_leaves_the_weights(make_policies, critic_of_team, bad):
    policies, critic = make_policies(), critic_of_team()
    learner = MAAC(policies, critic, config())
    steps = collected(make_env(), policies)
    before = weights_of(policies, {"team": critic})
    with pytest.raises(FloatingPointError, match="should be finite"):
        learner.update(with_rewards(steps, bad))
    assert same(before, weights_of(policies, {"team": critic}))
    learner.update(steps)
    # Fine when the samples were collected, broken by the update.
    values_fixed_at(critic, bad)
    actors = weights_of(policies)
    with pytest.raises(FloatingPointError, match="weights are unchanged"):
        learner.flush()
    assert not any(gradient.any() for gradient in gradients_of(policies, {"team": critic}))
    assert same(actors, weights_of(policies))
    with pytest.raises(FloatingPointError, match="the critic's values are not finite"):
        learner.update(steps)


def test_trees_are_refused(make_policies, critic_of_team):
    policies = make_policies()
    with pytest.raises(ValueError, match="a chain has one"):
        MAAC(policies, critic_of_team(), config()).update(collected(make_env(2), policies, 2))


def test_a_critic_on_an_actor_is_refused(make_policies):
    policies = make_policies()
    policy = policies[AGENTS[0]]
    head = Critic(policy.model, ValueHead(32), policy.tokenizer, owns_model=False)
    with pytest.raises(ValueError, match="MAAC's critic needs a model of its own, got a head on an actor"):
        MAAC(policies, head, config())
    same_model = Critic(policy.model, ValueHead(32), policy.tokenizer)
    with pytest.raises(ValueError, match="writer_0 and team's critic have weights in common"):
        MAAC(policies, same_model, config())

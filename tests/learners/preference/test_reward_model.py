"""Guards the joint reward model: scores, Bradley–Terry steps, rewards of turns, what it is built from, keeping and resetting."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tabular import TabularPolicy
from torch import Tensor

from learners.actor_critic.critic import Critic, ValueHead
from learners.config import TrainingConfig
from learners.models import with_lora
from learners.policy import HFPolicy
from learners.preference.joint_text import joint_text
from learners.preference.pairs import JointResponse, Pair
from learners.preference.reward_model import (
    JointRewardModel,
    RewardModelOptions,
    build_reward_model,
    pairs_by_prompts,
    split_holdout,
)
from learners.sampling import SamplingConfig
from learners.serialization import load_tree, save_tree
from llm_envs.env import TaskEnv
from llm_envs.rollouts import collect
from llm_envs.task import Task
from llm_envs.types import Completion, RolloutSpec
from llm_envs.wrappers import ScoreWith

A, B = "writer_0", "editor_0"
WINDOW = 99
"""Mini-batches an optimiser step where gradients are to stay on the parameters."""


def response(*turns: tuple[str, str], prompts: Sequence[tuple[str, str]] | None = None) -> JointResponse:
    """What both agents wrote, turn by turn."""
    read = prompts or [(f"write {turn}", f"edit {turn}") for turn in range(len(turns))]
    return JointResponse(
        prompts=tuple({A: first, B: second} for first, second in read),
        completions=tuple({A: Completion(first), B: Completion(second)} for first, second in turns),
        reward=0.0,
        raw_reward=0.0,
    )


def pair(winner: tuple[str, str], loser: tuple[str, str], prompt: str = "item") -> Pair:
    prompts = [(prompt, "edit")]
    return Pair(response(winner, prompts=prompts), response(loser, prompts=prompts), candidate_reward_mean=0.0)


PAIRS = [
    pair(("long answer", "fine"), ("no", "")),
    pair(("yes", "a"), ("no", "b"), "another item"),
    pair(("long answer", "fine"), ("yes", "bad" * 7)),
    pair(("ok", "c"), ("ok", "c")),
]
"""Two share a winner, one is a tie."""


def text_of(episode: JointResponse) -> str:
    return joint_text(episode.prompts, [{agent: c.text for agent, c in turn.items()} for turn in episode.completions])


@pytest.fixture
def make_model(tiny_model, byte_tokenizer):
    """`make_model(arch="qwen2", seed=0, options={}, config={}, double=False, micro_batch_tokens=None, **tiny_model options)`.

    The head's weights are fifty times the usual, so that scores differ visibly between texts.
    """

    def make(
        arch="qwen2", seed=0, *, options=None, config=None, double=False, micro_batch_tokens=None, tokenizer=None, **model
    ) -> JointRewardModel:
        body = tiny_model(arch, 100 + seed, **{"context": 512, **model})
        head = ValueHead(body.config.hidden_size, seed=seed)
        head.layers[0].weight.data.mul_(50)
        if double:
            body.double()
            head.double()
        critic = Critic(body, head, tokenizer or byte_tokenizer, micro_batch_tokens=micro_batch_tokens)
        return JointRewardModel(critic, RewardModelOptions(**(options or {})), TrainingConfig(**(config or {})))

    return make


def parameters(model: JointRewardModel) -> list[torch.nn.Parameter]:
    return [*model.critic.body_parameters(), *model.critic.head_parameters()]


def copies(model: JointRewardModel) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters(model)]


def gradients(model: JointRewardModel) -> Tensor:
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters(model)])


def same(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def values(model: JointRewardModel, pairs: Sequence[Pair] = PAIRS) -> Tensor:
    with torch.no_grad():
        return model.scores([side for p in pairs for side in (p.winner, p.loser)])


def rows_read(model: JointRewardModel) -> list[int]:
    """Grows by the rows of each batch that the body reads."""
    rows: list[int] = []
    base = model.critic.model.base_model
    base.register_forward_pre_hook(lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True)
    return rows


class TestScores:
    @pytest.mark.parametrize("arch", ["qwen2", "gpt2"])
    def test_are_those_of_the_last_token_of_the_joint_text(self, make_model, arch):
        """A plain forward over each text alone; several turns, lengths and an end token in the middle (BC-36)."""
        model = make_model(arch)
        responses = [response(("a", "b")), response(("a<end> text", "b"), ("more", "")), response(("a<end>", "<end>"))]
        scores = model.scores(responses)
        for episode, score in zip(responses, scores, strict=True):
            ids = torch.tensor(model.critic.tokenizer([text_of(episode)])["input_ids"])
            hidden = model.critic.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, -1]
            assert score.item() == pytest.approx(model.critic.head(hidden[None])[0].item(), abs=1e-4)
        assert scores.detach().std() > 0.1
        assert scores.requires_grad

    def test_a_padding_token_that_is_the_end_token_changes_nothing(self, make_model, make_tokenizer):
        """pad = eos, a pad of its own, none at all."""
        same_token = make_tokenizer()
        same_token.pad_token = same_token.eos_token
        scores = [values(make_model("gpt2", tokenizer=t)) for t in (make_tokenizer(), same_token, make_tokenizer(pad=True))]
        assert torch.equal(scores[0], scores[1]) and torch.equal(scores[0], scores[2])

    def test_are_the_same_alone_and_in_any_batch(self, make_model):
        model, split = make_model("gpt2"), make_model("gpt2", micro_batch_tokens=150)
        alone = torch.cat([values(model, [p]) for p in PAIRS])
        torch.testing.assert_close(values(model), alone, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(values(split), alone, atol=1e-4, rtol=1e-4)
        assert model.scores([]).shape == (0,)

    def test_do_not_depend_on_the_order_of_agents_in_a_completion(self, make_model):
        model = make_model("gpt2")
        one = response(("a", "b"))
        turned = JointResponse(one.prompts, tuple(dict(reversed(turn.items())) for turn in one.completions), 0.0, 0.0)
        first, second = model.scores([one, turned]).tolist()
        assert first == second
        assert model.scores([response(("b", "a"))]).item() != pytest.approx(first, abs=1e-3)

    def test_a_text_that_is_too_long_is_cut_and_counted(self, make_model):
        model = make_model("gpt2", options={"reward_max_length": 130})
        long = response(("mine", "theirs"), prompts=[("p" * 200, "q")])
        with pytest.warns(UserWarning, match="lost the beginnings of its prompts to fit 130"):
            score = model.scores([long]).item()
        assert (model.num_cut_prompts, model.num_cut_responses) == (1, 0)
        kept = 130 - len(text_of(response(("mine", "theirs"), prompts=[("", "q")])))
        cut = make_model("gpt2").scores([response(("mine", "theirs"), prompts=[("p" * kept, "q")])])
        assert score == pytest.approx(cut.item(), abs=1e-5)


class TestTraining:
    def test_numbers_of_a_step(self, make_model):
        """Against the formulas, from scores taken before it; the tie counts as wrong."""
        model = make_model("gpt2")
        won, lost = values(model).double().reshape(-1, 2).T
        found = model.train_step(PAIRS)
        assert found["loss"] == pytest.approx((1 + (lost - won).exp()).log().mean().item(), abs=1e-5)
        assert found["accuracy"] == sum((w > s) for w, s in zip(won.tolist(), lost.tolist(), strict=True)) / 4
        assert found["accuracy"] < 1
        assert found["margin"] == pytest.approx((won - lost).mean().item(), abs=1e-5)
        assert found["grad_norm"] > 0
        assert model.updates == 1

    def test_golden_loss(self, make_model):
        """BC-37: a score of 2 against .5 costs .201413, the other way round 1.701413."""
        model = make_model("gpt2", double=True)
        (better, worse) = values(model, PAIRS[:1]).tolist()
        with torch.no_grad():
            model.critic.head.layers[0].weight.mul_(1.5 / (better - worse))
        swapped = Pair(PAIRS[0].loser, PAIRS[0].winner, 0.0)
        assert model.evaluate(PAIRS[:1]) == pytest.approx({"loss": 0.201413, "accuracy": 1.0, "margin": 1.5}, abs=1e-6)
        assert model.evaluate([swapped]) == pytest.approx({"loss": 1.701413, "accuracy": 0.0, "margin": -1.5}, abs=1e-6)

    def test_gradients_by_finite_differences(self, make_model):
        model = make_model("gpt2", double=True, config={"gradient_accumulation_steps": WINDOW})
        model.train_step(PAIRS)
        head, inner = model.critic.head.layers[0].weight, model.critic.model.transformer.h[0].mlp.c_fc.weight
        for weight, place in ((head, (0, 3)), (head, (0, 20)), (inner, (5, 7)), (inner, (30, 100))):
            assert weight.grad is not None
            step = 1e-5
            around = []
            for side in (step, -step):
                with torch.no_grad():
                    weight[place] += side
                around.append(model.evaluate(PAIRS)["loss"])
                with torch.no_grad():
                    weight[place] -= side
            assert weight.grad[place].item() == pytest.approx((around[0] - around[1]) / (2 * step), rel=1e-5, abs=1e-9)

    @pytest.mark.parametrize("arch", ["gpt2", "llama"])
    @pytest.mark.parametrize("tokens", [1, 300])
    def test_micro_batches_change_no_gradient(self, make_model, arch, tokens):
        whole = make_model(arch, config={"gradient_accumulation_steps": WINDOW})
        split = make_model(arch, config={"gradient_accumulation_steps": WINDOW}, micro_batch_tokens=tokens)
        assert split.train_step(PAIRS) == pytest.approx(whole.train_step(PAIRS), abs=1e-4)
        expected = gradients(whole)
        torch.testing.assert_close(gradients(split), expected, atol=1e-4 * expected.abs().max().item(), rtol=1e-3)

    def test_the_order_of_pairs_changes_no_gradient(self, make_model):
        one, other = (make_model("gpt2", config={"gradient_accumulation_steps": WINDOW}) for _ in range(2))
        assert one.train_step(PAIRS) == pytest.approx(other.train_step(PAIRS[::-1]), abs=1e-5)
        torch.testing.assert_close(gradients(one), gradients(other), atol=1e-4, rtol=1e-3)

    def test_each_text_is_read_once_and_winners_with_losers(self, make_model):
        """Three pairs of which two share the winner are five texts; with the tie, six. In micro-batches those two stay together."""
        model = make_model("gpt2")
        rows = rows_read(model)
        model.train_step(PAIRS[:3])
        assert rows == [5]
        rows.clear()
        model.evaluate(PAIRS)
        assert rows == [6]
        split = make_model("gpt2", micro_batch_tokens=3 * len(text_of(PAIRS[2].loser)))
        rows = rows_read(split)
        split.train_step([PAIRS[0], PAIRS[1], PAIRS[2]])
        assert rows == [3, 2]

    def test_a_step_is_one_of_adamw_at_the_reward_models_rate(self, make_model):
        model = make_model("gpt2", options={"reward_learning_rate": 3e-3}, config={"weight_decay": 0.0, "agent_learning_rate": 1.0})
        weight = model.critic.model.transformer.h[0].mlp.c_fc.weight
        before = weight.detach().clone()
        model.train_step(PAIRS)
        assert (weight - before).abs().max().item() == pytest.approx(3e-3, rel=1e-2)

    def test_options_of_the_optimiser_apply(self, make_model):
        """Clipping, decay and the schedule move the weights elsewhere; an accumulation window waits for its steps."""
        options = ({}, {"max_grad_norm": 1e-3}, {"weight_decay": 0.5}, {"warmup_steps": 5})
        ends = []
        for config in options:
            model = make_model("gpt2", config=config, options={"reward_learning_rate": 1e-2})
            for p in PAIRS[:3]:
                model.train_step([p])
            ends.append(torch.cat([weight.flatten() for weight in copies(model)]))
        assert all(not torch.allclose(ends[0], end) for end in ends[1:])
        model = make_model("gpt2", config={"gradient_accumulation_steps": 2})
        assert "grad_norm" not in model.train_step(PAIRS[:1])
        assert "grad_norm" in model.train_step(PAIRS[1:2])
        model.train_step(PAIRS[:1])
        assert model.updates == 1
        model.flush()
        assert model.updates == 2

    def test_what_is_not_finite_raises_and_changes_no_weight(self, make_model):
        """The bad byte is read in the last micro-batch, when the gradients of the others are there."""
        model = make_model("gpt2", micro_batch_tokens=1)
        with torch.no_grad():
            model.critic.model.transformer.wte.weight[model.critic.tokenizer("~")["input_ids"][0]] = float("nan")
        before = copies(model)
        with pytest.raises(FloatingPointError, match="loss of update 1 is nan; weights are unchanged"):
            model.train_step([*PAIRS, pair(("~", ""), ("a", ""))])
        assert all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(copies(model), before, strict=True))
        assert model.updates == 0 and all(p.grad is None for p in parameters(model))

    def test_what_stops_a_batch_in_its_middle_leaves_no_gradient_behind(self, make_model):
        model = make_model("gpt2", micro_batch_tokens=1)
        reads = itertools.count()

        def stop(*_: object) -> None:
            if next(reads) == 1:
                raise KeyboardInterrupt

        handle = model.critic.model.base_model.register_forward_pre_hook(stop)
        with pytest.raises(KeyboardInterrupt):
            model.train_step(PAIRS)
        handle.remove()
        assert all(p.grad is None for p in parameters(model))
        expected = make_model("gpt2", micro_batch_tokens=1)
        assert model.train_step(PAIRS) == expected.train_step(PAIRS)
        assert same(parameters(model), parameters(expected))

    def test_evaluation_agrees_and_changes_nothing(self, make_model):
        model = make_model("gpt2", dropout=0.3)
        before = copies(model)
        found = model.evaluate(PAIRS)
        assert same(copies(model), before) and all(p.grad is None for p in parameters(model))
        trained = model.train_step(PAIRS)
        assert found == pytest.approx({name: trained[name] for name in found}, abs=1e-5)
        assert set(found) == {"loss", "accuracy", "margin"}
        assert model.evaluate([]) == {}
        with pytest.raises(ValueError, match="on no pairs"):
            model.train_step([])

    @pytest.mark.parametrize("arch", ["gpt2", "llama"])
    def test_a_frozen_backbone_trains_the_head_alone(self, make_model, arch):
        """As the whole model's head would be trained by the first step; micro-batches bound what is read at once."""
        model = make_model(arch, options={"reward_freeze_backbone": True}, micro_batch_tokens=300)
        whole = make_model(arch)
        body = [p.detach().clone() for p in model.critic.model.parameters()]
        expected = whole.train_step(PAIRS)
        found = model.train_step(PAIRS)
        assert {k: found[k] for k in ("loss", "margin")} == pytest.approx({k: expected[k] for k in ("loss", "margin")}, abs=1e-4)
        assert found["grad_norm"] < expected["grad_norm"]
        assert same(list(model.critic.model.parameters()), body)
        assert all(p.grad is None for p in model.critic.model.parameters())
        torch.testing.assert_close(model.critic.head.layers[0].weight, whole.critic.head.layers[0].weight, atol=2e-6, rtol=1e-5)


class TestKeeping:
    def test_reset_gives_the_first_weights_and_a_fresh_optimiser(self, make_model):
        model = make_model("gpt2", options={"reward_learning_rate": 1e-2})
        before = copies(model)
        first = [model.train_step(PAIRS[:2]) for _ in range(3)]
        assert not same(copies(model), before)
        model.reset()
        assert same(copies(model), before) and model.updates == 0
        assert [model.train_step(PAIRS[:2]) for _ in range(3)] == first

    @pytest.mark.parametrize("frozen", [False, True])
    def test_a_state_goes_on_bit_for_bit(self, make_model, tmp_path, frozen):
        """Into a model that began with other weights, in the middle of an accumulation window; also what a reset goes back to."""
        options = {"reward_learning_rate": 1e-2, "reward_freeze_backbone": frozen}
        config = {"gradient_accumulation_steps": 2}
        model, other = (make_model("gpt2", seed, options=options, config=config) for seed in (0, 1))
        for p in PAIRS[:3]:
            model.train_step([p])
        save_tree(tmp_path, model.state_dict())
        other.load_state_dict(load_tree(tmp_path))
        assert torch.equal(values(other), values(model))
        assert other.train_step(PAIRS) == model.train_step(PAIRS)
        assert same(copies(other), copies(model))
        model.reset()
        other.reset()
        assert torch.equal(values(other), values(model))

    def test_a_state_of_another_model_changes_nothing(self, make_model):
        model = make_model("gpt2")
        before = values(model)
        wrong = [make_model("llama"), make_model("gpt2", hidden=16), make_model("gpt2", options={"reward_freeze_backbone": True})]
        for other, message in zip(wrong, ("missing", "has shape", "optimiser state of 2 parameters"), strict=True):
            with pytest.raises(ValueError, match=message):
                model.load_state_dict(other.state_dict())
        assert torch.equal(values(model), before)

    @pytest.mark.parametrize(("arch", "tied"), [("gpt2", True), ("llama", False)])
    def test_a_saved_folder_is_a_reward_model_with_its_head(self, make_model, tiny_policy, tmp_path, arch, tied):
        """BC-57: scores, and those after one more step, bit for bit."""
        model = make_model(arch, tied=tied)
        model.train_step(PAIRS)
        model.save(tmp_path / "rm")
        options = RewardModelOptions(reward_model_name=str(tmp_path / "rm"))
        again = build_reward_model(options, TrainingConfig(seed=9), {A: tiny_policy()})
        embeddings = again.critic.model.get_input_embeddings(), again.critic.model.get_output_embeddings()
        assert (embeddings[0].weight is embeddings[1].weight) == tied
        assert torch.equal(values(again), values(model))
        model.reset()
        for one in (model, again):
            one.critic.load_state_dict(again.critic.state_dict())
            one._optimizer = one._fresh_optimizer()
            one.train_step(PAIRS)
        assert torch.equal(values(again), values(model))


class TestBuilding:
    def build(self, policies, model_config=None, config=None, **options) -> JointRewardModel:
        return build_reward_model(RewardModelOptions(**options), TrainingConfig(**(config or {})), policies, model_config)

    def test_by_default_the_first_agents_model_is_copied_not_looked_up_by_a_name(self, tiny_policy):
        """D14: a loaded model knows no more of itself than its architecture."""
        policies = {A: tiny_policy("gpt2", 1, context=512), B: tiny_policy("llama", 2, context=512)}
        before = {agent: {n: t.clone() for n, t in policy.state_dict().items()} for agent, policy in policies.items()}
        model = self.build(policies, config={"seed": 4}, reward_learning_rate=1e-2)
        assert model.device == policies[A].device
        expected = Critic(copy.deepcopy(policies[A].model), ValueHead(32, seed=4), policies[A].tokenizer)
        assert torch.equal(values(model), values(JointRewardModel(expected, RewardModelOptions(), TrainingConfig())))
        model.train_step(PAIRS)
        for agent, policy in policies.items():
            assert same(list(policy.state_dict().values()), list(before[agent].values()))
        scores = values(model)
        with torch.no_grad():
            for parameter in policies[A].parameters():
                parameter.mul_(2)
        assert torch.equal(values(model), scores)

    def test_an_adapter_is_copied_over_the_agents_own_frozen_base(self, tiny_model, byte_tokenizer, tmp_path):
        pytest.importorskip("peft")
        lora = {"r": 2, "target_modules": ["q_proj"], "init_lora_weights": False}
        policy = HFPolicy(with_lora(tiny_model("llama", context=512), lora), byte_tokenizer, SamplingConfig(max_new_tokens=4))
        mine = [p.detach().clone() for p in policy.model.parameters()]
        model = self.build({A: policy}, reward_learning_rate=1e-2)
        first = values(model)
        for _ in range(2):
            model.train_step(PAIRS)
        assert same(list(policy.model.parameters()), mine)
        assert not torch.allclose(values(model), first)
        assert all("lora_" in name for name in model.critic.state_dict() if not name.startswith("head."))
        theirs = {p.data_ptr() for p in model.critic.model.parameters()}
        shared = [p.data_ptr() in theirs for p in policy.model.parameters()]
        assert shared == [not p.requires_grad for p in policy.model.parameters()]
        model.save(tmp_path)
        again = self.build({A: policy}, reward_model_name=str(tmp_path))
        torch.testing.assert_close(values(again), values(model), atol=1e-4, rtol=1e-4)
        model.reset()
        assert torch.equal(values(model), first)

    def test_a_name_is_loaded_as_the_options_say(self, tiny_policy):
        pytest.importorskip("peft")
        config = {"lora": {"r": 2, "target_modules": ["q_proj"]}}
        options = {"reward_model_name": "tiny-random", "reward_model_device": "cpu"}
        model = self.build({A: tiny_policy()}, config, {"dtype": "float64"}, **options)
        assert model.critic.model.dtype == torch.float64
        assert all(p.requires_grad for p in model.critic.model.parameters()), "adapters are the agents' affair"
        assert model.critic.tokenizer is not tiny_policy().tokenizer
        assert torch.isfinite(values(model)).all()

    def test_policies_without_a_model_need_a_name(self):
        policies = {A: TabularPolicy(["red", "blue"])}
        with pytest.raises(ValueError, match="reward_model_name must name a model: writer_0 acts with a TabularPolicy"):
            self.build(policies)
        assert torch.isfinite(values(self.build(policies, reward_model_name="tiny-random"))).all()

    def test_a_name_that_is_none_is_an_error_at_once(self, tiny_policy):
        with pytest.raises(ValueError, match=r"there is no model folder '\./nowhere'"):
            self.build({A: tiny_policy()}, reward_model_name="./nowhere")

    def test_micro_batches_and_lengths_are_handed_on(self, tiny_policy):
        model = self.build({A: tiny_policy(context=200)}, config={"micro_batch_tokens": 70})
        assert model.critic.micro_batch_tokens == 70
        with pytest.raises(ValueError, match="reward_max_length=201 exceeds"):
            self.build({A: tiny_policy(context=200)}, reward_max_length=201)

    def test_a_head_on_an_actor_is_refused(self, tiny_policy):
        policy = tiny_policy()
        critic = Critic(policy.model, ValueHead(32), policy.tokenizer, owns_model=False)
        with pytest.raises(ValueError, match="needs a model of its own"):
            JointRewardModel(critic, RewardModelOptions(), TrainingConfig())


class TestRewards:
    """As a scorer of an env."""

    def env(self, num_turns: int) -> TaskEnv:
        def again(agent_completions, turn):
            return [f"turn {turn}: {text}" for text in agent_completions]

        task = Task(
            reward=lambda a, b: [0.0] * len(a),
            items=[{"prompt": f"item {i}"} for i in range(2)],
            agents=[A, B],
            num_turns=num_turns,
            transition=again if num_turns > 1 else None,
        )
        return TaskEnv(task)

    def episodes(self, model, num_turns, spec):
        """The env steps of each chain."""
        policies = {A: TabularPolicy(["red", "blue", "a long word"]), B: TabularPolicy(["yes", "no"])}
        env = ScoreWith(self.env(num_turns), model)
        steps = collect(env, policies, env.items, spec, seed=3)
        by_state = {step.state_id: step for step in steps}
        chains = []
        for step in steps:
            if step.turn == 1:
                chain = [step]
                while chain[-1].next_state_id in by_state:
                    chain.append(by_state[chain[-1].next_state_id])
                chains.append(chain)
        return chains

    @pytest.mark.parametrize("num_turns", [1, 3])
    def test_the_return_of_an_episode_is_its_score(self, make_model, num_turns):
        model = make_model("gpt2", context=1024)
        chains = self.episodes(model, num_turns, RolloutSpec(4, later_generations=1))
        assert len(chains) == 8 and {len(chain) for chain in chains} == {num_turns}
        for chain in chains:
            whole = JointResponse(tuple(s.prompts for s in chain), tuple(s.completions for s in chain), 0.0, 0.0)
            first = JointResponse(whole.prompts[:1], whole.completions[:1], 0.0, 0.0)
            assert sum(step.rewards[A] for step in chain) == pytest.approx(model.scores([whole]).item(), abs=1e-4)
            assert chain[0].rewards[B] == pytest.approx(model.scores([first]).item(), abs=1e-4)
        assert np.std([chain[-1].rewards[A] for chain in chains]) > 0.01

    def test_candidates_are_read_together_and_their_common_past_once(self, make_model):
        model = make_model("gpt2", context=1024)
        rows = rows_read(model)
        env = ScoreWith(self.env(2), model)
        env.reset(seed=0, options={"item": 0})
        root = env.snapshot()
        actions = [{A: "x" * k, B: "y"} for k in range(4)]
        transitions = env.branch(root, actions)
        env.branch(transitions[2].state, actions)
        assert rows == [4, 5]

    def test_rewards_are_floats_without_gradient_and_the_same_alone(self, make_model):
        model = make_model("gpt2")
        prompts = [{A: "p", B: "q"}] * 3
        completions = [{A: "x" * k, B: "y"} for k in range(3)]
        found = model(prompts, completions)
        assert all(type(reward) is float for reward in found)
        alone = [model([p], [c])[0] for p, c in zip(prompts, completions, strict=True)]
        assert found == pytest.approx(alone, abs=1e-4)
        assert model([], []) == []


GROUPS = [[pair(("w", str(k)), ("l", ""), f"item {i}") for k in range(1 + i % 3)] for i in range(10)]
"""Of ten items, one to three pairs of each."""


class TestHoldout:
    def test_items_stay_whole_and_in_order(self):
        train, held = split_holdout(GROUPS, 0.3, (0, 1))
        flat = [p for group in GROUPS for p in group]
        assert [p for p in flat if p in train] == train and [p for p in flat if p in held] == held
        assert sorted(map(id, train + held)) == sorted(map(id, flat))
        assert len(pairs_by_prompts(held)) == 3 and len(pairs_by_prompts(train)) == 7
        assert split_holdout(GROUPS, 0.3, (0, 1)) == (train, held)
        assert any(split_holdout(GROUPS, 0.3, (seed, 1))[1] != held for seed in range(1, 4))

    def test_a_round_of_one_run_is_not_the_next_one_of_another(self):
        """Seed 3 in round 2 and seed 4 in round 1: seed and round are not added up."""
        sums: dict[int, list] = {}
        for seed in range(4):
            for iteration in range(1, 5):
                sums.setdefault(seed + iteration, []).append(split_holdout(GROUPS, 0.3, (seed, iteration))[1])
        assert all(len({tuple(map(id, held)) for held in same}) > len(same) // 2 for same in sums.values() if len(same) > 1)

    @pytest.mark.parametrize(
        ("items", "fraction", "held"),
        [(10, 0.0, 0), (1, 0.5, 0), (0, 0.5, 0), (2, 0.01, 1), (2, 0.99, 1), (10, 0.99, 9), (10, 0.26, 3)],
    )
    def test_how_many(self, items, fraction, held):
        train, out = split_holdout(GROUPS[:items], fraction, (1, 1))
        assert (len(pairs_by_prompts(train)), len(pairs_by_prompts(out))) == (items - held, held)

    def test_items_without_pairs_do_not_count(self):
        one = GROUPS[1]
        assert split_holdout([[], one, []], 0.9, (0, 1)) == (one, [])

    def test_pairs_of_several_rounds_are_grouped_by_what_was_read(self):
        a, b, again = pair(("1", ""), ("2", ""), "a"), pair(("3", ""), ("4", ""), "b"), pair(("5", ""), ("6", ""), "a")
        assert pairs_by_prompts([a, b, again]) == [[a, again], [b]]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("reward_model_name", "", "must be a path or None, got ''"),
        ("reward_model_device", 0, "must be a device such as 'cpu' or 'cuda:0', or None, got 0"),
        ("reward_learning_rate", 0.0, "must be a number above 0, got 0.0"),
        ("reward_num_train_epochs", 0, "at least 1, got 0"),
        ("reward_train_batch_size", 1.5, "at least 1, got 1.5"),
        ("reward_max_length", 0, "at least 1 or None, got 0"),
        ("reward_freeze_backbone", "yes", "must be one of True, False, got 'yes'"),
        ("reward_holdout_fraction", -0.1, "at least 0 and at most 1, got -0.1"),
        ("reward_holdout_fraction", 1.0, "must be below 1, got 1"),
    ],
)
def test_options_that_cannot_be_meant(option, value, message):
    RewardModelOptions().check_reward_model_options()
    with pytest.raises(ValueError, match=re.escape(option) + r" .*" + re.escape(message)):
        RewardModelOptions(**{option: value}).check_reward_model_options()


# ---- learning ----


def longer_is_better(shuffled: bool) -> list[list[Pair]]:
    """40 items with two pairs each; the longer of two answers is preferred, or either by the toss of a coin."""
    chance = np.random.default_rng(0)
    groups = []
    for item in range(40):
        group = []
        for _ in range(2):
            short, long = sorted(chance.choice(20, 2, replace=False).tolist())
            better, worse = ("z" * long, "k"), ("z" * short, "k")
            if shuffled and chance.random() < 0.5:
                better, worse = worse, better
            group.append(pair(better, worse, f"item {item}"))
        groups.append(group)
    return groups


@pytest.mark.parametrize("shuffled", [False, True])
def test_it_learns_which_answer_is_preferred_and_nothing_from_shuffled_labels(make_model, shuffled):
    model = make_model("gpt2", context=160, layers=1, options={"reward_learning_rate": 3e-3})
    train, held = split_holdout(longer_is_better(shuffled), 0.3, (0, 1))
    for _ in range(4):
        for start in range(0, len(train), 8):
            model.train_step(train[start : start + 8])
    accuracy = model.evaluate(held)["accuracy"]
    assert accuracy < 0.8 if shuffled else accuracy > 0.9

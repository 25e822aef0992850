"""Guards critics: values against a plain forward, padding, no language-model head, texts, saving, heads, and what is trained."""

from __future__ import annotations

import copy

import pytest
import torch
from tabular import TabularPolicy
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, AutoTokenizer

from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import HEAD_FILE, Critic, ValueHead, critic_optimizer, value_head
from learners.decoding import align_weights
from learners.fast_decoder import FastBackend
from learners.policy import HFPolicy
from learners.sampling import SamplingConfig
from llm_envs.types import ChatPrompt, Completion

ARCHITECTURES = ["qwen2", "llama", "gpt2", "mistral"]
SEQUENCES = [(5, 2, 7), (8,), (1, 2, 3, 4, 5, 6, 7, 8, 9), (5, 2, 7), (256, 256, 4, 256)]


def plain_value(critic: Critic, ids: tuple[int, ...]) -> torch.Tensor:
    """From one whole forward over the bare sequence: the last hidden state through the head."""
    hidden = critic.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[-1]
    return critic.head(hidden[:, -1])[0]


def gradients(critic: Critic) -> torch.Tensor:
    parameters = [*critic.body_parameters(), *critic.head_parameters()]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])


# ---- values ----


@pytest.mark.parametrize("hidden_dim", [None, 8])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_values_are_those_of_a_plain_forward(make_critic, arch, hidden_dim):
    critic = make_critic(arch, hidden_dim=hidden_dim)
    assert FastBackend.supports(critic.model) == (arch in ("qwen2", "llama"))
    with torch.no_grad():
        expected = torch.stack([plain_value(critic, ids) for ids in SEQUENCES])
        found = critic.values(SEQUENCES)
        alone = torch.cat([critic.values([ids]) for ids in SEQUENCES])
    assert found.shape == (len(SEQUENCES),)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone, expected, atol=1e-5, rtol=1e-5)
    assert found[0] == found[3]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_gradients_are_those_of_a_plain_forward(make_critic, arch):
    critic = make_critic(arch)
    weights = torch.linspace(-1, 1, len(SEQUENCES))
    (critic.values(SEQUENCES) * weights).sum().backward()
    found = gradients(critic)
    critic.model.zero_grad()
    critic.head.zero_grad()
    (torch.stack([plain_value(critic, ids) for ids in SEQUENCES]) * weights).sum().backward()
    expected = gradients(critic)
    torch.testing.assert_close(found, expected, atol=2e-5 * expected.abs().max().item(), rtol=1e-4)


@pytest.mark.parametrize("arch", ["qwen2", "gpt2"])
def test_padding_is_told_by_place_and_not_by_id(make_critic, arch):
    """BC-13, BC-36: pad = eos = 2 also stands in the text 5 2 7 2. Alone, in a batch, and padded by hand on either side."""
    critic = make_critic(arch, end=2, context=16)
    text = (5, 2, 7, 2)
    left, right = torch.tensor([[2, 2, *text]]), torch.tensor([[*text, 2, 2]])
    with torch.no_grad():
        alone = critic.values([text])[0]
        batch = critic.values([(3, 4, 2, 2, 9, 2, 2), text, (6,)])[1]
        positions = torch.tensor([[0, 0, 0, 1, 2, 3]])
        base = critic.model.base_model
        on_left = base(input_ids=left, attention_mask=torch.tensor([[0, 0, 1, 1, 1, 1]]), position_ids=positions).last_hidden_state
        on_right = base(input_ids=right, attention_mask=torch.tensor([[1, 1, 1, 1, 0, 0]])).last_hidden_state
        values = [batch, critic.head(on_left[:, 5])[0], critic.head(on_right[:, 3])[0]]
    for value in values:
        assert value.item() == pytest.approx(alone.item(), abs=1e-5)
    assert critic.head(on_right[:, 0])[0].item() != pytest.approx(alone.item(), abs=1e-2)


def test_values_in_micro_batches_are_those_of_the_whole_and_equal_ones_are_read_once(make_critic):
    whole, split = make_critic("gpt2"), make_critic("gpt2", critic={"micro_batch_tokens": 10})
    rows: list[int] = []
    split.model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    with torch.no_grad():
        torch.testing.assert_close(split.values(SEQUENCES), whole.values(SEQUENCES))
    assert sum(rows) == len(set(SEQUENCES)) and len(rows) > 1
    batches = split.micro_batches(SEQUENCES)
    assert sorted(row for batch in batches for row in batch) == list(range(len(SEQUENCES)))
    assert any({0, 3} <= set(batch) for batch in batches)
    for batch in batches:
        distinct = {SEQUENCES[row] for row in batch}
        assert len(distinct) == 1 or len(distinct) * max(map(len, distinct)) <= 10
    with pytest.raises(ValueError, match="micro_batch_tokens must be at least 1 or None, got 0"):
        make_critic(critic={"micro_batch_tokens": 0})


def test_dropout_is_off_and_the_mode_restored(make_critic):
    critic = make_critic("gpt2", dropout=0.5)
    critic.model.train()
    with torch.no_grad():
        values = [critic.values(SEQUENCES) for _ in range(2)]
        critic.model.eval()
        plain = torch.stack([plain_value(critic, ids) for ids in SEQUENCES])
    critic.model.train()
    critic.values(SEQUENCES)
    assert torch.equal(*values)
    torch.testing.assert_close(values[0], plain, atol=1e-5, rtol=1e-5)
    assert all(module.training for module in critic.model.modules())


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_gradient_checkpointing_changes_nothing(make_critic, arch):
    plain, saving = make_critic(arch), make_critic(arch)
    saving.model.gradient_checkpointing_enable()
    saving.model.train()
    for critic in (plain, saving):
        critic.values(SEQUENCES).square().sum().backward()
    torch.testing.assert_close(gradients(saving), gradients(plain), atol=1e-5, rtol=1e-4)


def test_values_of_a_model_in_half_precision_are_float32(make_critic):
    critic = make_critic("gpt2")
    exact = critic.values(SEQUENCES)
    critic.model.bfloat16()
    values = critic.values(SEQUENCES)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values, exact, atol=0.3, rtol=0.1)


@pytest.mark.parametrize("arch", ["qwen2", "gpt2"])
def test_a_fixed_body_gives_the_same_values_and_gradients_to_the_head_alone(make_critic, arch):
    critic = make_critic(arch)
    values = critic.values_of_fixed_body(SEQUENCES)
    torch.testing.assert_close(values, critic.values(SEQUENCES))
    values.sum().backward()
    assert all(parameter.grad is None for parameter in critic.model.parameters())
    assert all(parameter.grad is not None for parameter in critic.head_parameters())


# ---- the language-model head ----


class Shapes(TorchDispatchMode):
    """Notes the shape of every tensor that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(value, torch.Tensor):
                self.seen.add(tuple(value.shape))
        return result


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_logits_are_computed(make_critic, arch, tied):
    """A vocabulary of 277 is the size of nothing else."""
    critic = make_critic(arch, vocab=277, tied=tied)
    with torch.no_grad(), Shapes() as critics:
        critic.values(SEQUENCES)
    assert not any(277 in shape for shape in critics.seen)
    with torch.no_grad(), Shapes() as models:
        critic.model(input_ids=torch.tensor([SEQUENCES[0]]))
    assert any(277 in shape for shape in models.seen)


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_a_head_of_its_own_is_neither_trained_nor_given_a_gradient(make_critic, arch):
    critic = make_critic(arch, tied=False)
    critic.values(SEQUENCES).sum().backward()
    head = critic.model.get_output_embeddings().weight
    assert head.grad is None
    trained = {id(parameter) for parameter in [*critic.body_parameters(), *critic.head_parameters()]}
    assert trained == {id(p) for p in critic.model.parameters() if p is not head} | {id(p) for p in critic.head.parameters()}
    assert all(p.grad is not None for p in critic.body_parameters())


def test_a_tied_head_is_trained_as_the_embedding(make_critic):
    critic = make_critic("gpt2", tied=True)
    assert {id(p) for p in critic.body_parameters()} == {id(p) for p in critic.model.parameters()}


def test_frozen_weights_of_the_body_are_not_trained(make_critic):
    critic = make_critic("gpt2")
    critic.model.requires_grad_(False)
    assert critic.body_parameters() == []
    optimizer = critic_optimizer(critic, ActorCriticConfig(critic_learning_rate=0.1))
    assert len(optimizer.parameters) == len(critic.head_parameters())


# ---- texts ----


def test_a_text_that_is_too_long_keeps_its_newest_part_with_one_warning(make_critic):
    critic = make_critic("gpt2", context=16)
    with pytest.warns(UserWarning, match="a prompt of 30 tokens was cut to 16"):
        encoded = critic.encode(["h" * 20 + "the action", "short", "x" * 40])
    assert [len(ids) for ids in encoded] == [16, 5, 16]
    assert bytes_of(critic, encoded[0]) == "hhhhhhthe action"
    assert critic.newest(tuple(range(20))) == tuple(range(4, 20))
    assert critic.num_truncated == 3
    with torch.no_grad():
        assert torch.isfinite(critic.values(encoded)).all()


def test_a_tokenizer_that_starts_with_bos_starts_the_cut_text_with_it(make_critic, make_tokenizer):
    critic = make_critic("gpt2", context=16, tokenizer=make_tokenizer(bos=True))
    with pytest.warns(UserWarning, match="cut to 16"):
        (ids,) = critic.encode(["h" * 20 + "the action"])
    assert ids[0] == critic.tokenizer.bos_token_id
    assert bytes_of(critic, ids[1:]) == "hhhhhthe action"


def bytes_of(critic: Critic, ids: tuple[int, ...]) -> str:
    return str(critic.tokenizer.decode(list(ids)))


def test_a_conversation_is_read_as_text_even_without_a_chat_template(make_critic):
    critic = make_critic()
    chat = ChatPrompt([{"role": "user", "content": "why?"}])
    assert critic.encode([chat]) == critic.encode(["user: why?"])


def test_what_cannot_be_read_is_an_error(make_critic):
    assert make_critic().encode([]) == []
    with pytest.raises(ValueError, match="no tokens"):
        make_critic().encode(["fine", ""])
    with pytest.raises(ValueError, match="the model knows 100"):
        make_critic(vocab=100, end=3).encode(["\u00ff"])


def test_ids_are_shared_only_with_a_policy_that_means_the_same_by_them(make_critic, tiny_policy, make_tokenizer):
    critic = make_critic()
    assert critic.understands_ids_of(tiny_policy(tokenizer=critic.tokenizer))
    assert critic.understands_ids_of(tiny_policy("gpt2", tokenizer=make_tokenizer()))
    assert not critic.understands_ids_of(tiny_policy(tokenizer=make_tokenizer(pad=True)))
    # A policy may draw ids that its tokenizer has no token for, beyond this critic's embedding.
    assert not critic.understands_ids_of(tiny_policy(tokenizer=critic.tokenizer, vocab=300))
    assert not critic.understands_ids_of(TabularPolicy(["red"]))


# ---- heads ----


def test_fresh_weights_are_normal_with_deviation_002_and_biases_0():
    head = ValueHead(4000, 10, seed=3)
    first, second = head.layers[0], head.layers[2]
    assert isinstance(head.layers[1], nn.Tanh)
    assert first.weight.shape == (10, 4000) and second.weight.shape == (1, 10)
    assert first.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert first.weight.mean().item() == pytest.approx(0.0, abs=5e-4)
    assert second.weight.abs().max() < 0.1
    assert not first.bias.any() and not second.bias.any()
    linear = ValueHead(40_000)
    assert len(linear.layers) == 1
    assert linear.layers[0].weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_a_head_by_hand():
    """tanh(.5·2) = .76159; 3·.76159 + 1 = 3.28478."""
    head = ValueHead(1, 1)
    with torch.no_grad():
        for parameter, value in zip(head.parameters(), (0.5, 0.0, 3.0, 1.0), strict=True):
            parameter.fill_(value)
    assert head(torch.tensor([[2.0], [0.0]])).tolist() == pytest.approx([3.284782, 1.0])


def test_heads_are_seeded_and_leave_the_global_random_state_alone():
    before = torch.get_rng_state()
    one, same, other = ValueHead(16, 4, seed=1), ValueHead(16, 4, seed=1), ValueHead(16, 4, seed=2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.layers[0].weight, other.layers[0].weight)


# ---- saving ----


def trained_once(critic: Critic) -> torch.Tensor:
    """Values after one step of plain descent."""
    critic.values(SEQUENCES).square().sum().backward()
    with torch.no_grad():
        for parameter in [*critic.body_parameters(), *critic.head_parameters()]:
            parameter -= 1e-3 * parameter.grad
        return critic.values(SEQUENCES)


@pytest.mark.parametrize(("arch", "tied"), [("gpt2", True), ("llama", True), ("llama", False)])
@pytest.mark.parametrize("hidden_dim", [None, 8])
def test_a_saved_critic_comes_back_by_its_constructors(make_critic, tmp_path, arch, tied, hidden_dim):
    """BC-57: with tied embeddings too; values, and those after one more step, bit for bit."""
    critic = make_critic(arch, tied=tied, hidden_dim=hidden_dim)
    critic.save(tmp_path / "new" / "critic")
    folder = tmp_path / "new" / "critic"
    model = align_weights(AutoModelForCausalLM.from_pretrained(folder))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    again = Critic(model, value_head(model, folder, hidden_dim, seed=77), tokenizer)
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    assert again.encode(["a text"]) == critic.encode(["a text"])
    with torch.no_grad():
        assert torch.equal(again.values(SEQUENCES), critic.values(SEQUENCES))
    assert torch.equal(trained_once(again), trained_once(critic))


def test_a_head_on_an_actor_is_saved_alone(make_critic, tmp_path):
    critic = make_critic(critic={"owns_model": False})
    critic.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [HEAD_FILE]
    assert all(name.startswith("head.") for name in critic.state_dict())
    assert critic.body_parameters() == []
    again = value_head(critic.model, tmp_path, None)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), critic.head.parameters(), strict=True))


def test_a_folder_without_a_head_gives_a_fresh_one_and_one_of_another_shape_is_refused(make_critic, tmp_path):
    critic = make_critic(hidden_dim=8)
    fresh = value_head(critic.model, tmp_path, 4, seed=5)
    assert torch.equal(fresh.layers[0].weight, ValueHead(32, 4, seed=5).layers[0].weight)
    critic.save(tmp_path)
    with pytest.raises(ValueError, match="a hidden width of None gives"):
        value_head(critic.model, tmp_path, None)


def test_a_state_comes_back_in_place_and_one_of_another_critic_changes_nothing(make_critic):
    critic, other = make_critic("gpt2", seed=0, tied=True), make_critic("gpt2", seed=1, tied=True)
    parameters = [*critic.body_parameters(), *critic.head_parameters()]
    assert "model.lm_head.weight" not in critic.state_dict()
    critic.load_state_dict(other.state_dict())
    assert [id(p) for p in [*critic.body_parameters(), *critic.head_parameters()]] == [id(p) for p in parameters]
    with torch.no_grad():
        before = critic.values(SEQUENCES)
        assert torch.equal(before, other.values(SEQUENCES))
        for wrong, message in [(make_critic("gpt2", hidden=16), "has shape"), (make_critic("llama"), "missing")]:
            with pytest.raises(ValueError, match=message):
                critic.load_state_dict(wrong.state_dict())
        assert torch.equal(critic.values(SEQUENCES), before)


# ---- rates ----


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({"critic_learning_rate": 1e-3}, (1e-3, 1e-3)),
        ({"critic_learning_rate": 1e-3, "value_head_learning_rate": 1e-2}, (1e-3, 1e-2)),
        ({"critic_learning_rate": None, "agent_learning_rate": 1e-4}, (1e-4, 1e-4)),
        ({"critic_learning_rate": None, "agent_learning_rate": 1e-4, "value_head_learning_rate": 1e-2}, (1e-4, 1e-2)),
    ],
)
def test_body_and_head_are_trained_at_their_rates(make_critic, rates, expected):
    """AdamW's first step moves a weight by its rate, whatever the gradient's size (decay left out)."""
    critic = make_critic("gpt2")
    body, head = critic.model.transformer.h[0].mlp.c_fc.weight, critic.head.layers[0].weight
    before = body.detach().clone(), head.detach().clone()
    optimizer = critic_optimizer(critic, ActorCriticConfig(weight_decay=0.0, **rates))
    optimizer.backward(critic.values(SEQUENCES).sum())
    optimizer.step()
    moved = [(after - old).abs().max().item() for after, old in zip((body, head), before, strict=True)]
    assert moved == pytest.approx(list(expected), rel=1e-2)


# ---- adapters ----


def test_a_critic_with_an_adapter_trains_and_keeps_the_adapter_alone(make_critic, tmp_path):
    peft = pytest.importorskip("peft")
    plain = make_critic("llama")
    options = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], init_lora_weights=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        critic = Critic(peft.get_peft_model(copy.deepcopy(plain.model), options), copy.deepcopy(plain.head), plain.tokenizer)
    with torch.no_grad():
        values = critic.values(SEQUENCES)
        assert not torch.allclose(values, plain.values(SEQUENCES), atol=1e-3)
    names = {name for name in critic.state_dict() if not name.startswith("head.")}
    assert names and all("lora_" in name for name in names)
    assert len(critic.body_parameters()) == len(names)
    critic.save(tmp_path)
    merged = align_weights(AutoModelForCausalLM.from_pretrained(tmp_path))
    with torch.no_grad():
        again = Critic(merged, value_head(merged, tmp_path, None), plain.tokenizer).values(SEQUENCES)
    torch.testing.assert_close(again, values, atol=1e-4, rtol=1e-4)


def test_a_head_on_an_actor_with_an_adapter_reads_through_the_adapter(make_critic, tiny_model, byte_tokenizer):
    peft = pytest.importorskip("peft")
    options = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], init_lora_weights=False)
    policy = HFPolicy(peft.get_peft_model(tiny_model("llama"), options), byte_tokenizer, SamplingConfig(max_new_tokens=4))
    critic = Critic(policy.model, ValueHead(32), policy.tokenizer, owns_model=False)
    critic.values([Completion("", prompt_ids=(1, 2)).prompt_ids]).sum().backward()
    assert all(p.grad is not None for p in policy.parameters())

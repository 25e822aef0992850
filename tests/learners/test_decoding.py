"""Guards the ways a model is run: every backend draws and scores what a plain forward of the bare sequence says, gradients too."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from learners.decoding import CachedBackend, choose_backend, scoring_mode
from learners.fast_decoder import FastBackend
from learners.policy import HFPolicy
from learners.sampling import SamplingConfig
from llm_envs.types import Completion

BACKENDS = {"qwen2": ("fast", "cached", "uncached"), "llama": ("fast", "cached", "uncached"), "gpt2": ("cached", "uncached")}
CASES = [(arch, decoder) for arch, decoders in (BACKENDS | {"mistral": ("cached", "uncached")}).items() for decoder in decoders]
PROMPTS = ["hello", "a much longer prompt than that", "x", "hello"]


def plain_logits(model: nn.Module, prompt: tuple[int, ...], completion: tuple[int, ...]) -> torch.Tensor:
    """Logits [T, V] in front of each token, from one forward over the unpadded sequence."""
    ids = torch.tensor([[*prompt, *completion]])
    return model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()


def plain_logprobs(model: nn.Module, completion: Completion) -> torch.Tensor:
    scores = plain_logits(model, completion.prompt_ids, completion.token_ids).log_softmax(-1)
    return scores.gather(-1, torch.tensor(completion.token_ids).unsqueeze(-1)).squeeze(-1)


def drawn(policy: HFPolicy, n: int = 3, prompts: list[str] = PROMPTS) -> list[Completion]:
    return [c for row in policy.generate(prompts, n, [(7, i) for i in range(len(prompts))]) for c in row]


def gradients(policy: HFPolicy) -> torch.Tensor:
    grads = [parameter.grad for parameter in policy.parameters()]
    return torch.cat([grad.flatten() for grad in grads if grad is not None])


@pytest.mark.parametrize(("arch", "decoder"), CASES)
class TestAgainstPlainForward:
    def policy(self, tiny_policy, arch, decoder, **sampling) -> HFPolicy:
        ends = range(0, 256, 9)  # a ninth of the bytes end a sequence, so lengths differ
        config = SamplingConfig(max_new_tokens=10, **sampling)
        return tiny_policy(arch, policy={"decoder": decoder, "end_token_ids": ends}, sampling=config, tied=arch != "llama")

    def test_sampled_logprobs(self, tiny_policy, arch, decoder):
        policy = self.policy(tiny_policy, arch, decoder)
        completions = drawn(policy)
        assert len({len(c.token_ids) for c in completions}) > 2
        with torch.no_grad():
            for completion in completions:
                assert torch.allclose(torch.tensor(completion.logprobs), plain_logprobs(policy.model, completion), atol=2e-5)

    def test_greedy_tokens(self, tiny_policy, arch, decoder):
        policy = self.policy(tiny_policy, arch, decoder, temperature=0)
        with torch.no_grad():
            for completion in drawn(policy, n=1):
                best = plain_logits(policy.model, completion.prompt_ids, completion.token_ids).argmax(-1)
                assert tuple(best.tolist()) == completion.token_ids

    def test_scores_and_gradients(self, tiny_policy, arch, decoder):
        policy = self.policy(tiny_policy, arch, decoder)
        completions = drawn(policy)
        weights = torch.linspace(-1, 1, len(completions))
        scored = policy.logprobs(completions)
        expected = [plain_logprobs(policy.model, completion) for completion in completions]
        for row, mask, scores in zip(scored.logprobs, scored.mask, expected, strict=True):
            assert torch.allclose(row[mask], scores, atol=2e-5)
            assert not row[~mask].any()
        (scored.logprobs.sum(-1) * weights).sum().backward()
        got = gradients(policy)
        policy.model.zero_grad()
        (torch.stack([scores.sum() for scores in expected]) * weights).sum().backward()
        assert torch.allclose(got, gradients(policy), atol=2e-5 * gradients(policy).abs().max().item())

    def test_truncated_scores_are_those_drawn_with(self, tiny_policy, arch, decoder):
        policy = self.policy(tiny_policy, arch, decoder, temperature=0.7, top_p=0.8, top_k=30)
        completions = drawn(policy)
        scored = policy.logprobs(completions).logprobs.detach()
        for row, completion in zip(scored, completions, strict=True):
            assert torch.allclose(row[: len(completion.logprobs)], torch.tensor(completion.logprobs), atol=1e-4)


@pytest.mark.parametrize("arch", ["qwen2", "gpt2"])
def test_padding_does_not_shift_positions(tiny_policy, arch):
    """BC-13: 4 tokens scored alone and beside a sequence of 7, whose prompt is longer (left padding) or whose answer is (right)."""
    policy = tiny_policy(arch, context=16, sampling=SamplingConfig(max_new_tokens=4))
    short = Completion("", token_ids=(60, 61), prompt_ids=(10, 11))
    longer_prompt = Completion("", token_ids=(62, 63), prompt_ids=(12, 13, 14, 15, 16))
    longer_answer = Completion("", token_ids=(62, 63, 64, 65, 66), prompt_ids=(12, 13))
    twice = Completion("", token_ids=(70,), prompt_ids=(12, 13, 14, 15, 16))  # so that prompts are shared
    alone = policy.logprobs([short]).logprobs[0]
    for others in ([longer_prompt], [longer_answer], [longer_prompt, twice], [longer_prompt, longer_answer]):
        beside = policy.logprobs([short, *others]).logprobs[0]
        assert torch.allclose(beside[:2], alone, atol=1e-4)
    assert torch.allclose(alone, plain_logprobs(policy.model, short), atol=1e-4)


class TestRotary:
    SCALINGS = (
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    )

    @pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
    def test_scaled_frequencies(self, tiny_policy, scaling):
        policy = tiny_policy("llama", rope_parameters={"rope_theta": 10_000.0, **scaling})
        assert policy.decoder == "fast"
        for completion in drawn(policy, n=2):
            assert torch.allclose(torch.tensor(completion.logprobs), plain_logprobs(policy.model, completion).detach(), atol=2e-5)

    def test_frequencies_that_follow_the_length_are_left_to_the_library(self, tiny_policy):
        dynamic = {"rope_theta": 10_000.0, "rope_type": "dynamic", "factor": 2.0}
        assert tiny_policy("llama", rope_parameters=dynamic).decoder == "cached"


class TestChoice:
    @pytest.mark.parametrize(("arch", "name"), [("qwen2", "fast"), ("llama", "fast"), ("gpt2", "cached"), ("mistral", "cached")])
    def test_the_fastest_that_is_right(self, tiny_policy, arch, name):
        assert tiny_policy(arch).decoder == name

    def test_a_replaced_layer_is_not_fast(self, tiny_model):
        class Louder(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        model = tiny_model()
        model.model.layers[0].mlp.down_proj = Louder(64, 32, bias=False)
        assert not FastBackend.supports(model)

    def test_a_hook_is_not_fast(self, tiny_model):
        model = tiny_model()
        model.model.layers[1].register_forward_hook(lambda module, args, output: None)
        assert not FastBackend.supports(model)

    @pytest.mark.parametrize(
        "change", [{"hidden_act": "gelu"}, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}]
    )
    def test_another_configuration_is_not_fast(self, tiny_policy, change):
        policy = tiny_policy("qwen2", **change)
        assert policy.decoder == "cached"
        for completion in drawn(policy, n=2):
            assert torch.allclose(torch.tensor(completion.logprobs), plain_logprobs(policy.model, completion).detach(), atol=2e-5)

    def test_an_explicit_attention_kernel_is_kept(self, tiny_model):
        model = tiny_model()
        model.set_attn_implementation("eager")
        assert choose_backend(model).name == "cached"

    def test_one_that_cannot_run_the_model_is_refused(self, tiny_policy):
        with pytest.raises(ValueError, match=r"fast.*GPT2LMHeadModel"):
            tiny_policy("gpt2", policy={"decoder": "fast"})
        with pytest.raises(ValueError, match=r"decoder.*'quick'"):
            tiny_policy("gpt2", policy={"decoder": "quick"})

    def test_every_cache_of_plain_keys_and_values_is_shared(self, tiny_model):
        assert all(CachedBackend.supports(tiny_model(arch)) for arch in ("qwen2", "llama", "gpt2", "mistral"))


@pytest.mark.parametrize("arch", ["qwen2", "gpt2"])
def test_updates_are_seen(tiny_policy, arch):
    policy = tiny_policy(arch)
    before = drawn(policy)
    policy.logprobs(before).logprobs.sum().backward()
    torch.optim.SGD(policy.parameters(), lr=0.1).step()
    after = drawn(policy)
    assert [c.logprobs for c in after] != [c.logprobs for c in before]
    with torch.no_grad():
        for completion in after:
            assert torch.allclose(torch.tensor(completion.logprobs), plain_logprobs(policy.model, completion), atol=2e-5)


@pytest.mark.parametrize("arch", ["qwen2", "gpt2"])
def test_recomputing_activations_changes_no_gradient(tiny_policy, arch):
    policy = tiny_policy(arch)
    completions = drawn(policy)
    kept, expected = kept_numbers(policy, completions), gradients(policy)
    policy.model.zero_grad()
    policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert kept_numbers(policy, completions) < kept / 2
    assert torch.allclose(gradients(policy), expected, atol=1e-5 * expected.abs().max().item())


def kept_numbers(policy: HFPolicy, completions: list[Completion]) -> int:
    """Numbers that a forward keeps for the backward pass, which is run."""
    sizes: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = policy.logprobs(completions).logprobs.sum()
    loss.backward()
    return sum(sizes)


def test_recomputing_with_other_dropout_is_refused(tiny_policy):
    """The recomputation happens after the flags are restored: a model left in training mode would then drop other units."""
    policy = tiny_policy("gpt2", dropout=0.1)
    completions = drawn(policy)
    policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy.logprobs(completions).logprobs.sum().backward()  # in eval mode: fine
    policy.model.train()
    with pytest.raises(ValueError, match="dropout"):
        policy.logprobs(completions)


class TestMode:
    @pytest.mark.parametrize("fails", [False, True])
    def test_training_flags_are_restored(self, tiny_model, fails):
        model = tiny_model("gpt2").train()
        model.transformer.h[1].eval()
        before = [module.training for module in model.modules()]
        try:
            with scoring_mode(model):
                assert not any(module.training for module in model.modules())
                if fails:
                    raise RuntimeError
        except RuntimeError:
            pass
        assert [module.training for module in model.modules()] == before

    def test_weights_stay_trainable_after_drawing(self, tiny_policy):
        policy = tiny_policy()
        drawn(policy)
        assert all(parameter.requires_grad and not parameter.is_inference() for parameter in policy.model.parameters())
        policy.logprobs(drawn(policy)).logprobs.sum().backward()


def test_a_frozen_part_gets_no_gradient(tiny_policy):
    policy = tiny_policy("qwen2")
    completions = drawn(policy)
    policy.logprobs(completions).logprobs.sum().backward()
    whole = policy.model.model.layers[1].mlp.up_proj.weight.grad.clone()
    frozen = HFPolicy(copy.deepcopy(policy.model), policy.tokenizer, policy.sampling)
    frozen.model.zero_grad()
    frozen.model.requires_grad_(False)
    frozen.model.model.layers[1].requires_grad_(True)
    frozen.logprobs(completions).logprobs.sum().backward()
    assert frozen.model.model.embed_tokens.weight.grad is None
    assert torch.allclose(frozen.model.model.layers[1].mlp.up_proj.weight.grad, whole, atol=1e-5 * whole.abs().max().item())

"""Guards the policy: prompts become ids once and rightly, draws depend on their keys alone, what was sampled is what is scored."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from learners import policy as policy_module
from learners.policy import HFPolicy, batches, shared_copy
from learners.sampling import SamplingConfig
from llm_envs.types import ChatPrompt, Completion, Policy

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def flat(rows: list[list[Completion]]) -> list[Completion]:
    return [completion for row in rows for completion in row]


def keys(count: int, start: int = 0) -> list[tuple[int, ...]]:
    return [(3, start + i) for i in range(count)]


def word_tokenizer(size: int, eos: int, pad: int | None) -> PreTrainedTokenizerFast:
    """Tokens `t0`, `t1`, … by white space."""
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(size)}, unk_token="t1"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=f"t{eos}", pad_token=None if pad is None else f"t{pad}")


def test_it_is_a_policy(tiny_policy):
    assert isinstance(tiny_policy(), Policy)


class TestKeys:
    PROMPTS = ("one", "two, and longer", "one", "three")

    def test_a_draw_depends_on_its_key_alone(self, tiny_policy):
        policy = tiny_policy()
        together = policy.generate(self.PROMPTS, 3, keys(4))
        for i, prompt in enumerate(self.PROMPTS):
            alone = policy.generate([prompt], 3, keys(1, start=i))[0]
            assert [c.token_ids for c in alone] == [c.token_ids for c in together[i]]
        assert together[0] != together[2]  # equal prompts, other keys

    def test_fewer_samples_are_the_first_ones(self, tiny_policy):
        policy = tiny_policy()
        assert [c.token_ids for c in policy.generate(["a"], 2, [(5,)])[0]] == [
            c.token_ids for c in policy.generate(["a"], 4, [(5,)])[0][:2]
        ]

    @pytest.mark.parametrize("limit", [("_GENERATION_TOKENS", 40), ("_GENERATION_LOGITS", 3 * 260)], ids=["tokens", "logits"])
    def test_neither_the_split_nor_the_order_matters(self, tiny_policy, monkeypatch, limit):
        policy = tiny_policy()
        whole = policy.generate(self.PROMPTS, 3, keys(4))
        monkeypatch.setattr(policy_module, *limit)
        split = policy.generate(self.PROMPTS[::-1], 3, keys(4)[::-1])[::-1]
        assert [c.token_ids for c in flat(split)] == [c.token_ids for c in flat(whole)]

    def test_no_global_stream_is_touched(self, tiny_policy):
        policy = tiny_policy()
        before = torch.get_rng_state()
        completions = flat(policy.generate(["a"], 2, [(5,)]))
        policy.logprobs(completions)
        assert torch.equal(torch.get_rng_state(), before)

    def test_threads_draw_what_one_thread_draws(self, tiny_policy, byte_tokenizer):
        """Agents with weights of their own and one tokenizer, generating at once."""
        policies = [tiny_policy(seed=seed, tokenizer=byte_tokenizer) for seed in range(3)]
        expected = [policy.generate(self.PROMPTS, 2, keys(4)) for policy in policies]
        got: dict[int, list[list[Completion]]] = {}

        def work(index: int) -> None:
            for _ in range(4):
                got[index] = policies[index].generate(self.PROMPTS, 2, keys(4))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [got[index] for index in range(3)] == expected

    def test_wrong_calls_are_refused(self, tiny_policy):
        with pytest.raises(ValueError, match=r"n must be at least 1.*0"):
            tiny_policy().generate(["a"], 0, [(1,)])
        with pytest.raises(ValueError, match="1 prompts and 2 keys"):
            tiny_policy().generate(["a"], 1, [(1,), (2,)])
        assert tiny_policy().generate([], 2, []) == []


class TestEnds:
    def test_an_end_token_in_the_prompt_is_read_and_ends_nothing(self, tiny_policy, make_tokenizer):
        """BC-14: the prompt's end token is a chat marker that the model must see."""
        policy = tiny_policy(tokenizer=make_tokenizer())
        inside, outside = policy.generate(["<end>ab", "ab"], 2, [(1,), (1,)])
        assert inside[0].prompt_ids == (256, *outside[0].prompt_ids)
        assert inside[0].token_ids
        with torch.no_grad():
            ids = torch.tensor([[*inside[0].prompt_ids, inside[0].token_ids[0]]])
            expected = policy.model(ids).logits[0, -2].log_softmax(-1)[inside[0].token_ids[0]]
        assert inside[0].logprobs[0] == pytest.approx(expected.item(), abs=2e-5)

    def test_the_mask_covers_the_end_token_and_no_padding(self, tiny_policy):
        """BC-14: (7, 8, 2) stopped at its 2; (7, 8, 9, 5, 6) hit the limit."""
        policy = tiny_policy(policy={"end_token_ids": [2]})
        stopped = Completion("", (7, 8, 2), (), (2, 5, 6), "stop")
        cut = Completion("", (7, 8, 9, 5, 6), (), (2, 5, 6), "length")
        assert policy.logprobs([stopped, cut]).mask.tolist() == [[True, True, True, False, False], [True] * 5]

    @pytest.mark.parametrize("pad", [False, True], ids=["no pad", "pad"])
    def test_a_pad_token_changes_nothing(self, tiny_policy, make_tokenizer, pad):
        plain = tiny_policy(policy={"end_token_ids": range(0, 256, 5)})
        other = tiny_policy(policy={"end_token_ids": range(0, 256, 5)}, tokenizer=make_tokenizer(pad=pad))
        if not pad:
            other.tokenizer.pad_token = other.tokenizer.eos_token  # pad = eos
        assert other.generate(["ab", "cde"], 3, keys(2)) == plain.generate(["ab", "cde"], 3, keys(2))

    def test_all_end_tokens_of_tokenizer_and_generation_config(self, tiny_model, byte_tokenizer):
        model = tiny_model(end=[3, 4])
        sampling = SamplingConfig(max_new_tokens=8)
        assert HFPolicy(model, byte_tokenizer, sampling).end_token_ids == {3, 4, 256}
        model.generation_config.eos_token_id = 0
        assert HFPolicy(model, byte_tokenizer, sampling).end_token_ids == {0, 256}

    def test_the_end_token_alone_is_a_completion(self, tiny_policy):
        """BC-17: text "" with one token, trained like any other."""
        policy = tiny_policy(policy={"end_token_ids": range(0, 260, 2)}, sampling=SamplingConfig(max_new_tokens=6))
        completions = flat(policy.generate(["a"], 12, [(2,)]))
        alone = [c for c in completions if len(c.token_ids) == 1 and c.finish_reason == "stop"]
        assert alone
        assert {c.text for c in alone} == {""}
        scored = policy.logprobs(completions)
        row = completions.index(alone[0])
        assert scored.mask[row].tolist() == [True] + [False] * (scored.mask.shape[1] - 1)
        (grad,) = torch.autograd.grad(scored.logprobs[row].sum() * -0.75, policy.model.get_input_embeddings().weight)
        assert grad.abs().max() > 0

    def test_a_completion_without_tokens_contributes_nothing(self, tiny_policy):
        """BC-17: among others its row is empty; alone the sum is 0 and can be backpropagated."""
        policy = tiny_policy()
        empty = Completion("", (), (), (5, 6), "length")
        full = Completion("", (7, 8), (), (5, 6), "length")
        scored = policy.logprobs([empty, full])
        assert scored.mask.tolist() == [[False, False], [True, True]]
        # Not bit for bit: a product of another size may be summed in another order.
        torch.testing.assert_close(scored.logprobs[1], policy.logprobs([full]).logprobs[0], rtol=0, atol=1e-5)
        nothing = policy.logprobs([empty]).logprobs
        assert nothing.shape == (1, 0)
        nothing.sum().backward()

    def test_a_limit_of_0(self, tiny_policy):
        (completion,) = flat(tiny_policy(sampling=SamplingConfig(max_new_tokens=0)).generate(["a"], 1, [(1,)]))
        assert (completion.text, completion.token_ids, completion.finish_reason) == ("", (), "length")


class TestBos:
    """BC-19."""

    CHAT = ChatPrompt(
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "go"}]
    )

    def prompt_ids(self, policy: HFPolicy, prompt: str) -> tuple[int, ...]:
        return policy.generate([prompt], 1, [(1,)])[0][0].prompt_ids

    def test_template_and_tokenizer_both_write_it(self, tiny_policy, make_tokenizer):
        tokenizer = make_tokenizer(bos=True, chat_template=TEMPLATE)
        ids = self.prompt_ids(tiny_policy(tokenizer=tokenizer), self.CHAT)
        assert ids[0] == tokenizer.bos_token_id
        assert tokenizer.bos_token_id not in ids[1:]
        assert tokenizer.decode(ids[1:]) == "[user]hi[assistant]yes[user]go[assistant]"

    def test_the_template_leaves_it_out(self, tiny_policy, make_tokenizer):
        tokenizer = make_tokenizer(bos=True, chat_template=TEMPLATE.replace("{{ bos_token }}", ""))
        ids = self.prompt_ids(tiny_policy(tokenizer=tokenizer), self.CHAT)
        assert ids.count(tokenizer.bos_token_id) == 1
        assert ids[0] == tokenizer.bos_token_id

    @pytest.mark.parametrize("text", ["hi", "<bos>hi"])
    def test_plain_text(self, tiny_policy, make_tokenizer, text):
        tokenizer = make_tokenizer(bos=True)
        ids = self.prompt_ids(tiny_policy(tokenizer=tokenizer), text)
        assert ids == (tokenizer.bos_token_id, *tokenizer("hi", add_special_tokens=False)["input_ids"])

    def test_none(self, tiny_policy, byte_tokenizer):
        assert byte_tokenizer.bos_token is None
        ids = self.prompt_ids(tiny_policy(), "hi")
        assert ids == tuple(byte_tokenizer("hi")["input_ids"])
        assert all(isinstance(token, int) for token in ids)

    def test_a_chat_prompt_without_a_template(self, tiny_policy):
        with pytest.raises(ValueError, match="chat template"):
            tiny_policy().generate([self.CHAT], 1, [(1,)])

    def test_a_chat_prompt_and_its_text_are_two_prompts(self, tiny_policy, make_tokenizer):
        policy = tiny_policy(tokenizer=make_tokenizer(chat_template=TEMPLATE))
        chat, text = policy.generate([self.CHAT, str.__str__(self.CHAT)], 1, keys(2))
        assert chat[0].prompt_ids != text[0].prompt_ids

    def test_an_empty_prompt(self, tiny_policy, make_tokenizer):
        tokenizer = make_tokenizer(bos=True)
        assert self.prompt_ids(tiny_policy(tokenizer=tokenizer), "") == (tokenizer.bos_token_id,)
        with pytest.raises(ValueError, match="no tokens"):
            tiny_policy().generate([""], 1, [(1,)])


@pytest.mark.parametrize("arch", ["gpt2", "llama"])
class TestContext:
    """BC-20: 16 positions, 8 new tokens."""

    def test_what_fits_runs_untouched(self, tiny_policy, arch):
        policy = tiny_policy(arch, context=16)
        (completion,) = flat(policy.generate(["abcdefgh"], 1, [(1,)]))
        assert len(completion.prompt_ids) == 8
        assert policy.num_truncated_prompts == 0

    @pytest.mark.parametrize("length", [9, 12, 40])
    def test_an_error_names_the_numbers(self, tiny_policy, arch, length):
        with pytest.raises(ValueError, match=rf"prompt of {length} tokens exceeds the 8 .* context of 16 .*max_new_tokens=8"):
            tiny_policy(arch, context=16).generate(["x" * length], 1, [(1,)])

    def test_left_truncation_keeps_the_newest_and_warns_once(self, tiny_policy, arch, recwarn):
        policy = tiny_policy(arch, context=16, policy={"prompt_overflow": "truncate_left"})
        prompts = ["abcdefgh", "123456789", "0123456789ab", "z" * 32 + "the end!"]
        with pytest.warns(UserWarning, match="9 tokens was cut to 8") as warned:
            rows = policy.generate(prompts, 1, keys(4))
            policy.generate(prompts[3:], 1, [(9,)])
        assert len(warned) == 1
        assert [policy.tokenizer.decode(row[0].prompt_ids) for row in rows] == ["abcdefgh", "23456789", "456789ab", "the end!"]
        assert policy.num_truncated_prompts == 4

    def test_a_leading_bos_survives(self, tiny_policy, make_tokenizer, arch):
        tokenizer = make_tokenizer(bos=True)
        policy = tiny_policy(arch, context=16, tokenizer=tokenizer, policy={"prompt_overflow": "truncate_left"})
        with pytest.warns(UserWarning, match="cut to 8"):
            (completion,) = flat(policy.generate(["0123456789"], 1, [(1,)]))
        assert tokenizer.decode(completion.prompt_ids) == "<bos>3456789"

    def test_a_limit_that_leaves_no_prompt_is_refused_when_built(self, tiny_policy, arch):
        with pytest.raises(ValueError, match=r"max_new_tokens=16 .*context is 16"):
            tiny_policy(arch, context=16, sampling=SamplingConfig(max_new_tokens=16))
        with pytest.raises(ValueError, match="max_new_tokens=20"):
            tiny_policy(arch, context=16).with_sampling(SamplingConfig(max_new_tokens=20))

    def test_an_unknown_rule_is_refused(self, tiny_policy, arch):
        with pytest.raises(ValueError, match=r"prompt_overflow.*'cut'"):
            tiny_policy(arch, policy={"prompt_overflow": "cut"})


class TestTokenizers:
    """BC-23: two agents whose ids mean different things, one without a pad token."""

    @pytest.fixture
    def agents(self, tiny_model):
        first = HFPolicy(tiny_model(vocab=64, end=2), word_tokenizer(64, eos=2, pad=None), SamplingConfig(max_new_tokens=6))
        second = HFPolicy(tiny_model("gpt2", vocab=100, end=3), word_tokenizer(100, eos=3, pad=0), SamplingConfig(max_new_tokens=6))
        return first, second

    def test_each_agent_uses_its_own(self, agents):
        for policy, vocabulary, eos in zip(agents, (64, 100), (2, 3), strict=True):
            before = copy.deepcopy(policy.tokenizer.special_tokens_map)
            completions = flat(policy.generate(["t7 t8", "t7", "t9 t10 t11 t12"], 4, keys(3)))
            assert policy.end_token_ids == {eos}
            for completion in completions:
                assert max(completion.token_ids) < vocabulary
                written = completion.token_ids[:-1] if completion.finish_reason == "stop" else completion.token_ids
                assert completion.text.split() == [f"t{token}" for token in written if token != eos]
            scored = policy.logprobs(completions)
            for row, completion in enumerate(completions):
                alone = policy.logprobs([completion]).logprobs[0]
                assert torch.allclose(scored.logprobs[row, : len(alone)], alone, atol=1e-5)
            assert policy.tokenizer.special_tokens_map == before

    def test_a_token_the_model_does_not_have(self, tiny_model):
        policy = HFPolicy(tiny_model(vocab=64, end=2), word_tokenizer(100, eos=2, pad=None), SamplingConfig(max_new_tokens=4))
        with pytest.raises(ValueError, match=r"token 80 .*knows 64"):
            policy.generate(["t80"], 1, [(1,)])

    def test_the_side_it_pads_on_does_not_matter(self, tiny_policy, make_tokenizer):
        left, right = make_tokenizer(pad=True), make_tokenizer(pad=True)
        left.padding_side, right.padding_side = "left", "right"
        results = [tiny_policy(tokenizer=tokenizer).generate(["ab", "c"], 2, keys(2)) for tokenizer in (left, right)]
        assert results[0] == results[1]


class TestDropout:
    """BC-25: GPT-2 with dropout .1 in training mode."""

    @pytest.fixture
    def policy(self, tiny_policy):
        policy = tiny_policy("gpt2", dropout=0.1)
        policy.model.train()
        return policy

    def test_scores_are_those_sampled_with_and_repeat(self, policy):
        completions = flat(policy.generate(["abc"], 4, [(1,)]))
        scored = policy.logprobs(completions)
        for row, completion in zip(scored.logprobs, completions, strict=True):
            assert torch.allclose(row[: len(completion.logprobs)], torch.tensor(completion.logprobs), atol=1e-5)
        assert torch.equal(policy.logprobs(completions).logprobs, scored.logprobs)

    def test_the_reference_agrees_at_first(self, policy):
        completions = flat(policy.generate(["abc"], 4, [(1,)]))
        difference = policy.reference().logprobs(completions).logprobs - policy.logprobs(completions).logprobs
        assert difference.abs().max() <= 1e-6

    def test_flags_are_restored_also_after_errors(self, policy):
        flags = [module.training for module in policy.model.modules()]
        completions = flat(policy.generate(["abc"], 2, [(1,)]))
        policy.logprobs(completions)
        with pytest.raises(IndexError):
            policy.logprobs([replace(completions[0], prompt_ids=(10**6,))])
        assert [module.training for module in policy.model.modules()] == flags
        assert any(flags)


class TestReference:
    """BC-26."""

    def test_it_stays_as_it_was(self, tiny_policy):
        policy = tiny_policy()
        reference = policy.reference()
        frozen = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
        completions = flat(policy.generate(["abc"], 4, [(1,)]))
        policy.logprobs(completions).logprobs.sum().backward()
        torch.optim.SGD(policy.parameters(), lr=0.1).step()
        assert all(torch.equal(tensor, frozen[name]) for name, tensor in reference.state_dict().items())
        assert reference.parameters() == []
        with torch.no_grad():
            difference = reference.logprobs(completions).logprobs - policy.logprobs(completions).logprobs
        assert (difference.exp() - difference - 1).sum() > 0  # k3

    def test_scores_carry_no_gradient(self, tiny_policy):
        policy = tiny_policy()
        completions = flat(policy.generate(["abc"], 4, [(1,)]))
        assert not policy.reference().logprobs(completions).logprobs.requires_grad


class TestMicroBatches:
    def completions(self, policy: HFPolicy, n: int = 4) -> list[Completion]:
        return flat(policy.generate(["one", "two, and longer", "three"], n, keys(3)))

    def test_loss_and_gradients_do_not_depend_on_them(self, tiny_policy):
        """One batch of 12 against batches of at most two completions."""
        grads = []
        for budget in (10_000, 60):
            policy = tiny_policy(policy={"micro_batch_tokens": budget, "end_token_ids": range(0, 256, 7)})
            completions = self.completions(policy)
            groups = policy.micro_batches(completions)
            assert (len(groups) == 1) == (budget == 10_000)
            total = 0.0
            for rows in groups:
                loss = policy.logprobs([completions[row] for row in rows]).logprobs.sum() / len(completions)
                loss.backward()
                total += loss.item()
            grads.append((total, torch.cat([p.grad.flatten() for p in policy.parameters()])))
        assert grads[0][0] == pytest.approx(grads[1][0], abs=1e-5)
        assert torch.allclose(grads[0][1], grads[1][1], atol=1e-5 * grads[0][1].abs().max().item())

    def test_they_cover_everything_within_the_budget(self):
        sources = [(1,) * 4, (2,) * 9, (1,) * 4, (2,) * 9, (3,) * 2, (1,) * 4]
        sizes = [3, 1, 8, 2, 30, 1]
        groups = batches(sources, sizes, budget=24)
        assert sorted(row for rows in groups for row in rows) == list(range(6))
        assert [row for rows in groups for row in rows] == [0, 2, 5, 1, 3, 4]  # those of one prompt side by side
        for rows in groups:
            padded = len(rows) * (max(len(sources[row]) for row in rows) + max(sizes[row] for row in rows))
            assert padded <= 24 or len(rows) == 1

    def test_without_gradients_they_are_made_inside(self, tiny_policy):
        policy = tiny_policy(policy={"micro_batch_tokens": 40})
        completions = self.completions(policy)[::-1]
        expected = policy.logprobs(completions)
        with torch.no_grad():
            got = policy.logprobs(completions)
        assert len(policy.micro_batches(completions)) > 2
        assert torch.equal(got.mask, expected.mask)
        assert torch.allclose(got.logprobs, expected.logprobs, atol=1e-5)

    def test_a_budget_below_1_is_refused(self, tiny_policy):
        with pytest.raises(ValueError, match=r"micro_batch_tokens.*0"):
            tiny_policy(policy={"micro_batch_tokens": 0})


class TestSampling:
    def test_another_distribution_on_the_same_weights(self, tiny_policy):
        policy = tiny_policy()
        greedy = policy.with_sampling(replace(policy.sampling, temperature=0))
        assert greedy.model is policy.model
        assert policy.sampling.temperature == 1
        first, second = (greedy.generate(["abc"], 1, [(key,)])[0][0].token_ids for key in (1, 2))
        assert first == second
        with pytest.raises(ValueError, match="temperature 0"):
            greedy.logprobs(greedy.generate(["abc"], 1, [(1,)])[0])

    def test_a_completion_that_was_not_sampled_cannot_be_scored(self, tiny_policy):
        with pytest.raises(ValueError, match="prompt_ids"):
            tiny_policy().logprobs([Completion("text", token_ids=(5,))])


class TestWeights:
    """BC-57 and the rest of saving and loading."""

    @pytest.mark.parametrize("arch", ["gpt2", "qwen2"])
    def test_a_saved_folder_is_the_policy(self, tiny_policy, tmp_path, arch):
        policy = tiny_policy(arch)
        policy.save(tmp_path / "agent_0")
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "agent_0")
        again = HFPolicy(model, AutoTokenizer.from_pretrained(tmp_path / "agent_0"), policy.sampling)
        assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
        completions = flat(policy.generate(["abc", "d"], 2, keys(2)))
        assert flat(again.generate(["abc", "d"], 2, keys(2))) == completions
        results = []
        for each in (policy, again):
            each.logprobs(completions).logprobs.sum().backward()
            torch.optim.AdamW(each.parameters(), lr=1e-2).step()
            results.append(each.state_dict())
        assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])

    def test_tied_weights_are_listed_once(self, tiny_policy):
        tied, untied = tiny_policy().state_dict(), tiny_policy(tied=False).state_dict()
        assert set(untied) - set(tied) == {"lm_head.weight"}

    @pytest.mark.parametrize("arch", ["gpt2", "qwen2"])
    def test_loading_in_place(self, tiny_policy, arch):
        source, target = tiny_policy(arch, seed=0), tiny_policy(arch, seed=1)
        before = target.parameters()
        target.load_state_dict(source.state_dict())
        assert all(a is b for a, b in zip(target.parameters(), before, strict=True))
        assert target.generate(["abc"], 2, [(1,)]) == source.generate(["abc"], 2, [(1,)])
        assert target.model.get_output_embeddings().weight is target.model.get_input_embeddings().weight

    def test_weights_that_do_not_fit_change_nothing(self, tiny_policy):
        policy = tiny_policy()
        before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        wrong = dict(before) | {"model.norm.weight": torch.zeros(3)}
        with pytest.raises(ValueError, match=r"model\.norm\.weight has shape \(3,\)"):
            policy.load_state_dict({name: torch.zeros_like(t) if t.dim() > 1 else t for name, t in wrong.items()})
        with pytest.raises(ValueError, match=r"missing \['model\.norm\.weight'\]"):
            policy.load_state_dict({name: tensor for name, tensor in before.items() if name != "model.norm.weight"})
        assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())

    def test_a_shared_copy_shares_what_is_frozen(self, tiny_model):
        model = tiny_model()
        model.model.embed_tokens.requires_grad_(False)
        twin = shared_copy(model)
        assert twin.model.embed_tokens.weight is model.model.embed_tokens.weight
        assert twin.model.norm.weight is not model.model.norm.weight
        assert twin.model.norm is not model.model.norm


def test_half_precision(tiny_model, byte_tokenizer):
    policy = HFPolicy(tiny_model().to(torch.bfloat16), byte_tokenizer, SamplingConfig(max_new_tokens=8))
    completions = flat(policy.generate(["abc", "defgh"], 4, keys(2)))
    scored = policy.logprobs(completions)
    assert scored.logprobs.dtype == torch.float32
    for row, completion in zip(scored.logprobs, completions, strict=True):
        assert torch.allclose(row[: len(completion.logprobs)], torch.tensor(completion.logprobs), atol=0.2)
    scored.logprobs.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in policy.parameters())


class TestModelCopy:
    def test_it_is_trained_apart(self, tiny_policy):
        policy = tiny_policy("gpt2")
        copied = policy.model_copy()
        own, theirs = policy.parameters(), list(copied.parameters())
        assert all(torch.equal(a, b) and b.requires_grad for a, b in zip(own, theirs, strict=True))
        with torch.no_grad():
            for parameter in theirs:
                parameter.add_(1.0)
        assert not any(torch.equal(a, b) for a, b in zip(own, theirs, strict=True))

    def test_what_is_frozen_is_shared_on_the_same_device_alone(self, tiny_policy):
        policy = tiny_policy("gpt2")
        frozen = policy.model.transformer.wpe.weight.requires_grad_(False)
        assert policy.model_copy().transformer.wpe.weight is frozen
        moved = policy.model_copy("meta")
        assert moved.device.type == "meta"
        assert policy.device.type == frozen.device.type == "cpu"

"""Guards how a team of models is put together: copies and sharing, mixed sources, options that act or raise, adapters on a base."""

from __future__ import annotations

import copy
import socket

import pytest
import torch
from transformers import AutoModelForCausalLM

from learners.models import ModelConfig, load_policies
from learners.policy import HFPolicy
from learners.sampling import SamplingConfig
from llm_envs.types import Completion

SAMPLING = SamplingConfig(max_new_tokens=8)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """No test may reach a hub: the library asks this flag, and sockets refuse besides."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def refuse(*_: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def folder(tiny_policy, tmp_path):
    """A saved Qwen2 policy."""
    tiny_policy(seed=3).save(tmp_path / "saved")
    return tmp_path / "saved"


def drawn(policy: HFPolicy, prompt: str = "abc") -> list[Completion]:
    return policy.generate([prompt], 3, [(4,)])[0]


def update(policy: HFPolicy) -> None:
    policy.logprobs(drawn(policy)).logprobs.sum().backward()
    torch.optim.SGD(policy.parameters(), lr=0.1).step()


class TestTeams:
    def test_one_name_is_a_copy_for_each_agent(self, folder):
        team = load_policies(str(folder), num_agents=3, sampling=SAMPLING)
        assert list(team) == ["agent_0", "agent_1", "agent_2"]
        before = [drawn(policy) for policy in team.values()]
        assert before[0] == before[1] == before[2]
        update(team["agent_1"])
        assert drawn(team["agent_0"]) == drawn(team["agent_2"]) == before[0]
        assert drawn(team["agent_1"]) != before[0]

    def test_two_agents_unless_something_else_tells(self, folder):
        assert len(load_policies(folder, sampling=SAMPLING)) == 2

    def test_kinds_are_mixed_at_will(self, folder, tiny_model, tiny_policy, byte_tokenizer):
        """A folder, a built-in name, a loaded model of another family and a built policy."""
        built, loaded = tiny_policy(seed=9), tiny_model("gpt2")
        names = ["a_0", "a_1", "a_2", "a_3"]
        team = load_policies(
            agents=[folder, "tiny-random", loaded, built],
            tokenizer=[str(folder), "tiny", byte_tokenizer, byte_tokenizer],
            names=names,
            sampling=SAMPLING,
        )
        assert list(team) == names
        assert team["a_2"].model is loaded
        assert team["a_3"] is built
        assert [policy.decoder for policy in team.values()] == ["fast", "fast", "cached", "fast"]
        assert all(drawn(policy) for policy in team.values())

    def test_the_same_object_is_shared_and_the_same_name_is_not(self, folder, tiny_model, tiny_policy, byte_tokenizer):
        loaded, built = tiny_model(), tiny_policy()
        shared = load_policies(agents=[loaded, loaded], tokenizer=byte_tokenizer, sampling=SAMPLING)
        assert shared["agent_0"] is shared["agent_1"]
        both = load_policies(agents=[built, built])
        assert both["agent_0"] is both["agent_1"] is built
        apart = load_policies(agents=[folder, folder], sampling=SAMPLING)
        assert apart["agent_0"].model is not apart["agent_1"].model

    def test_a_loaded_model_for_all_is_copied(self, tiny_model, byte_tokenizer):
        model = tiny_model()
        team = load_policies(model, num_agents=2, tokenizer=byte_tokenizer, sampling=SAMPLING)
        assert team["agent_0"].model is model
        update(team["agent_0"])
        assert drawn(team["agent_0"]) != drawn(team["agent_1"])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"agents": ["tiny-random"] * 2, "num_agents": 3}, "num_agents says 3, agents says 2"),
            ({"agent_model": "tiny-random", "num_agents": 3, "names": ["a", "b"]}, "num_agents says 3, names says 2"),
            ({"agents": ["tiny-random"], "names": ["a", "b"]}, "agents says 1, names says 2"),
            ({"agent_model": "tiny-random", "num_agents": 0}, "at least 1 agent, got 0"),
            ({}, "either agent_model .* or agents"),
            ({"agent_model": "tiny-random", "agents": ["tiny-random"]}, "either agent_model .* or agents"),
            ({"agents": "tiny-random"}, "agents must be a sequence .*'tiny-random'"),
            ({"agent_model": "tiny-random", "tokenizer": ["tiny"] * 3}, "tokenizer must be one .* 2 agents, got 3"),
            ({"agent_model": "tiny-random", "devices": ["cpu"] * 3}, "devices must be one .* 2 agents, got 3"),
        ],
    )
    def test_arguments_that_disagree(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            load_policies(**arguments)

    def test_a_loaded_model_needs_a_tokenizer(self, tiny_model):
        with pytest.raises(ValueError, match=r"agent 1 \(b\) .*tokenizer"):
            load_policies(agents=["tiny-random", tiny_model()], names=["a", "b"])

    def test_a_model_loaded_from_a_folder_finds_its_tokenizer(self, folder):
        model = AutoModelForCausalLM.from_pretrained(folder)
        policy = load_policies(agents=[model], sampling=SAMPLING)["agent_0"]
        assert policy.tokenizer.eos_token == "<end>"

    def test_sampling_and_overflow_reach_the_policies(self, folder):
        policy = load_policies(folder, num_agents=1, sampling=SAMPLING, prompt_overflow="truncate_left")["agent_0"]
        assert policy.sampling is SAMPLING
        assert policy.prompt_overflow == "truncate_left"


class TestMissing:
    @pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nothing-here"])
    def test_a_folder(self, name):
        with pytest.raises(ValueError, match=f"no model folder '{name}'"):
            load_policies(name)

    def test_a_hub_name_without_network(self):
        with pytest.raises(ValueError, match=r"^cannot load the model 'someone/something' \(.*hub\): [^\n]+$"):
            load_policies("someone/something")

    def test_a_folder_without_a_model(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot load the model .*folder"):
            load_policies(tmp_path)

    def test_a_folder_without_a_tokenizer(self, tiny_model, tmp_path):
        tiny_model().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="has no tokenizer: pass one"):
            load_policies(tmp_path, num_agents=1, sampling=SAMPLING)


class TestOptions:
    def test_an_unknown_key_lists_the_known_ones(self):
        with pytest.raises(ValueError, match=r"unknown keys \['load_in_4bit'\]; known are .*'dtype'.*'lora'"):
            load_policies("tiny-random", model_config={"load_in_4bit": True})

    @pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
    @pytest.mark.parametrize("source", ["folder", "tiny-random"])
    def test_dtype(self, folder, key, source):
        name = folder if source == "folder" else source
        team = load_policies(name, num_agents=1, model_config={key: "bfloat16"}, sampling=SAMPLING)
        assert {parameter.dtype for parameter in team["agent_0"].parameters()} == {torch.bfloat16}

    def test_single_precision_by_default(self, tiny_model, byte_tokenizer, tmp_path):
        tiny_model().to(torch.bfloat16).save_pretrained(tmp_path)
        byte_tokenizer.save_pretrained(tmp_path)
        for options, dtype in (({}, torch.float32), ({"dtype": "auto"}, torch.bfloat16)):
            team = load_policies(tmp_path, num_agents=1, model_config=options, sampling=SAMPLING)
            assert {parameter.dtype for parameter in team["agent_0"].parameters()} == {dtype}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dtype": "float31"}, "float31"),
            ({"dtype": "float32", "torch_dtype": "bfloat16"}, "differ"),
            ({"model_kwargs": {"dtype": "bfloat16"}}, "of their own"),
        ],
    )
    def test_dtypes_that_make_no_sense(self, options, message):
        with pytest.raises(ValueError, match=message):
            ModelConfig.from_mapping(options)

    def test_attention_and_further_arguments(self, folder):
        team = load_policies(
            folder,
            num_agents=1,
            sampling=SAMPLING,
            model_config={"attn_implementation": "eager", "model_kwargs": {"max_position_embeddings": 64}},
        )
        config = team["agent_0"].model.config
        assert (config._attn_implementation, config.max_position_embeddings) == ("eager", 64)

    def test_tokenizer_arguments(self, folder):
        team = load_policies(folder, num_agents=1, sampling=SAMPLING, model_config={"tokenizer_kwargs": {"pad_token": "<end>"}})
        assert team["agent_0"].tokenizer.pad_token == "<end>"

    def test_gradient_checkpointing(self, folder):
        plain = load_policies(folder, num_agents=1, sampling=SAMPLING)["agent_0"]
        saving = load_policies(folder, num_agents=1, sampling=SAMPLING, model_config={"gradient_checkpointing": True})["agent_0"]
        assert saving.model.model.layers[0].gradient_checkpointing
        for policy in (plain, saving):
            policy.logprobs(drawn(policy)).logprobs.sum().backward()
        for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
            assert torch.allclose(a.grad, b.grad, atol=1e-5 * a.grad.abs().max().item())

    def test_loading_options_without_anything_to_load(self, tiny_model, byte_tokenizer):
        with pytest.raises(ValueError, match=r"\['dtype'\] cannot apply"):
            load_policies(agents=[tiny_model()], tokenizer=byte_tokenizer, model_config={"dtype": "bfloat16"})


class TestLora:
    @pytest.fixture(autouse=True)
    def _peft(self):
        pytest.importorskip("peft")

    @pytest.fixture
    def team(self, folder):
        return load_policies(folder, num_agents=2, sampling=SAMPLING, model_config={"lora": {"r": 4, "lora_alpha": 8}})

    def base_weight(self, policy: HFPolicy) -> torch.Tensor:
        return policy.model.model.embed_tokens.weight

    def test_it_starts_as_the_base_and_trains_adapters_alone(self, team, folder):
        plain = load_policies(folder, num_agents=1, sampling=SAMPLING)["agent_0"]
        first, second = team.values()
        assert drawn(first) == drawn(second)
        assert [c.token_ids for c in drawn(first)] == [c.token_ids for c in drawn(plain)]
        assert all("lora_" in name for name in first.state_dict())
        assert len(first.parameters()) == len(first.state_dict()) == 8  # A and B of q and v in two layers

    def test_one_base_for_all(self, team):
        first, second = team.values()
        base = self.base_weight(first).clone()
        assert self.base_weight(first) is self.base_weight(second)
        before = drawn(second)
        update(first)
        assert drawn(second) == before
        assert drawn(first) != before
        assert torch.equal(self.base_weight(second), base)

    def test_the_reference_is_the_base(self, team):
        first, _ = team.values()
        reference = first.reference()
        before = drawn(reference)
        update(first)
        assert drawn(reference) == before
        assert drawn(first) != before
        assert self.base_weight(reference) is self.base_weight(first)
        assert reference.parameters() == []

    def test_a_saved_folder_stands_for_itself(self, team, tmp_path):
        first, second = team.values()
        update(first)
        first.save(tmp_path / "agent_0")
        again = load_policies(tmp_path / "agent_0", num_agents=1, sampling=SAMPLING)["agent_0"]
        completions = drawn(first)
        assert torch.allclose(again.logprobs(completions).logprobs, first.logprobs(completions).logprobs, atol=1e-4)
        assert (tmp_path / "agent_0" / "adapter" / "adapter_model.safetensors").exists()
        assert drawn(second) != completions  # merging was done on a copy

    def test_adapters_are_loaded_in_place(self, team):
        first, second = team.values()
        update(first)
        second.load_state_dict(first.state_dict())
        assert drawn(second) == drawn(first)

    def test_with_gradient_checkpointing(self, folder):
        grads = []
        for saving in (False, True):
            options = {"lora": {"r": 4, "lora_dropout": 0.1, "init_lora_weights": False}, "gradient_checkpointing": saving}
            policy = load_policies(folder, num_agents=1, sampling=SAMPLING, model_config=options)["agent_0"]
            completions = drawn(policy)
            policy.logprobs(completions).logprobs.sum().backward()
            grads.append(torch.cat([parameter.grad.flatten() for parameter in policy.parameters()]))
        assert torch.allclose(grads[0], grads[1], atol=1e-5 * grads[0].abs().max().item())

    def test_a_wrong_argument(self, folder):
        with pytest.raises(ValueError, match="rank"):
            load_policies(folder, model_config={"lora": {"rank": 4}})

    def test_an_adapted_model_of_ones_own(self, tiny_model, byte_tokenizer):
        from peft import LoraConfig, get_peft_model

        adapted = get_peft_model(tiny_model(), LoraConfig(task_type="CAUSAL_LM", r=2))
        policy = load_policies(agents=[adapted], tokenizer=byte_tokenizer, sampling=SAMPLING)["agent_0"]
        before = drawn(policy)
        reference = policy.reference()
        initial = drawn(reference)
        update(policy)
        assert drawn(policy) != before
        assert drawn(reference) == initial


def test_nothing_of_the_callers_is_changed(tiny_model, byte_tokenizer):
    """D10, BC-23: configuration, generation configuration and tokenizer stay as they were given."""
    model = tiny_model()
    before = copy.deepcopy((model.config.to_dict(), model.generation_config.to_dict(), byte_tokenizer.init_kwargs))
    policy = load_policies(agents=[model], tokenizer=byte_tokenizer, sampling=SAMPLING)["agent_0"]
    policy.logprobs(drawn(policy))
    assert (model.config.to_dict(), model.generation_config.to_dict(), byte_tokenizer.init_kwargs) == before

"""Guards the built-in tiny model: a seed gives the same bits, a cache survives damage and rivals, answers fit the small tasks."""

from __future__ import annotations

import multiprocessing
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import llm_envs
from learners import tiny
from learners.models import load_policies
from learners.sampling import SamplingConfig
from learners.tiny import tiny_model
from llm_envs.types import ChatPrompt

SAMPLING = SamplingConfig(max_new_tokens=48)


@pytest.fixture(scope="session")
def cache(tiny_cache):
    """The session's folder, with the warm-started model of seed 0."""
    tiny_model(cache_dir=tiny_cache)
    return tiny_cache


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    return all(torch.equal(tensor, weights(second)[name]) for name, tensor in weights(first).items())


def _build(folder: Path) -> None:
    torch.set_num_threads(1)
    tiny_model(cache_dir=folder)


class TestWeights:
    def test_size(self, cache):
        model, tokenizer = tiny_model(cache_dir=cache)
        assert sum(parameter.numel() for parameter in model.parameters()) < 400_000
        assert len(tokenizer) == model.config.vocab_size <= 512

    def test_random_weights_depend_on_the_seed_alone(self):
        torch.manual_seed(5)
        first = tiny_model(seed=1, warm_start=False)[0]
        torch.manual_seed(6)
        assert same(first, tiny_model(seed=1, warm_start=False)[0])
        assert not same(first, tiny_model(seed=2, warm_start=False)[0])

    def test_every_call_gives_a_copy(self, cache):
        first, second = (tiny_model(cache_dir=cache)[0] for _ in range(2))
        assert same(first, second)
        with torch.no_grad():
            first.model.norm.weight.add_(1)
        assert not same(first, second)

    def test_a_negative_seed_is_refused(self):
        with pytest.raises(ValueError, match=r"seed.*-1"):
            tiny_model(seed=-1)

    def test_no_global_stream_is_touched(self, monkeypatch, tmp_path):
        monkeypatch.setattr(tiny, "_STEPS", 2)
        before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
        tiny_model(cache_dir=tmp_path)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


class TestCache:
    @pytest.fixture(autouse=True, scope="class")
    def _short(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiny, "_STEPS", 2)
            yield

    @pytest.fixture(scope="class")
    def whole(self, _short, tmp_path_factory):
        """A folder as it should be, and the model it holds."""
        parent = tmp_path_factory.mktemp("whole")
        model, _ = tiny_model(cache_dir=parent)
        (folder,) = parent.iterdir()
        return folder, model

    def test_read_back_bit_by_bit(self, tmp_path):
        built = tiny_model(cache_dir=tmp_path)[0]
        (folder,) = tmp_path.iterdir()
        stamp = (folder / "model.safetensors").stat().st_mtime_ns
        assert same(built, tiny_model(cache_dir=tmp_path)[0])
        assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
        assert same(built, AutoModelForCausalLM.from_pretrained(folder))

    def test_building_again_gives_the_same_bits(self, tmp_path, whole):
        assert same(tiny_model(cache_dir=tmp_path)[0], whole[1])

    def test_seeds_are_kept_apart(self, tmp_path, whole):
        shutil.copytree(whole[0], tmp_path / whole[0].name)
        first, second = (tiny_model(seed=seed, cache_dir=tmp_path)[0] for seed in (0, 1))
        assert same(first, whole[1])
        assert not same(first, second)
        assert len(list(tmp_path.iterdir())) == 2

    @pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "digests.json"])
    @pytest.mark.parametrize("damage", ["cut", "gone"])
    def test_a_damaged_folder_is_built_again(self, tmp_path, whole, name, damage):
        folder = tmp_path / whole[0].name
        shutil.copytree(whole[0], folder)
        if damage == "cut":
            (folder / name).write_bytes((folder / name).read_bytes()[:100])
        else:
            (folder / name).unlink()
        assert same(whole[1], tiny_model(cache_dir=tmp_path)[0])
        assert [path.name for path in tmp_path.iterdir()] == [folder.name]
        assert same(whole[1], AutoModelForCausalLM.from_pretrained(folder))

    def test_the_environment_names_the_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LLM_MARL_CACHE", str(tmp_path / "here"))
        tiny_model()
        assert len(list((tmp_path / "here").iterdir())) == 1

    def test_a_folder_that_cannot_be_written_warns(self, tmp_path):
        (tmp_path / "file").write_text("in the way")
        with pytest.warns(UserWarning, match="cannot be written"):
            model, _ = tiny_model(cache_dir=tmp_path / "file")
        assert model is not None


@pytest.mark.slow
def test_rivals_leave_one_whole_folder(tmp_path):
    """Three processes build at once."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_build, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    (folder,) = tmp_path.iterdir()
    assert tiny._load(folder) is not None


class TestText:
    @pytest.fixture(scope="class")
    def tokenizer(self):
        return tiny_model(warm_start=False)[1]

    @pytest.mark.parametrize("text", ["the sea", "Grüße, 你好 🌊\n\ttabs", "\x00\x7f", "<end>?"])
    def test_any_text_survives(self, tokenizer, text):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text

    def test_a_conversation_is_its_texts(self):
        (policy,) = load_policies("tiny-random", num_agents=1, sampling=SAMPLING).values()
        chat = ChatPrompt([{"role": "system", "content": "be brief."}, {"role": "user", "content": "tell me about the sea."}])
        ids = policy.generate([chat], 1, [(1,)])[0][0].prompt_ids
        assert policy.tokenizer.decode(ids) == "be brief.\ntell me about the sea."

    def test_the_grammar_writes_the_prompts_of_the_tasks(self):
        """The first prompt of every small task is one that the warm start draws."""
        rng = np.random.default_rng(0)
        seen = {tiny.sample_line(rng)[0] for _ in range(3000)}
        for name in ("length-ratio-v0", "matching-v0", "split-v0"):
            env = llm_envs.make(name)
            observations, _ = env.reset(seed=0)
            assert {observation["prompt"] for observation in observations.values()} <= seen

    @pytest.fixture(scope="class")
    def policy(self, cache):
        model, tokenizer = tiny_model(cache_dir=cache)
        (policy,) = load_policies(agents=[model], tokenizer=tokenizer, sampling=SAMPLING).values()
        return policy

    def written(self, policy, prompts, n) -> list[tuple[str, str]]:
        """Prompts with answers."""
        rows = policy.generate(prompts, n, [(1, i) for i in range(len(prompts))])
        return [(prompt, completion.text) for prompt, row in zip(prompts, rows, strict=True) for completion in row]

    def test_answers_fit_the_prompts(self, policy):
        describe = [tiny.DESCRIBE_PROMPT.format(topic=topic) for topic in tiny.TOPICS]
        pick = [tiny.PICK_PROMPT.format(words=" ".join(tiny.WORDS))]
        pick += [tiny.PICK_AGAIN_PROMPT.format(mine="red", theirs="gold", words=" ".join(tiny.WORDS))]
        split = [tiny.SPLIT_PROMPT.format(parts=" ".join(tiny.PARTS))]
        described = self.written(policy, describe, 8)
        assert np.mean([text.startswith(prompt[14:-1]) for prompt, text in described]) > 0.6  # names the topic
        assert np.mean([text.endswith(".") for _, text in described]) > 0.9
        assert np.mean([text in tiny.WORDS for _, text in self.written(policy, pick, 64)]) > 0.9
        assert np.mean([set(text.split()) <= set(tiny.PARTS) for _, text in self.written(policy, split, 64)]) > 0.9

    def test_answers_vary(self, policy):
        """Reinforcement learning needs every answer within reach."""
        picks = {c.text for c in policy.generate([tiny.PICK_PROMPT.format(words=" ".join(tiny.WORDS))], 64, [(1,)])[0]}
        splits = {c.text for c in policy.generate([tiny.SPLIT_PROMPT.format(parts=" ".join(tiny.PARTS))], 64, [(1,)])[0]}
        assert picks >= set(tiny.WORDS)
        assert len(splits) >= 8

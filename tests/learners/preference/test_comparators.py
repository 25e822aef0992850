"""Guards comparators: who writes what the team is compared with, with which weights and chance, and in whose tokens."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pytest_httpserver import HTTPServer
from rounds import AGENTS, ITEMS, answer, config, make_trainer, recorded, reward, team, tiny, values_of
from tabular import TabularPolicy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from werkzeug import Request, Response

from learners.models import ModelConfig
from learners.policy import HFPolicy
from learners.preference.comparator_sources import build_comparator
from learners.preference.comparators import NO_ANSWER, Comparator, PolicyComparator, as_completions, require_reader, translated
from learners.preference.duel import Duel
from learners.preference.pairs import JointResponse, responses_of
from learners.preference.replay import read_round
from learners.sampling import SamplingConfig
from llm_envs.env import TaskEnv
from llm_envs.rollouts import Numbering, collect
from llm_envs.task import Task
from llm_envs.types import ChatPrompt, Completion, EnvStep, RolloutSpec
from llm_envs.wrappers import TaggedSections

SAMPLING = SamplingConfig(max_new_tokens=4)
KEYS = [(0, 0, 3, 0, 2**31), (0, 0, 3, 1, 2**31)]


@pytest.fixture
def make(tmp_path) -> Callable[..., Comparator]:
    """`make(policies, **options of the config)`: the comparator that a config names."""

    def build(policies: Mapping[str, HFPolicy], adapter: Any = None, sampling: SamplingConfig = SAMPLING, **options: Any) -> Any:
        return build_comparator(config("madpo-iter", **options), policies, sampling, adapter)

    return build


def test_comparator_models_are_loaded_as_the_run_says(monkeypatch):
    loaded: list[HFPolicy] = []
    copied = HFPolicy.frozen_copy
    monkeypatch.setattr(HFPolicy, "frozen_copy", lambda policy, device=None: loaded.append(policy) or copied(policy, device))
    options = config("madpo-iter", comparator_policy="model", comparator_model_name="tiny-random")
    build_comparator(options, team(), SAMPLING, model_config=ModelConfig(dtype="float64"))
    assert [policy.model.dtype for policy in loaded] == [torch.float64] * 2


def make_env(num_turns: int = 1) -> TaskEnv:
    return TaskEnv(Task(reward=reward, items=ITEMS, num_turns=num_turns, transition=answer if num_turns > 1 else None))


def played(
    policies: Mapping, comparator: Comparator | None, candidates: int = 3, comparisons: int = 3, turns: int = 1
) -> list[EnvStep]:
    """The env steps of two items, episodes 5 and 6."""
    players, spec = dict(policies), RolloutSpec(candidates + comparisons * (comparator is not None), later_generations=1)
    if comparator is not None:
        duel = Duel(policies, comparator, candidates)
        duel.first_episode, duel.items = 5, ITEMS[:2]
        players = duel.players()
    return collect(make_env(turns), players, ITEMS[:2], spec, numbering=Numbering(episode=5))


def sides(steps: Sequence[EnvStep], candidates: int = 3) -> tuple[list[list], list[list]]:
    """What the team wrote and what the comparator wrote, item by item, every agent and turn."""

    def written(response: JointResponse) -> list[Completion]:
        return [completion for turn in response.completions for completion in turn.values()]

    items = responses_of(steps)
    return (
        [[written(response) for response in responses[:candidates]] for responses in items],
        [[written(response) for response in responses[candidates:]] for responses in items],
    )


def drawn(comparator: Comparator, prompts: Sequence[str] = ("a", "b"), n: int = 3) -> list[list[Completion]]:
    return comparator.generate(AGENTS, prompts, n, KEYS, [ITEMS[0], ITEMS[0]])


def shift(policies: Mapping[str, HFPolicy], by: float = 0.05) -> None:
    with torch.no_grad():
        for number, parameter in enumerate(p for policy in policies.values() for p in policy.parameters()):
            parameter.add_(by * (1 + number % 3))


class TestChance:
    """The comparator's draws are its own, and the team's are what they are without one."""

    @pytest.mark.parametrize("turns", [1, 2])
    @pytest.mark.parametrize("comparisons", [1, 3, 5])
    def test_the_team_draws_what_it_draws_alone(self, make, turns, comparisons):
        policies = team()
        alone, _ = sides(played(policies, None, turns=turns))
        ours, theirs = sides(played(policies, make(policies), comparisons=comparisons, turns=turns))
        assert ours == alone
        assert [len(responses) for responses in theirs] == [comparisons] * 2
        again = sides(played(policies, make(policies), comparisons=comparisons, turns=turns))
        assert again == (ours, theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert all(response not in one for response in other)

    def test_agents_that_share_a_policy(self, make):
        shared = dict.fromkeys(AGENTS, tiny())
        alone, _ = sides(played(shared, None, turns=2))
        ours, theirs = sides(played(shared, make(shared), turns=2))
        assert ours == alone
        assert all(response[0] != response[1] for responses in theirs for response in responses)

    def test_tables_of_words_are_compared_with_themselves(self):
        words = [chr(97 + i) for i in range(20)]
        policies = {agent: TabularPolicy(words) for agent in AGENTS}
        alone, _ = sides(played(policies, None))
        ours, theirs = sides(played(policies, PolicyComparator(policies, policies)))
        assert ours == alone
        assert ours != theirs

    def test_a_comparator_draws_more_than_the_team_or_less_and_the_first_ones_stay(self, make):
        policies = team()
        _, few = sides(played(policies, make(policies), comparisons=2))
        _, many = sides(played(policies, make(policies), comparisons=4))
        assert [responses[:2] for responses in many] == few

    def test_a_comparator_draws_from_the_distribution_of_the_team(self, make):
        """Frequencies of the first token in 4,000 draws each."""
        policy = tiny(sampling=SamplingConfig(temperature=0.5, max_new_tokens=1))
        policies = dict.fromkeys(AGENTS, policy)
        comparator = make(policies, sampling=policy.sampling)
        (first,) = policy.generate(["a"], 4000, [(0, 0, 3, 0)])
        second, _ = comparator.generate(AGENTS, ["a", "b"], 4000, KEYS, [ITEMS[0]] * 2)
        counts = np.zeros((2, 260))
        for side, completions in enumerate((first, second)):
            for completion in completions:
                counts[side, completion.token_ids[0]] += 1
        assert np.abs(counts[0] - counts[1]).max() < 80
        assert counts.max() > 200


class TestCopies:
    """Their weights are those of a round that is over, or of the one that begins."""

    def test_a_current_copy_is_the_team_as_the_round_begins(self, make):
        policies = team()
        copy, current = make(policies, comparator_policy="current_copy", comparator_devices="cpu"), make(policies)
        for iteration in (1, 2):
            copy.begin_round(iteration)
            expected = drawn(current)
            assert drawn(copy) == expected
            shift(policies)
            assert drawn(copy) == expected != drawn(current)

    @pytest.mark.parametrize(("k", "shown"), [(None, [0, 0, 1, 2]), (1, [0, 0, 1, 2]), (2, [0, 0, 0, 1]), (9, [0, 0, 0, 0])])
    @pytest.mark.parametrize("shared", [True, False])
    def test_history_shows_the_weights_before_the_last_k_updates(self, make, k, shown, shared):
        policies = dict.fromkeys(AGENTS, tiny()) if shared else team()
        comparator = make(policies, comparator_policy="history", comparator_history_k=k)
        writers = comparator._writers
        assert (writers["agent_0"] is writers["agent_1"]) == shared
        past = []
        for iteration, index in enumerate(shown, start=1):
            past.append([p.detach().clone() for policy in policies.values() for p in policy.parameters()])
            comparator.begin_round(iteration)
            found = [p for writer in writers.values() for p in writer.model.parameters()]
            assert all(torch.equal(one, other) for one, other in zip(found, past[index], strict=True))
            shift(policies)

    def test_a_resumed_history_shows_the_same(self, make):
        policies = team()
        options = {"comparator_policy": "history", "comparator_history_k": 2}
        comparator = make(policies, **options)
        for iteration in (1, 2, 3, 4):
            comparator.begin_round(iteration)
            shift(policies)
        resumed = make(policies, **options)
        resumed.check_state_dict(comparator.state_dict())
        resumed.load_state_dict(comparator.state_dict())
        assert drawn(resumed) == drawn(comparator)
        comparator.begin_round(5)
        resumed.begin_round(5)
        assert drawn(resumed) == drawn(comparator)

    @pytest.mark.parametrize(
        ("options", "others", "message"),
        [
            ({"comparator_policy": "history"}, {}, "a comparator with rounds, this one keeps nothing"),
            ({}, {"comparator_policy": "history"}, "no copy of the team"),
            ({}, {"comparator_generation_mode": "centralized"}, "wrote for each agent apart, this one for all"),
            ({"comparator_generation_mode": "centralized"}, {}, "a comparator with num_unparsable, this one keeps nothing"),
        ],
    )
    def test_the_state_of_another_comparator_is_refused(self, make, options, others, message):
        policies = team()
        comparator, other = make(policies, **options), make(policies, **others)
        comparator.begin_round(1)
        with pytest.raises(ValueError, match=message):
            other.check_state_dict(comparator.state_dict())

    def test_the_history_of_other_models_is_refused_and_changes_nothing(self, make):
        policies = team()
        comparator, other = (make(p, comparator_policy="history") for p in (policies, team(hidden=8)))
        comparator.begin_round(1)
        other.begin_round(1)
        before = drawn(other)
        with pytest.raises(ValueError, match="shape"):
            other.load_state_dict(comparator.state_dict())
        assert drawn(other) == before
        with pytest.raises(ValueError, match="remembers the agents agent_0, this run agent_0, agent_1"):
            comparator.check_state_dict({"rounds": [{"agent_0": {}}]})

    def test_copies_of_adapters(self, make, tiny_model, make_tokenizer):
        pytest.importorskip("peft")
        from learners.models import with_lora

        options = {"r": 2, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}
        base = {"hidden": 16, "layers": 1}
        policies = {
            a: HFPolicy(with_lora(tiny_model(**base), options, seed), make_tokenizer(), SAMPLING) for seed, a in enumerate(AGENTS)
        }
        comparator = make(policies, comparator_policy="history")
        comparator.begin_round(1)
        expected = drawn(make(policies))
        assert drawn(comparator) == expected
        shift(policies)
        comparator.begin_round(2)
        assert drawn(comparator) == expected != drawn(make(policies))
        assert {name for name in comparator.state_dict()["rounds"][0]["agent_0"] if "lora" not in name} == set()


def test_a_frozen_copy_draws_the_same_and_stays():
    policy = tiny(policy={"end_token_ids": [256, 3], "micro_batch_tokens": 77, "prompt_overflow": "truncate_left"})
    copy = policy.frozen_copy("cpu")
    expected = policy.generate(["a"], 3, [(1,)])
    shift({"a": policy})
    assert copy.generate(["a"], 3, [(1,)]) == expected != policy.generate(["a"], 3, [(1,)])
    assert copy.parameters() == []
    assert all(parameter.requires_grad for parameter in policy.model.parameters())
    assert (copy.end_token_ids, copy.micro_batch_tokens, copy.prompt_overflow) == ({256, 3}, 77, "truncate_left")


class TestModels:
    """Other models, one for all agents or one for each."""

    @pytest.fixture
    def folders(self, tmp_path) -> list[str]:
        for seed in (7, 8):
            tiny(seed).save(tmp_path / str(seed))
        return [str(tmp_path / str(seed)) for seed in (7, 8)]

    def test_each_agent_has_its_own(self, make, folders):
        found = drawn(make(team(), comparator_policy="model", comparator_agents=folders))
        for row, seed in enumerate((7, 8)):
            (expected,) = tiny(seed).generate([("a", "b")[row]], 3, [KEYS[row]])
            assert found[row] == expected

    def test_one_for_all(self, make, folders):
        comparator = make(team(), comparator_policy="model", comparator_model_name=folders[1])
        found, expected = drawn(comparator), tiny(8).generate(["a", "b"], 3, KEYS)
        assert [[c.token_ids for c in row] for row in found] == [[c.token_ids for c in row] for row in expected]
        assert all(writer.parameters() == [] for writer in comparator._writers.values())

    def test_a_number_of_models_that_is_not_that_of_the_agents(self, make, folders):
        with pytest.raises(ValueError, match="agents"):
            make(team(), comparator_policy="model", comparator_agents=[*folders, folders[0]])


def pair_tokenizer() -> PreTrainedTokenizerFast:
    """Other ids than the bytes': the end is 0, and two letters a are one token."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{symbol: index for index, symbol in enumerate(symbols, start=1)}, "aa": len(symbols) + 1}
    backend = Tokenizer(models.BPE(vocabulary, [("a", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


class TestForeignTokens:
    """What others wrote becomes what the team's policy could have written."""

    def test_the_same_tokens_stay_the_very_ids(self):
        """Two bytes that are no text would come back as other ids."""
        writer, own = tiny(1), tiny(2)
        odd = Completion("\ufffd", (255, 200, 256), (-1.0, -2.0, -3.0), writer.encode(["p"])[0])
        assert translated([odd], "p", writer, own) == [odd]

    def test_a_prompt_is_what_the_trained_policy_reads(self, make_tokenizer):
        """Two templates over the same tokens."""
        templates = ["{% for m in messages %}" + mark + "{{ m.content }}{% endfor %}" for mark in "UV"]
        writer, own = (tiny(tokenizer=make_tokenizer(chat_template=template)) for template in templates)
        prompt = ChatPrompt([{"role": "user", "content": "hi"}])
        (drawn_ones,) = writer.generate([prompt], 2, [(0,)])
        found = translated(drawn_ones, prompt, writer, own)
        assert [c.token_ids for c in found] == [c.token_ids for c in drawn_ones]
        assert {c.prompt_ids for c in found} == {own.encode([prompt])[0]} != {writer.encode([prompt])[0]}

    def test_other_tokens_are_written_anew_with_an_end(self):
        own = tiny(tokenizer=pair_tokenizer(), end=0)
        end = Completion("aab", (1, 2, 3, 256), (0.0,) * 4, (9,), "stop")
        (found,) = translated([end], "aa", tiny(), own)
        pair, b = own.tokenizer.convert_tokens_to_ids(["aa", "b"])
        assert found == Completion("aab", (pair, b, 0), (), (pair,), "stop")

    def test_what_was_cut_stays_without_an_end(self):
        own = tiny(tokenizer=pair_tokenizer(), end=0)
        cut = Completion("aab", (1, 2, 3, 4), (0.0,) * 4, (9,), "length")
        (found,) = translated([cut], "aa", tiny(), own)
        assert (found.token_ids[-1], len(found.token_ids), found.finish_reason) == (
            own.tokenizer.convert_tokens_to_ids("b"),
            2,
            "length",
        )

    def test_what_is_too_long_is_cut_and_its_text_too(self):
        own = tiny(sampling=SamplingConfig(max_new_tokens=3))
        cut, exact, short, empty = as_completions(own, "p", ["abcdef", "abc", "ab", ""])
        letters = tuple(own.tokenizer("abc")["input_ids"])
        read = own.encode(["p"])[0]
        assert cut == Completion("abc", letters, (), read, "length")
        assert exact == cut
        assert short == Completion("ab", (*letters[:2], 256), (), read, "stop")
        assert empty == Completion("", (256,), (), read, "stop")

    def test_what_spells_an_end_token_is_text(self):
        """Someone else's text must not end the sequence in its middle."""
        own = tiny(sampling=SamplingConfig(max_new_tokens=8))
        (completion,) = own.as_written(["p"], ["<end>"])
        assert (completion.text, completion.finish_reason) == ("<end>", "stop")
        # A byte each, and the end behind them.
        assert len(completion.token_ids) == 6 and completion.token_ids.index(256) == 5

    def test_the_end_is_the_one_of_the_tokenizer(self):
        """Models list further ones, of other formats, that it must not learn to end with."""
        own = tiny(end=[3, 256])
        assert own.end_token_ids == {3, 256}
        assert own.as_written(["p"], ["a"])[0].token_ids[-1] == 256
        other = tiny(policy={"end_token_ids": [9, 5]})
        assert other.as_written(["p"], ["a"])[0].token_ids[-1] == 5
        with pytest.raises(ValueError, match="has no end token"):
            tiny(policy={"end_token_ids": []}).as_written(["p"], ["a"])

    @pytest.mark.parametrize(
        ("options", "parts"),
        [
            ({"comparator_policy": "api", "comparator_api_url": "http://127.0.0.1:9/v1"}, {}),
            ({"comparator_generation_mode": "centralized"}, {}),
            ({"comparator_policy": "model", "comparator_model_name": "tiny-random"}, {}),
        ],
        ids=["api", "centralized", "model"],
    )
    def test_a_team_that_cannot_end_them_is_told_when_the_trainer_is_built(self, tmp_path, options, parts):
        """The second agent's model has no end token."""
        policies = {**team(), AGENTS[1]: tiny(1, policy={"end_token_ids": []})}
        with pytest.raises(ValueError, match="the comparator writes texts for agent_1, and they cannot be ended"):
            make_trainer("madpo-iter", tmp_path, policies=policies, parts=parts, **options)

    @pytest.mark.parametrize("policy", ["current", "current_copy", "history"])
    def test_ids_that_are_taken_over_need_no_end_token(self, make, policy):
        policies = team(policy={"end_token_ids": []})
        comparator = make(policies, comparator_policy=policy)
        comparator.begin_round(1)
        ((completion,), _) = comparator.generate(AGENTS, ["p", "p"], 1, KEYS, [{}, {}])
        assert completion.finish_reason == "length"

    def test_it_scores_what_it_would_have_written(self):
        """Log-probabilities of its own ids, end included."""
        policy = tiny()
        (own,), (written,) = policy.generate(["p"], 1, [(4,)]), policy.as_written(["p"], ["ab"])
        scored = policy.logprobs([written])
        assert scored.logprobs.shape == (1, 3)
        assert (written.prompt_ids, len(written.token_ids)) == (own[0].prompt_ids, 3)

    def test_no_answer_stays_none(self):
        own = tiny()
        found = as_completions(own, "p", [None, "a", None])
        assert [completion is NO_ANSWER for completion in found] == [True, False, True]
        assert as_completions(own, "p", [None]) == [NO_ANSWER]

    def test_a_table_cannot_read_texts_of_others(self):
        with pytest.raises(TypeError, match="policies that tokenise them, agent_0 has a TabularPolicy"):
            require_reader("agent_0", TabularPolicy(["a"]))


class Parrot:
    """Writes given texts, and notes what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.asked: list[str] = []

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[tuple]) -> list[list[Completion]]:
        self.asked += prompts
        return [[Completion(self.texts[k % len(self.texts)], (1,), (0.0,), (1,)) for k in range(n)] for _ in prompts]


class TestOneWriterForAll:
    """Centralised generation: a joint text in sections."""

    @pytest.fixture
    def central(self, make) -> Callable[..., Any]:
        def build(*texts: str, adapter: Any = None) -> tuple[Any, Parrot]:
            policies = team(sampling=SamplingConfig(max_new_tokens=12))
            comparator = make(policies, adapter, comparator_generation_mode="centralized")
            parrot = Parrot(*texts)
            comparator._writer = lambda prompts, n, keys, items: [
                [c.text for c in row] for row in parrot.generate(prompts, n, keys)
            ]
            return comparator, parrot

        return build

    def test_each_role_gets_its_section(self, central):
        comparator, parrot = central("<agent_0>one</agent_0>\n<AGENT_1> two </agent_1>", "<agent_1>only</agent_1>")
        first, second = drawn(comparator, n=2)
        assert [c.text for c in first] == ["one", ""]
        assert [c.text for c in second] == ["two", "only"]
        assert first[0].token_ids[-1] == 256
        assert len(parrot.asked) == 1
        assert "agent_0 is asked:\na\n" in parrot.asked[0]
        assert "agent_1 is asked:\nb\n" in parrot.asked[0]

    def test_what_cannot_be_parsed_drops_exactly_that_comparison(self, central):
        comparator, _ = central("<agent_0>x</agent_0>", "nothing", "<agent_1>y</agent_1>")
        steps = played(comparator._own, comparator, comparisons=3)
        _, theirs = sides(steps)
        for responses in theirs:
            assert [all(completion is not NO_ANSWER for completion in response) for response in responses] == [True, False, True]
        assert comparator.num_unparsable == 2

    def test_an_adapter_of_ones_own(self, central):
        class Halves:
            def build_prompt(self, item: Mapping, agent_prompts: Sequence[str]) -> str:
                return f"{item['prompt']} / {' & '.join(agent_prompts)}"

            def parse_completion(self, text: str, item: Mapping, n: int) -> list[str]:
                return text.split("|")

        comparator, parrot = central("one|two", adapter=Halves())
        first, second = drawn(comparator, n=1)
        assert (first[0].text, second[0].text) == ("one", "two")
        assert parrot.asked == [f"{ITEMS[0]['prompt']} / a & b"]

    def test_in_later_turns_too(self, central):
        comparator, parrot = central("<agent_0>x</agent_0><agent_1>y</agent_1>")
        ours, theirs = sides(played(comparator._own, comparator, comparisons=2, turns=2))
        assert ours == sides(played(comparator._own, None, turns=2))[0]
        assert [[c.text for c in response] for response in theirs[0]] == [["x", "y", "x", "y"]] * 2
        assert len(parrot.asked) == 2 + 2 * 2

    def test_the_agent_named_writes_with_the_team_as_it_is(self, make):
        policies = team(context=1024)
        options = {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 1}
        adapter = TaggedSections(AGENTS)
        comparator = make(policies, **options)
        (texts,) = comparator._writer(["a"], 2, [(5,)], [ITEMS[0]])
        (expected,) = policies["agent_1"].generate(["a"], 2, [(5,)])
        assert texts == [completion.text for completion in expected]
        history = make(policies, adapter, comparator_policy="history", **options)
        history.begin_round(1)
        shift(policies)
        assert history._writer(["a"], 2, [(5,)], [ITEMS[0]]) == [texts] != comparator._writer(["a"], 2, [(5,)], [ITEMS[0]])

    @pytest.mark.parametrize("source", ["comparator_model_name", "comparator_agents"])
    def test_only_the_model_that_writes_is_loaded(self, make, tmp_path, source):
        tiny(7, context=1024).save(tmp_path / "writer")
        name = str(tmp_path / "writer")
        value: Any = name if source == "comparator_model_name" else [str(tmp_path / "is not there"), name]
        options = {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 1}
        comparator = make(team(), comparator_policy="model", **{source: value}, **options)
        (expected,) = tiny(7, context=1024).generate(["a"], 2, [(5,)])
        assert comparator._writer(["a"], 2, [(5,)], [ITEMS[0]]) == [[completion.text for completion in expected]]

    def test_models_for_another_number_of_agents(self, make):
        options = {"comparator_generation_mode": "centralized", "comparator_policy": "model"}
        with pytest.raises(ValueError, match=r"comparator_agents must be one for each of 2 agents, got .'tiny'"):
            make(team(), comparator_agents=["tiny"], **options)

    def test_only_the_weights_that_write_are_remembered(self, make):
        options = {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 1}
        comparator = make(team(), comparator_policy="history", **options)
        comparator.begin_round(1)
        assert [list(weights) for weights in comparator.state_dict()["rounds"]] == [["agent_1"]]

    def test_its_count_is_resumed(self, central):
        comparator, _ = central("nothing")
        drawn(comparator, n=2)
        other, _ = central("nothing")
        other.load_state_dict(comparator.state_dict())
        assert other.num_unparsable == comparator.num_unparsable == 2


@pytest.fixture(scope="module")
def server() -> Iterator[HTTPServer]:
    with HTTPServer(threaded=True) as running:
        yield running


class TestEndpoints:
    """Comparators behind HTTP."""

    @pytest.fixture
    def bodies(self, server, monkeypatch) -> Iterator[list[dict]]:
        """What was asked; each answer says to whom and of what, the second of each prompt is missing."""
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        asked: list[dict] = []

        def respond(request: Request) -> Response:
            body = json.loads(request.get_data())
            asked.append(body)
            text = f"{body['agent_idx']}{body['prompt'][-1]}"
            count = body["num_return_sequences"]
            return Response(json.dumps({"completions": [text, "longer than four"][:count]}), content_type="application/json")

        server.clear()
        server.expect_request("/v1").respond_with_handler(respond)
        yield asked
        server.check()

    def test_every_agent_is_asked_its_prompt_with_its_item(self, make, server, bodies):
        comparator = make(team(), comparator_policy="api", comparator_api_url=server.url_for("/v1"))
        found = comparator.generate(AGENTS, ["pa", "pb"], 2, KEYS, [ITEMS[1], ITEMS[2]])
        assert [[c.text for c in row] for row in found] == [["0a", "long"], ["1b", "long"]]
        assert [(c.finish_reason, len(c.token_ids)) for c in found[0]] == [("stop", 3), ("length", 4)]
        asked = sorted((body["agent_idx"], body["prompt"], body["batch_item"]["prompt"]) for body in bodies)
        assert asked == [(0, "pa", ITEMS[1]["prompt"]), (1, "pb", ITEMS[2]["prompt"])]
        assert bodies[0]["max_new_tokens"] == 4

    def test_what_did_not_come_drops_exactly_that_comparison(self, server, bodies, tmp_path):
        options = {"comparator_policy": "api", "comparator_api_url": server.url_for("/v1"), "num_iterations": 1, "eval_interval": 0}
        trainer = make_trainer("madpo-iter", tmp_path, preference_pairs_per_sample=None, parts={"record": True}, **options)
        with pytest.warns(UserWarning, match="gave no answer for"):
            trainer.train()
        assert values_of(trainer, "iter/dropped_comparisons") == [len(ITEMS)]
        items = {body["batch_item"]["prompt"] for body in bodies}
        assert items == {item["prompt"] for item in ITEMS}
        assert {body["prompt"] for body in bodies} == items
        assert trainer.numbering.env_step == 6 * len(ITEMS)
        pairs = read_round(trainer.output_dir / "preference_replay" / "iteration_0001.json")
        assert 0 < len(pairs) <= 2 * len(ITEMS)
        assert all(side.answered for pair in pairs for side in (pair.winner, pair.loser))
        written = [line for line in recorded(trainer) if line["choice"]["agent_0"] == 5]
        assert {completion["text"] for line in written for completion in line["completions"].values()} == {""}

    def test_one_joint_text_for_all_roles(self, make, server, bodies):
        central = {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 1}
        comparator = make(team(), comparator_policy="api", comparator_api_url=server.url_for("/v1"), **central)
        first, second = comparator.generate(AGENTS, ["pa", "pb"], 1, KEYS, [ITEMS[1], ITEMS[1]])
        assert (first, second) == ([NO_ANSWER], [NO_ANSWER])
        assert comparator.num_unparsable == 1
        (body,) = bodies
        assert body["agent_idx"] == 1
        assert body["batch_item"] == ITEMS[1]


# ---- comparators in runs ----


def test_unparsable_texts_are_dropped_and_counted_in_a_run(tmp_path):
    """Tiny models write no sections at all."""
    policies = {agent: tiny(seed, context=1024) for seed, agent in enumerate(AGENTS)}
    central = {"comparator_generation_mode": "centralized", "num_iterations": 1, "comparator_num_candidates": 2}
    trainer = make_trainer("madpo-iter", tmp_path, policies=policies, **central)
    with pytest.warns(UserWarning, match="nothing is trained on"):
        trainer.train()
    assert values_of(trainer, "iter/dropped_comparisons") == [2 * len(ITEMS)]
    assert trainer.learner.state_dict()["comparator"]["num_unparsable"] == 2 * len(ITEMS)


@pytest.mark.parametrize(("candidates", "comparisons"), [(4, 2), (2, 4)])
def test_comparisons_are_those_at_equal_positions(tmp_path, candidates, comparisons):
    """All of them, either side winning, of what was recorded."""
    options = {
        "preference_num_candidates": candidates,
        "comparator_num_candidates": comparisons,
        "num_iterations": 1,
        "eval_interval": 0,
    }
    selection = {"pair_selection": "all", "preference_pairs_per_sample": None}
    trainer = make_trainer("madpo-iter", tmp_path, parts={"record": True}, **options, **selection)
    trainer.train()
    expected = []
    lines = recorded(trainer)
    for start in range(0, len(lines), candidates + comparisons):
        rewards = [line["rewards"]["agent_0"] for line in lines[start : start + candidates + comparisons]]
        for ours, theirs in zip(rewards[:candidates], rewards[candidates:], strict=False):
            if ours != theirs:
                expected.append((ours, theirs))
    pairs = read_round(trainer.output_dir / "preference_replay" / "iteration_0001.json")
    found = [(pair.target_raw_reward, pair.comparator_raw_reward) for pair in pairs]
    assert np.array(found) == pytest.approx(np.array(expected))
    assert len({pair.winner.reward == pair.target_raw_reward for pair in pairs}) == 2
    assert values_of(trainer, "iter/dropped_comparisons") == [0]


def test_the_options_of_a_comparator_are_all_in_its_config():
    names = {entry.name for entry in dataclasses.fields(config("madpo-iter")) if entry.name.startswith("comparator_")}
    assert names == {entry.name for entry in dataclasses.fields(config("marlhf-iter")) if entry.name.startswith("comparator_")}

"""What both systems are given: the same models, tokeniser, items, reward and transition. Imports neither of them.

Read by `peer.py` in the peer's environment and by `ours.py` in ours. Two agents answer the same prompt; the reward is 1 while the
second text has 2 to 3 times the characters of the first and falls off exponentially outside. Models are random, so texts are long
and nothing is learned: this is about work done, not about rewards.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

TOKENIZER_VOCABULARY = 512
SUBJECTS = (
    "a river",
    "two clocks",
    "the last train",
    "snow in May",
    "a borrowed coat",
    "the night baker",
    "three keys",
    "an old map",
)
VERBS = ("Describe", "Explain", "Praise", "Question", "Remember", "Draw", "Sell", "Repair")


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        name: of the case.
        generations: K; of a preference learner the candidates of an item.
        turns: H, a whole tree of K branches a node.
        items: rows of the one epoch.
        vocabulary: rows of the embedding; the tokeniser knows 512 of them.
        max_new_tokens: T.
        buffer: states collected for an update.
        model: folder of a model to load in place of the tiny one; None for that.
        learner: "magrpo", "maac", "iac", "madpo", "marlhf" or "madpo-iter".
        critic_type: of the actor-critic learners.
    """

    name: str
    generations: int
    turns: int = 1
    items: int = 48
    vocabulary: int = 512
    max_new_tokens: int = 32
    buffer: int = 16
    model: str | None = None
    learner: str = "magrpo"
    critic_type: str = "v"

    @property
    def expected_env_steps(self) -> int:
        """Joint actions that are evaluated: of all trees, or of all candidates and what a reward model judges."""
        if self.learner == "marlhf":
            return self.expected_rewards + self.items * REINFORCED
        if self.is_preference:
            return self.expected_rewards
        return self.items * sum(self.generations**turn for turn in range(1, self.turns + 1))

    @property
    def is_preference(self) -> bool:
        """Whether the learner learns from pairs."""
        return self.learner in ("madpo", "marlhf", "madpo-iter")

    @property
    def expected_rewards(self) -> int:
        """Joint actions that the task's reward judges, for a preference learner."""
        return self.items * self.generations * (2 * ROUNDS if self.learner == "madpo-iter" else 1)


ROUNDS = 2
"""Of the iterative form; in each, team and comparator draw all candidates."""
REINFORCED = 4
"""K of the policy-gradient learner in MARLHF."""
PAIRS = 4
"""Pairs of an item."""

CASES = (
    Case("k4", 4, items=64),
    Case("k8", 8, items=32),
    Case("k4_turns2", 4, turns=2, items=16),
    Case("k4_vocab32k", 4, items=16, vocabulary=32_000),
    Case("k8_vocab32k", 8, items=16, vocabulary=32_000),
    Case("maac_v", 4, items=48, learner="maac"),
    Case("maac_q", 4, items=48, learner="maac", critic_type="q"),
    Case("iac_v", 4, items=48, learner="iac"),
    Case("maac_v_turns2", 1, turns=2, items=48, learner="maac"),
    Case("iac_v_turns2", 1, turns=2, items=48, learner="iac"),
    Case("madpo", 8, items=32, learner="madpo"),
    Case("marlhf", 8, items=32, learner="marlhf"),
    Case("madpo_iter", 8, items=16, learner="madpo-iter"),
)


def tokenizer_of(case: Case) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 512 pieces trained on the prompts, or that of the case's model."""
    if case.model is not None:
        return AutoTokenizer.from_pretrained(case.model, padding_side="left")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_VOCABULARY,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((f"{verb} {subject} in a few words." for verb in VERBS for subject in SUBJECTS), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def agents_of(case: Case) -> list[PreTrainedModel]:
    """Two models of equal weights: Qwen2, 64 wide, 2 layers, 4 heads over 2 key-value heads; or the case's model twice."""
    if case.model is not None:
        model = AutoModelForCausalLM.from_pretrained(case.model, dtype=torch.float32)
    else:
        model = random_model(case.vocabulary, width=64, layers=2, heads=4)
    return [model, copy.deepcopy(model)]


def critics_of(case: Case) -> list[PreTrainedModel]:
    """One critic's model for MAAC, two for IAC, shaped like the agents'; none for MAGRPO."""
    count = {"maac": 1, "iac": 2}.get(case.learner, 0)
    return [random_model(case.vocabulary, width=64, layers=2, heads=4) for _ in range(count)]


def options_of(case: Case, folder: Path) -> dict[str, object]:
    """Options of the config that both systems know by the same names; files go to a folder."""
    shared = {
        "num_agents": 2,
        "num_turns": case.turns,
        "num_train_epochs": 1,
        "num_generations": case.generations,
        "max_new_tokens": case.max_new_tokens,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "early_termination_threshold": None,
        "eval_interval": 0,
    }
    if case.learner == "magrpo":
        return {**shared, "rollout_buffer_size": case.buffer}
    if case.is_preference:
        return preference_options(case, shared, folder)
    # These buffers count samples: as many as the same number of states gives.
    return {**shared, "rollout_buffer_size": case.buffer * case.generations, "critic_type": case.critic_type}


def preference_options(case: Case, shared: dict[str, object], folder: Path) -> dict[str, object]:
    """Of a learner from pairs: batches as large as the buffers of the others."""
    common = {name: value for name, value in shared.items() if name not in ("num_generations", "early_termination_threshold")}
    common |= {
        "preference_num_candidates": case.generations,
        "preference_pairs_per_sample": PAIRS,
        "pair_selection": "reward_gap",
        "train_batch_size": case.buffer,
    }
    if case.learner == "marlhf":
        # A folder, since the peer loads a reward model by its name.
        model = folder / "reward_model"
        random_model(case.vocabulary, width=64, layers=2, heads=4).save_pretrained(model)
        tokenizer_of(case).save_pretrained(model)
        return {
            **common,
            "num_generations": REINFORCED,
            "rollout_buffer_size": case.buffer,
            "reward_model_name": str(model),
            "reward_model_device": "cpu",
            "reward_train_batch_size": case.buffer,
        }
    if case.learner == "madpo-iter":
        return {**common, "num_iterations": ROUNDS, "preference_replay_dir": str(folder / "replay")}
    return common


def random_model(vocabulary: int, width: int, layers: int, heads: int) -> Qwen2ForCausalLM:
    """A Qwen2 of random weights, the same in every process."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def items_of(case: Case) -> list[dict[str, str]]:
    """Rows with a prompt each."""
    prompts = [f"{verb} {subject} in a few words." for verb in VERBS for subject in SUBJECTS]
    return [{"prompt": prompts[number % len(prompts)]} for number in range(case.items)]


def length_ratio(first: Sequence[str], second: Sequence[str]) -> list[float]:
    """1 while the second text is 2 to 3 times as long as the first, exp(−distance) outside, 0 if the first is empty."""
    return [_length_ratio(len(a), len(b)) for a, b in zip(first, second, strict=True)]


def _length_ratio(first: int, second: int) -> float:
    if first == 0:
        return 0.0
    ratio = second / first
    return math.exp(-max(2.0 - ratio, ratio - 3.0, 0.0))


def feedback(*, prompt: str, agent_completions: Sequence[str], num_agents: int, **_: object) -> list[str]:
    """Every agent reads the prompt again and how long both texts were."""
    lengths = " and ".join(str(len(text)) for text in agent_completions)
    return [f"{prompt} You wrote {lengths} characters."] * num_agents


class Counted:
    """The reward, and how much text went through it: shows that both systems did the same work."""

    def __init__(self) -> None:
        self.texts = 0
        self.characters = 0

    def __call__(self, first: list[str], second: list[str]) -> list[float]:
        self.texts += len(first) + len(second)
        self.characters += sum(map(len, first)) + sum(map(len, second))
        return length_ratio(first, second)


def measure(case: Case, prepare: Callable[[Case, Counted], tuple[Callable[[], None], Callable[[], int]]]) -> dict[str, object]:
    """CPU and wall seconds of one `train()`, after a small one that warms the process up.

    Args:
        case: what to run.
        prepare: builds a trainer; gives its `train` and a function that tells its env steps afterwards.
    """
    warm_up, _ = prepare(replace(case, items=2), Counted())
    warm_up()
    reward = Counted()
    train, env_steps = prepare(case, reward)
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    train()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    # Ours scores with the task, for the record, what the reward model judges as well.
    if case.is_preference and reward.texts < 2 * case.expected_rewards:
        raise RuntimeError(
            f"{case.name}: {reward.texts} texts were rewarded, at least {2 * case.expected_rewards} should have been"
        )
    steps = env_steps()
    if steps != case.expected_env_steps:
        raise RuntimeError(f"{case.name}: {steps} env steps were counted, {case.expected_env_steps} are what the case means")
    return {
        **asdict(case),
        "env_steps": steps,
        "cpu_s": cpu,
        "wall_s": wall,
        "env_steps_per_cpu_s": steps / cpu,
        "characters_per_text": reward.characters / reward.texts,
    }


def cases_from_arguments(arguments: argparse.Namespace) -> list[Case]:
    """The named cases with the options applied."""
    known = {case.name: case for case in CASES}
    if arguments.smollm2 is not None:
        folder = str(Path(arguments.smollm2).expanduser())
        known["smollm2"] = Case("smollm2", 4, items=2, max_new_tokens=16, vocabulary=49_152, buffer=2, model=folder)
    names = arguments.cases or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"unknown cases {', '.join(unknown)}; known are {', '.join(known)} (smollm2 needs --smollm2 FOLDER)")
    cases = [known[name] for name in names]
    if arguments.buffer is not None:
        cases = [replace(case, buffer=arguments.buffer) for case in cases]
    if arguments.items is not None:
        cases = [replace(case, items=arguments.items) for case in cases]
    return cases


def add_case_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose cases, the same in every script."""
    parser.add_argument("--cases", nargs="+", help="names of cases; all by default")
    parser.add_argument("--buffer", type=int, help="rollout_buffer_size; 16 by default, 2 is what both systems default to")
    parser.add_argument("--items", type=int, help="items of each case, in place of its own number")
    parser.add_argument("--smollm2", metavar="FOLDER", help="a SmolLM2-135M in Hugging Face format; adds the case smollm2")


def run_cases(cases: Sequence[Case], prepare: Callable[[Case, Counted], tuple[Callable[[], None], Callable[[], int]]]) -> None:
    """Measure on one thread and print a JSON line for each case."""
    torch.set_num_threads(1)
    for case in cases:
        print(json.dumps(measure(case, prepare)), flush=True)

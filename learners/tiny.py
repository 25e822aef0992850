"""A tiny language model, built in seconds on this machine: for demos, tests and first experiments without a download.

`tiny` has about 0.36 million parameters and a byte-level vocabulary (any text can be read and written), and has seen a few thousand
lines of a template grammar: it knows how to answer the prompts of the small built-in tasks, and nothing else. Reinforcement
learning works on it within seconds. It is a toy: rewarded for length alone, its sentences soon grow by repetition and rows of dots.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

from learners.decoding import align_weights, choose_backend
from learners.sampling import SamplingConfig
from llm_envs.seeding import UPDATE, stream

TINY_NAMES = ("tiny", "tiny-random")
"""Accepted wherever a model is named: with and without the warm start."""

# What the warm start teaches. A task that wants sensible answers from the start uses exactly these prompts.
DESCRIBE_PROMPT = "tell me about {topic}."
DESCRIBE_AGAIN_PROMPT = "you wrote {mine} characters, the other {theirs}. " + DESCRIBE_PROMPT
PICK_PROMPT = "pick one word: {words}"
PICK_AGAIN_PROMPT = "you said {mine}. others said {theirs}. " + PICK_PROMPT
SPLIT_PROMPT = "parts: {parts}. list yours:"
SPLIT_AGAIN_PROMPT = "you listed {mine}. others listed {theirs}. " + SPLIT_PROMPT
_NOUNS = """
sea moon river bird forest winter summer night star city garden mountain rain snow wind fog ice fire sand clay stone iron
glass wool bread milk salt honey tea rice corn apple cat dog bee ant frog crab whale owl fox wolf horse goat moss grass rose
seed lake wave island cave hill sun cloud morning autumn boat bridge road wheel clock song map thunder dust copper butter
pepper pear swan mouse deer fern valley spring train harbor lamp desert
"""
TOPICS = tuple(f"the {noun}" for noun in _NOUNS.split())
WORDS = ("red", "blue", "green", "gold")
PARTS = ("a", "b", "c", "d")

_VERSION = 1  # of the code below: raise it when the same corpus and settings would give other weights
_END = "<end>"
_VOCABULARY = 512
_CHAT_TEMPLATE = "{{ messages | map(attribute='content') | join('\\n') }}"  # a conversation is its texts, one a line
_SUBJECTS = ("it", "{topic}", "a {adjective} {noun}", "the {adjective} {noun}")
_PREDICATES = (
    "{verb}.",
    "{verb} {manner}.",
    "{verb} {place}.",
    "is {adjective}.",
    "is {adjective} and {adjective}.",
    "{verb} {place} {manner}.",
)
_FILLERS = {
    "adjective": ("quiet", "cold", "warm", "old", "small", "bright", "wide", "green", "dark", "deep"),
    "noun": ("sea", "bird", "cloud", "wind", "leaf", "stone", "child", "tree", "light", "wave"),
    "verb": ("sleeps", "waits", "sings", "falls", "shines", "grows", "turns", "moves", "rests", "dreams"),
    "manner": ("slowly", "softly", "all day", "with joy", "again", "alone"),
    "place": ("at night", "in the rain", "by the sea", "under the moon", "near the hill", "over the city"),
}

_SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
_STEPS = 120
_BATCH = 32
_LEARNING_RATE = 5e-3
# Four times the usual spread: with tied embeddings of a model this small, copying a word from the prompt is otherwise learned late.
_INITIAL_STD = 0.08


def tiny_model(
    seed: int = 0, warm_start: bool = True, cache_dir: Path | str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A fresh copy of the built-in model and its tokenizer; the same seed gives the same weights on the same versions.

    A warm start takes a few seconds once for each seed and is then read from a folder: `cache_dir`, else `$LLM_MARL_CACHE`, else
    `~/.cache/llm-marl`. No global random state is touched.

    Args:
        seed: of the initial weights and the lines seen; not negative.
        warm_start: False leaves the weights random: nothing but noise is written then.
        cache_dir: folder of warm-started models; created if need be.
    """
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    if not warm_start:
        tokenizer = _tokenizer()
        return _random_model(seed, tokenizer), tokenizer
    folder = _cache_folder(cache_dir) / f"tiny-{seed}-{_fingerprint()}"
    if (stored := _load(folder)) is not None:
        return stored
    tokenizer = _tokenizer()
    model = _random_model(seed, tokenizer)
    _warm_start(model, tokenizer, seed)
    _store(folder, model, tokenizer)
    return model, tokenizer


def _cache_folder(cache_dir: Path | str | None) -> Path:
    return Path(cache_dir or os.environ.get("LLM_MARL_CACHE") or Path.home() / ".cache" / "llm-marl")


def _fingerprint() -> str:
    """Names what the weights depend on: shape, corpus, warm start, and the libraries that compute them."""
    prompts = (DESCRIBE_PROMPT, DESCRIBE_AGAIN_PROMPT, PICK_PROMPT, PICK_AGAIN_PROMPT, SPLIT_PROMPT, SPLIT_AGAIN_PROMPT)
    corpus = (*prompts, TOPICS, WORDS, PARTS, _SUBJECTS, _PREDICATES, _FILLERS, _END, _VOCABULARY, _CHAT_TEMPLATE)
    training = (_SHAPE, _INITIAL_STD, _STEPS, _BATCH, _LEARNING_RATE)
    libraries = (torch.__version__, transformers.__version__, tokenizers.__version__, np.__version__)
    return hashlib.sha256(repr((_VERSION, corpus, training, libraries)).encode()).hexdigest()[:16]


# Text

_Choice = TypeVar("_Choice")


def sample_line(rng: np.random.Generator) -> tuple[str, str]:
    """A prompt and an answer to it, drawn from the grammar; a fifth of the prompts begin with what was answered before."""
    kind = _one(rng, (_describe, _describe, _describe, _pick, _split))
    return kind(rng, rng.random() < 0.2 if kind is _describe else rng.random() < 0.5)


def _one(rng: np.random.Generator, choices: Sequence[_Choice]) -> _Choice:
    return choices[int(rng.integers(len(choices)))]


def _describe(rng: np.random.Generator, again: bool) -> tuple[str, str]:
    topic = _one(rng, TOPICS)
    answer = _sentence(rng, "{topic}", topic)
    if rng.random() < 0.5:
        answer += " " + _sentence(rng, _one(rng, _SUBJECTS), topic)
    mine, theirs = rng.integers(1, 100, size=2)
    return (DESCRIBE_AGAIN_PROMPT if again else DESCRIBE_PROMPT).format(topic=topic, mine=mine, theirs=theirs), answer


def _sentence(rng: np.random.Generator, subject: str, topic: str) -> str:
    sentence = f"{subject} {_one(rng, _PREDICATES)}".replace("{topic}", topic)
    for name, options in _FILLERS.items():
        while (slot := f"{{{name}}}") in sentence:
            sentence = sentence.replace(slot, _one(rng, options), 1)
    return sentence


def _pick(rng: np.random.Generator, again: bool) -> tuple[str, str]:
    said = [_one(rng, (*WORDS, "nothing")) for _ in range(2 + rng.integers(2))]
    prompt = (PICK_AGAIN_PROMPT if again else PICK_PROMPT).format(mine=said[0], theirs=" ".join(said[1:]), words=" ".join(WORDS))
    return prompt, _one(rng, WORDS)


def _split(rng: np.random.Generator, again: bool) -> tuple[str, str]:
    def some(share: float) -> str:
        return " ".join(part for part in PARTS if rng.random() < share)

    mine, theirs = (some(0.5) or "nothing" for _ in range(2))
    prompt = (SPLIT_AGAIN_PROMPT if again else SPLIT_PROMPT).format(mine=mine, theirs=theirs, parts=" ".join(PARTS))
    return prompt, some(0.5) or _one(rng, PARTS)


def _tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on the grammar: 256 bytes, merges, and one end token; no BOS, no pad."""
    rng = stream(UPDATE, (_VERSION,))
    lines = [text for _ in range(2000) for text in sample_line(rng)]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=_VOCABULARY, initial_alphabet=alphabet, special_tokens=[_END], show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=_END)
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


# Weights


def _random_model(seed: int, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    # Not Qwen2: the library reads a tokenizer beside a Qwen2 model as Qwen's own, whatever it is.
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        **_SHAPE,
        initializer_range=_INITIAL_STD,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(_END),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def _warm_start(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
    """Supervised steps on fresh lines of the grammar; only the answers and their end are learned."""
    rng = stream(UPDATE, (_VERSION, seed))
    backend = choose_backend(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=_STEPS, pct_start=0.1)
    with _one_thread(), torch.enable_grad():
        for _ in range(_STEPS):
            texts = [sample_line(rng) for _ in range(_BATCH)]
            prompts = list(dict.fromkeys(prompt for prompt, _ in texts))
            prompt_ids = tokenizer(prompts)["input_ids"]
            answers = [[*ids, tokenizer.eos_token_id] for ids in tokenizer([answer for _, answer in texts])["input_ids"]]
            copies = [prompts.index(prompt) for prompt, _ in texts]
            scores = backend.score(prompt_ids, copies, answers, SamplingConfig())
            loss = -scores.sum() / sum(len(ids) for ids in answers)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    optimizer.zero_grad()


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread, so that sums are always taken in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# Cache


def _load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast] | None:
    """The stored model, or None if there is none or its files are not those that were written."""
    try:
        digests = json.loads((folder / "digests.json").read_text())
        intact = all(_digest(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, AttributeError):
        return None
    if not intact:
        return None
    with _no_bars():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return align_weights(model).eval(), AutoTokenizer.from_pretrained(folder)


def _store(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write the folder aside and rename it into place: readers and other writers never see half of it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".tiny-", dir=folder.parent))
    except OSError as error:
        warnings.warn(
            f"the tiny model is rebuilt each time: its cache folder {folder.parent} cannot be written ({error})", stacklevel=3
        )
        return
    try:
        with _no_bars():
            model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        staging.chmod(0o755)  # a temporary folder is its owner's alone, a cache may be shared
        digests = {path.name: _digest(path) for path in sorted(staging.iterdir())}
        (staging / "digests.json").write_text(json.dumps(digests, indent=1))
        if folder.exists() and _load(folder) is None:
            folder.rename(staging.with_name(staging.name + "-damaged"))
        try:
            staging.rename(folder)
        except OSError:
            # Another process was faster: its folder has the same contents.
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(staging.with_name(staging.name + "-damaged"), ignore_errors=True)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the library's progress bars: files of a megabyte need none."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

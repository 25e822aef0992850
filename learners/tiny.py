"""A tiny language model, built in seconds on this machine: for demos, tests and first experiments without a download.

`tiny` has about 0.35 million parameters, a byte-level vocabulary (any text can be read and written) and has seen a few thousand lines of
a template grammar: it knows how to answer the prompts of the small built-in tasks, and nothing else. Reinforcement learning works on it
within seconds. It is a toy: rewarded for length alone, its sentences grow by rows of dots before they grow by words.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config

from learners.decoding import choose_backend
from learners.sampling import SamplingConfig
from llm_envs.seeding import UPDATE, stream

TINY_NAMES = ("tiny", "tiny-random")
"""Accepted wherever a model is named: with and without the warm start."""

# What the warm start teaches. A task that wants sensible answers from the start uses exactly these prompts.
DESCRIBE_PROMPT = "tell me about {topic}."
PICK_PROMPT = "pick one word: {words}"
PICK_AGAIN_PROMPT = "you said {mine}. others said {theirs}. pick one word: {words}"
SPLIT_PROMPT = "parts: {parts}. list yours:"
TOPICS = tuple(f"the {noun}" for noun in "sea moon river bird forest winter summer night star city garden mountain".split())
WORDS = ("red", "blue", "green", "gold")
PARTS = ("a", "b", "c", "d")

_VERSION = 1  # of the warm start: raise it when the same sources would give other weights
_END = "<end>"
_VOCABULARY = 512
_CHAT_TEMPLATE = "{{ messages | map(attribute='content') | join('\\n') }}"  # a conversation is its texts, one a line
_SUBJECTS = ("{topic}", "{topic}", "{topic}", "a {adjective} {noun}", "the {adjective} {noun}", "every {noun}")
_PREDICATES = (
    "{verb}.",
    "{verb} {manner}.",
    "{verb} {place}.",
    "is {adjective}.",
    "is {adjective} and {adjective}.",
    "{verb} {place} {manner}.",
)
_ADJECTIVES = "quiet cold warm old small bright wide green dark deep".split()
_NOUNS = "sea bird cloud wind leaf stone child tree light wave".split()
_VERBS = "sleeps waits sings falls shines grows turns moves rests dreams".split()
_MANNERS = ("slowly", "softly", "all day", "with joy", "again", "alone")
_PLACES = ("at night", "in the rain", "by the sea", "under the moon", "near the hill", "over the city")

_STEPS = 100
_BATCH = 48
_LEARNING_RATE = 6e-3


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
    """Names what the weights depend on: this file and the libraries that compute them."""
    import tokenizers
    import transformers

    versions = (_VERSION, torch.__version__, transformers.__version__, tokenizers.__version__, np.__version__)
    return hashlib.sha256(repr((versions, inspect.getsource(sys.modules[__name__]))).encode()).hexdigest()[:16]


# Text


def sample_line(rng: np.random.Generator) -> tuple[str, str]:
    """A prompt and an answer to it, drawn from the grammar."""

    def one(choices: tuple[str, ...] | list[str]) -> str:
        return choices[rng.integers(len(choices))]

    kind = rng.random()
    if kind < 0.5:
        topic = one(TOPICS)
        answer = " ".join(_sentence(rng, topic) for _ in range(1 + rng.integers(2)))
        return DESCRIBE_PROMPT.format(topic=topic), answer
    if kind < 0.65:
        return PICK_PROMPT.format(words=" ".join(WORDS)), one(WORDS)
    if kind < 0.8:
        theirs = " ".join(one(WORDS) for _ in range(1 + rng.integers(2)))
        return PICK_AGAIN_PROMPT.format(mine=one(WORDS), theirs=theirs, words=" ".join(WORDS)), one(WORDS)
    taken = [part for part in PARTS if rng.random() < 0.5] or [one(PARTS)]
    return SPLIT_PROMPT.format(parts=" ".join(PARTS)), " ".join(taken)


def _sentence(rng: np.random.Generator, topic: str) -> str:
    sentence = f"{_SUBJECTS[rng.integers(len(_SUBJECTS))]} {_PREDICATES[rng.integers(len(_PREDICATES))]}"
    choices = {"adjective": _ADJECTIVES, "noun": _NOUNS, "verb": _VERBS, "manner": _MANNERS, "place": _PLACES, "topic": (topic,)}
    for name, options in choices.items():
        while (slot := f"{{{name}}}") in sentence:
            sentence = sentence.replace(slot, options[rng.integers(len(options))], 1)
    return sentence


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
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
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
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


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
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
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


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

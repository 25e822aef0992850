"""Fixtures of the tests of `learners`: tiny random models, tokenizers and policies, and one thread for all."""

from __future__ import annotations

import os
import signal

import pytest
import tiny_models
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _quick_disk():
    """Nothing here cuts the power: waiting for the disk at each of thousands of checkpoints would take longer than the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c():
    """As at a terminal: a shell has its background jobs ignore Ctrl-C, and the tests may be one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def make_tokenizer():
    """`make_tokenizer(bos=False, pad=False, chat_template=None)`: bytes 0..255, `<end>` 256, then `<bos>` and `<pad>` if wanted."""
    return tiny_models.make_tokenizer


@pytest.fixture
def byte_tokenizer():
    """A byte-level tokenizer with an end token (256) and nothing else: no BOS, no pad, no template."""
    return tiny_models.make_tokenizer()


@pytest.fixture
def tiny_model():
    """`tiny_model(arch="qwen2"|"llama"|"mistral"|"gpt2", seed=0, vocab=260, hidden=32, layers=2, context=128, …)`, in eval mode."""
    return tiny_models.make_model


@pytest.fixture
def tiny_policy():
    """`tiny_policy(arch, seed, sampling=, tokenizer=, policy={HFPolicy options}, **tiny_model options)`: 8 new tokens at most."""
    return tiny_models.make_policy

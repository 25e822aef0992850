"""Tiny random models, tokenizers and policies, built by hand: what the fixtures of `conftest.py` give."""

from __future__ import annotations

import copy

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from learners.policy import HFPolicy
from learners.sampling import SamplingConfig

END = 256
BUILT: dict[str, PreTrainedModel] = {}
"""Models by what they were built from: hundreds of tests want copies of the same few."""


def make_tokenizer(bos: bool = False, pad: bool = False, chat_template: str | None = None) -> PreTrainedTokenizerFast:
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<end>", *(["<bos>"] if bos else []), *(["<pad>"] if pad else [])]
    backend.add_special_tokens(special)
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", backend.token_to_id("<bos>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<end>", bos_token="<bos>" if bos else None, pad_token="<pad>" if pad else None
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def make_model(
    arch: str = "qwen2",
    seed: int = 0,
    *,
    vocab: int = 260,
    hidden: int = 32,
    layers: int = 2,
    context: int = 128,
    tied: bool = True,
    dropout: float = 0.0,
    end: int | list[int] = END,
    scale: float = 6.0,
    **config: object,
) -> PreTrainedModel:
    """A random model whose logits are `scale` times those of a fresh one, so that its distributions are not flat."""
    common: dict[str, object] = {"vocab_size": vocab, "eos_token_id": end, "bos_token_id": None, "tie_word_embeddings": tied}
    llama = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "attention_dropout": dropout,
    }
    gpt2 = {"n_embd": hidden, "n_layer": layers, "n_head": 4, "n_positions": context}
    gpt2 |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    kinds = {
        "qwen2": (Qwen2Config, llama),
        "llama": (LlamaConfig, llama),
        "mistral": (MistralConfig, llama),
        "gpt2": (GPT2Config, gpt2),
    }
    kind, shape = kinds[arch]
    options = common | shape | config
    name = repr((arch, seed, scale, options))
    if name not in BUILT:
        BUILT[name] = built(kind(**options), seed, scale)
    return copy.deepcopy(BUILT[name])


def built(config: PreTrainedConfig, seed: int, scale: float) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            # The initialisation leaves biases and norms at their neutral values: a test could not see them applied wrongly.
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
                elif "embed" in name or "wte" in name or "lm_head" in name:
                    parameter.mul_(scale)
    return model.eval()


def make_policy(
    arch: str = "qwen2",
    seed: int = 0,
    *,
    sampling: SamplingConfig | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
    policy: dict | None = None,
    **model: object,
) -> HFPolicy:
    chosen = sampling or SamplingConfig(max_new_tokens=8)
    return HFPolicy(make_model(arch, seed, **model), tokenizer or make_tokenizer(), chosen, **(policy or {}))

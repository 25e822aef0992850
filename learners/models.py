"""Language models by name, folder or object, made into the policies of a team.

Every agent gets its own copy of the weights, unless it is given the same object as another. With LoRA the copies share a base.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from learners.config import require_choice, require_dtype, require_text
from learners.decoding import align_weights
from learners.policy import HFPolicy, PromptOverflow, shared_copy
from learners.sampling import SamplingConfig
from learners.tiny import TINY_NAMES, tiny_model
from llm_envs.types import AgentID

if TYPE_CHECKING:
    from peft import PeftModel

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")

ModelSource: TypeAlias = "str | Path | PreTrainedModel | PeftModel | HFPolicy"
TokenizerSource: TypeAlias = "str | Path | PreTrainedTokenizerBase"


@dataclass(frozen=True)
class ModelConfig:
    """How models are loaded and prepared.

    Attributes:
        dtype: of the weights: a torch dtype, its name, or `auto` for that of the files. float32 by default: small steps of an
            optimiser are lost in 16 bits.
        torch_dtype: another name for `dtype`.
        attn_implementation: attention kernel, `sdpa`, `eager`, `flash_attention_2`, …; None leaves the library's choice.
        model_kwargs: further arguments of `from_pretrained`.
        lora: arguments of `peft.LoraConfig`: every agent trains an adapter of its own over one frozen base.
        gradient_checkpointing: recompute activations in the backward pass: less memory, more time.
        tokenizer_kwargs: further arguments of the tokenizer's `from_pretrained`.
        trust_remote_code: run code that comes with the model.
        revision: branch, tag or commit on the hub.
    """

    dtype: str | torch.dtype | None = None
    torch_dtype: str | torch.dtype | None = None
    attn_implementation: str | None = None
    model_kwargs: Mapping[str, object] = field(default_factory=dict)
    lora: Mapping[str, object] | None = None
    gradient_checkpointing: bool = False
    tokenizer_kwargs: Mapping[str, object] = field(default_factory=dict)
    trust_remote_code: bool = False
    revision: str | None = None

    def __post_init__(self) -> None:
        self._check_values()
        given = [value for value in (self.dtype, self.torch_dtype) if value is not None]
        if len(given) == 2 and _dtype(given[0]) != _dtype(given[1]):
            raise ValueError(
                f"model_config: dtype={self.dtype!r} and torch_dtype={self.torch_dtype!r} are the same option and differ"
            )
        repeated = sorted(set(self.model_kwargs) & {"dtype", "torch_dtype", "attn_implementation", "trust_remote_code", "revision"})
        if repeated:
            raise ValueError(f"model_config: give {repeated} as keys of their own, not inside model_kwargs")

    def _check_values(self) -> None:
        for option in ("dtype", "torch_dtype"):
            if not isinstance(getattr(self, option), torch.dtype):
                require_dtype(f"model_config: {option}", getattr(self, option))
        for option in ("attn_implementation", "revision"):
            require_text(f"model_config: {option}", getattr(self, option), optional=True)
        for option in ("gradient_checkpointing", "trust_remote_code"):
            require_choice(f"model_config: {option}", getattr(self, option), (True, False))
        for option in ("model_kwargs", "tokenizer_kwargs", "lora"):
            value = getattr(self, option)
            if not isinstance(value, Mapping) and not (value is None and option == "lora"):
                raise ValueError(f"model_config: {option} must map names to values, got {value!r}")

    @classmethod
    def from_mapping(cls, options: Mapping[str, object] | ModelConfig | None) -> ModelConfig:
        """A config from the `model_config` argument of a trainer; an unknown key is an error."""
        if isinstance(options, ModelConfig):
            return options
        known = [entry.name for entry in fields(cls)]
        unknown = sorted(set(options or {}) - set(known))
        if unknown:
            raise ValueError(f"model_config has unknown keys {unknown}; known are {known}")
        return cls(**(options or {}))  # type: ignore[arg-type]  # each field checks its own value

    def for_helpers(self, dtype: str | None) -> ModelConfig:
        """How models beside the agents are loaded (critics, reward models, comparators): without adapters, in the run's dtype."""
        own = replace(self, lora=None)
        return own if dtype is None else replace(own, dtype=dtype, torch_dtype=None)

    @property
    def weights_dtype(self) -> torch.dtype | str:
        """What `from_pretrained` gets."""
        chosen = self.dtype if self.dtype is not None else self.torch_dtype
        return torch.float32 if chosen is None else _dtype(chosen)

    @property
    def loading_options(self) -> list[str]:
        """Names of the options in use that mean nothing for a model that is loaded already."""
        names = ("dtype", "torch_dtype", "attn_implementation", "model_kwargs", "trust_remote_code", "revision")
        return [name for name in names if self.__dict__[name] not in (None, False, {})]


def _dtype(value: str | torch.dtype) -> torch.dtype | str:
    return value if isinstance(value, torch.dtype) or value == "auto" else getattr(torch, value.removeprefix("torch."))


def load_policies(
    agent_model: str | Path | PreTrainedModel | None = None,
    agents: Sequence[ModelSource] | None = None,
    num_agents: int | None = None,
    tokenizer: TokenizerSource | Sequence[TokenizerSource] | None = None,
    model_config: Mapping[str, object] | ModelConfig | None = None,
    sampling: SamplingConfig | None = None,
    devices: str | Sequence[str] | None = None,
    names: Sequence[AgentID] | None = None,
    prompt_overflow: PromptOverflow = "error",
) -> dict[AgentID, HFPolicy]:
    """A policy for every agent, by agent id.

    Args:
        agent_model: one model for all agents, each with a copy of its weights: hub identifier, folder, `tiny`, `tiny-random` or a
            loaded model (which the first agent gets itself).
        agents: a model for each agent instead, kinds mixed at will. Built policies are used as they are, with their own sampling.
            The same object twice is one policy shared by both agents; the same name twice is two copies.
        num_agents: size of the team; 2 if nothing else tells.
        tokenizer: one for all or one for each agent, name or object; by default what lies beside the model.
        model_config: see `ModelConfig`; an unknown key raises.
        sampling: how completions are drawn.
        devices: one for all or one for each agent; by default the first GPU, else the CPU (a loaded model stays where it is).
        names: agent ids, `agent_0`, `agent_1`, … by default.
        prompt_overflow: see `HFPolicy`.

    Raises:
        ValueError: sizes that do not agree, models or tokenizers that cannot be found, options that cannot apply.
    """
    sources, names = _team(agent_model, agents, num_agents, names)
    config = ModelConfig.from_mapping(model_config)
    loaded_already = not any(isinstance(source, str | Path) for source in sources)
    if loaded_already and config.loading_options:
        raise ValueError(f"model_config {config.loading_options} cannot apply: every agent is a model that is loaded already")
    loader = _Loader(config, sampling or SamplingConfig(), prompt_overflow)
    where = _per_agent("devices", devices, len(sources))
    tokenizers = _per_agent("tokenizer", tokenizer, len(sources))
    return {
        name: loader.policy(source, tokenizers[i], where[i], f"agent {i} ({name})")
        for i, (name, source) in enumerate(zip(names, sources, strict=True))
    }


def _team(
    agent_model: str | Path | PreTrainedModel | None,
    agents: Sequence[ModelSource] | None,
    num_agents: int | None,
    names: Sequence[AgentID] | None,
) -> tuple[list[ModelSource], list[AgentID]]:
    """A model and a name for each agent, once all arguments agree on their number."""
    if (agent_model is None) == (agents is None):
        raise ValueError("give either agent_model (one model for all agents) or agents (one for each)")
    if isinstance(agents, str | Path):
        raise ValueError(f"agents must be a sequence of models, got {agents!r}: use agent_model for a single one")
    if isinstance(agent_model, HFPolicy):
        raise ValueError("agent_model is copied for every agent; share a built policy as agents=[policy, policy]")
    sizes = {
        "num_agents": num_agents,
        "agents": None if agents is None else len(agents),
        "names": None if names is None else len(names),
    }
    given = {option: size for option, size in sizes.items() if size is not None}
    if len(set(given.values())) > 1:
        raise ValueError("the number of agents differs: " + ", ".join(f"{option} says {size}" for option, size in given.items()))
    count = next(iter(given.values()), 2)
    if count < 1:
        raise ValueError(f"a team needs at least 1 agent, got {count}")
    ids = [f"agent_{i}" for i in range(count)] if names is None else list(names)
    if agents is not None:
        return list(agents), ids
    assert agent_model is not None
    if isinstance(agent_model, str | Path):
        return [agent_model] * count, ids
    return [agent_model, *(copy.deepcopy(agent_model) for _ in range(count - 1))], ids


def _per_agent(option: str, value: object, count: int) -> list:
    """The option's value for each agent."""
    if value is None or isinstance(value, str | Path | PreTrainedTokenizerBase):
        return [value] * count
    values = list(value)  # type: ignore[call-overload]  # a sequence, by the signatures that lead here
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise ValueError(f"{option} must be one value or one for each of the {count} agents, got {len(values)}")
    return values


class _Loader:
    """Makes policies, remembering what was loaded: files are read once, a shared object becomes one policy."""

    def __init__(self, config: ModelConfig, sampling: SamplingConfig, prompt_overflow: PromptOverflow) -> None:
        self._config = config
        self._sampling = sampling
        self._prompt_overflow: PromptOverflow = prompt_overflow
        self._by_object: dict[int, HFPolicy] = {}
        self._read: dict[str, PreTrainedModel] = {}
        self._bases: dict[tuple[str, str], PreTrainedModel] = {}
        self._tokenizers: dict[str, PreTrainedTokenizerBase] = {}
        self._adapters = 0

    def policy(self, source: ModelSource, tokenizer: TokenizerSource | None, device: str | None, who: str) -> HFPolicy:
        if isinstance(source, HFPolicy):
            return source
        if not isinstance(source, str | Path) and id(source) in self._by_object:
            return self._by_object[id(source)]
        model, own_tokenizer = self._model(source, device)
        built = HFPolicy(
            self._prepared(model),
            self._tokenizer(source, tokenizer, own_tokenizer, who),
            self._sampling,
            prompt_overflow=self._prompt_overflow,
        )
        self._by_object[id(source)] = built
        return built

    def _model(
        self, source: str | Path | PreTrainedModel | PeftModel, device: str | None
    ) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase | None]:
        """A model on its device, and the tokenizer if it was built with it."""
        if not isinstance(source, str | Path):
            return (source if device is None else source.to(device)), None  # type: ignore[arg-type]
        name = str(source)
        device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
        if self._config.lora is not None:
            key = (name, device)
            if key not in self._bases:
                self._bases[key] = self._fresh(name).requires_grad_(False).to(device)  # type: ignore[arg-type]
            return cast("PreTrainedModel", shared_copy(self._bases[key])), self._tokenizers.get(name)
        return self._fresh(name).to(device), self._tokenizers.get(name)  # type: ignore[arg-type]

    def _fresh(self, name: str) -> PreTrainedModel:
        """Weights of a named model that no other agent holds."""
        if name in self._read:
            return copy.deepcopy(self._read[name])
        if name in TINY_NAMES:
            model, self._tokenizers[name] = tiny_model(warm_start=name == "tiny")
            if isinstance(self._config.weights_dtype, torch.dtype):
                cast("nn.Module", model).to(self._config.weights_dtype)
        else:
            options: dict[str, object] = {"dtype": self._config.weights_dtype, **self._config.model_kwargs}
            if self._config.attn_implementation is not None:
                options["attn_implementation"] = self._config.attn_implementation
            model = align_weights(_from_pretrained(AutoModelForCausalLM, "model", name, self._hub_options() | options))
        self._read[name] = model
        return model

    def _hub_options(self) -> dict[str, object]:
        options: dict[str, object] = {"trust_remote_code": self._config.trust_remote_code}
        return options if self._config.revision is None else options | {"revision": self._config.revision}

    def _prepared(self, model: PreTrainedModel | PeftModel) -> PreTrainedModel | PeftModel:
        if self._config.lora is not None:
            model = with_lora(model, self._config.lora, seed=self._adapters)  # type: ignore[arg-type]
            self._adapters += 1
        if self._config.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model

    def _tokenizer(
        self, source: object, tokenizer: TokenizerSource | None, own: PreTrainedTokenizerBase | None, who: str
    ) -> PreTrainedTokenizerBase:
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            return tokenizer
        if tokenizer is None and own is not None:
            return own
        name = str(tokenizer if tokenizer is not None else source if isinstance(source, str | Path) else source.name_or_path)  # type: ignore[union-attr]
        if not name:
            raise ValueError(f"{who} is a loaded model that does not say where it came from: pass its tokenizer")
        if name not in self._tokenizers:
            if name in TINY_NAMES:
                self._tokenizers[name] = tiny_model(warm_start=False)[1]
            else:
                options = self._hub_options() | dict(self._config.tokenizer_kwargs)
                self._tokenizers[name] = _from_pretrained(_tokenizer_class(name), "tokenizer", name, options)
        return self._tokenizers[name]


def _tokenizer_class(name: str) -> type:
    """Who reads the tokenizer: beside some models the library takes any for their usual one, even if its file says otherwise."""
    file = Path(name).expanduser() / "tokenizer_config.json"
    if file.parent.is_dir() and not any((file.parent / part).is_file() for part in _TOKENIZER_FILES):
        # The library would make an empty one of the model's usual kind.
        raise ValueError(f"the folder {name!r} has no tokenizer: pass one")
    written_as = json.loads(file.read_text()).get("tokenizer_class") if file.is_file() else None
    return PreTrainedTokenizerFast if written_as in ("TokenizersBackend", "PreTrainedTokenizerFast") else AutoTokenizer


def _from_pretrained(loader: type, kind: str, name: str, options: Mapping[str, object]):
    """What the library loads, its errors as one line that names what was asked for."""
    looks_local = name.startswith((".", "~", "/", os.sep)) or name.count("/") > 1 or Path(name).is_absolute()
    path = Path(name).expanduser()
    if looks_local and not path.is_dir():
        raise ValueError(f"there is no {kind} folder {name!r}")
    try:
        return loader.from_pretrained(str(path) if path.is_dir() else name, **options)
    except (OSError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        where = "folder" if path.is_dir() else "neither a folder here nor available from the hub"
        raise ValueError(f"cannot load the {kind} {name!r} ({where}): {reason}") from error


def with_lora(model: PreTrainedModel, options: Mapping[str, object], seed: int = 0) -> PeftModel:
    """The model with a trainable low-rank adapter (Hu et al. 2021) over frozen weights; at first it computes the same.

    Args:
        model: changed in place.
        options: arguments of `peft.LoraConfig`.
        seed: of the adapter's initial weights.

    Raises:
        ImportError: peft is not installed.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ImportError("model_config lora needs peft: pip install 'llm-envs[lora]'") from error
    try:
        config = LoraConfig(task_type="CAUSAL_LM", **options)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"model_config: lora is not a set of LoraConfig arguments: {error}") from error
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, config).eval()  # type: ignore[return-value]

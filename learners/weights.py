"""The weights of a model as named tensors: what a checkpoint holds, whether it fits, and how a folder of it is written."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from peft import PeftModel


def has_adapter(model: nn.Module) -> TypeGuard[PeftModel]:
    """Whether peft wrapped the model; peft is not imported for the question."""
    return "peft" in sys.modules and isinstance(model, sys.modules["peft"].PeftModel)


def without_adapter(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model itself, its layers those of the adapter if it has one."""
    return model.get_base_model() if has_adapter(model) else model  # type: ignore[return-value]


def named_tensors(model: PreTrainedModel | PeftModel) -> dict[str, Tensor]:
    """Live weights by name, tied ones once; with an adapter only its own."""
    adapted = has_adapter(model)
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in without_adapter(model).state_dict(keep_vars=True).items():
        if id(tensor) not in seen and (not adapted or tensor.requires_grad):
            seen.add(id(tensor))
            found[name] = tensor
    return found


def check_weights(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Refuse weights of another model; changes nothing.

    Raises:
        ValueError: a name or shape does not fit.
    """
    if own.keys() != given.keys():
        missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        raise ValueError(f"weights do not fit the model: missing {missing}, unknown {unknown}")
    for name, tensor in given.items():
        if own[name].shape != tensor.shape:
            raise ValueError(f"weight {name} has shape {tuple(tensor.shape)}, the model's has {tuple(own[name].shape)}")


def load_weights(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Take over weights in place, so that optimisers and tied weights stay attached.

    Raises:
        ValueError: a name or shape does not fit; nothing is changed then.
    """
    check_weights(own, given)
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def save_model(model: PreTrainedModel | PeftModel, directory: Path | str) -> None:
    """Write a folder that `from_pretrained` loads.

    With an adapter the weights are written merged, so that the folder stands for itself, and the adapter alone into `adapter/`.
    """
    if not has_adapter(model):
        model.save_pretrained(str(directory))
        return
    copy.deepcopy(model).merge_and_unload().save_pretrained(str(directory))  # type: ignore[operator]
    model.save_pretrained(str(Path(directory) / "adapter"))

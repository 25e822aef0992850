"""Training state as files: tensors in safetensors, the rest in JSON. Reading them runs no code from them.

A tree is a dict of dicts, lists, tuples, tensors, numpy arrays and plain values. In `tree.json` an object with one key that starts
with `$` stands for what JSON lacks:

    {"$tensor": name}  {"$array": name}  {"$scalar": name}   a torch tensor, numpy array, numpy scalar: its name in the shards
    {"$tuple": [...]}  {"$items": [[key, value], ...]}       a tuple; a dict whose keys are not all plain texts
    {"$float": hex}    {"$int": hex}                         inf and nan bit by bit; integers beyond 64 bits
    {"$chat": [...]}                                         a `ChatPrompt`: its messages
"""

from __future__ import annotations

import math
import random
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from learners.json_files import JSON, dump_json, parse_json, write_file
from llm_envs.types import ChatPrompt

TREE_FILE = "tree.json"
_LAYOUT = 1
# A shard is copied once while it is written, so its size bounds the extra memory of a save.
_SHARD_BYTES = 2**30


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written, or one on disk that cannot be used."""


def save_tree(directory: str | Path, tree: Mapping, *, shard_bytes: int = _SHARD_BYTES) -> dict[str, str]:
    """SHA-256 of every file written, by name: `tree.json` and `tensors-00000.safetensors` onward.

    Tensors that are the same view of the same storage are stored once and are one tensor again after `load_tree`; other overlapping
    views are stored in full. Values are bit-exact; strides, `requires_grad` and subclasses of dict are not kept.

    Args:
        directory: exists and holds none of these files yet.
        tree: dicts, lists, tuples, torch tensors (dense, any device), numpy arrays and scalars, `ChatPrompt`, None, bool, int,
            float, str. Keys of dicts may be str, int, float, bool, None and tuples of these.
        shard_bytes: a shard is closed before it grows beyond this; a larger tensor has one of its own.

    Raises:
        TypeError: another type, with its place in the tree.
        OSError: the disk refused.
    """
    directory = Path(directory)
    encoder = _Encoder()
    node = encoder.node(dict(tree), "")
    hashes = {}
    shards = list(_shards(encoder.tensors, shard_bytes))
    for number, names in enumerate(shards):
        data = save({name: _stored(encoder.tensors[name]) for name in names})
        hashes[_shard_name(number)] = write_file(directory / _shard_name(number), data)
    document = {"layout": _LAYOUT, "shards": len(shards), "tree": node}
    hashes[TREE_FILE] = write_file(directory / TREE_FILE, dump_json(document))
    return hashes


def load_tree(directory: str | Path) -> dict:
    """The tree that `save_tree` wrote, every tensor on the CPU.

    Raises:
        CheckpointError: a file is missing, damaged or not of this layout; the message names it.
    """
    path = Path(directory) / TREE_FILE
    document = load_json(path)
    shards = document.get("shards") if isinstance(document, dict) and document.get("layout") == _LAYOUT else None
    if not isinstance(document, dict) or not isinstance(shards, int):
        raise CheckpointError(f"{path} is not a training state of layout {_LAYOUT}")
    tensors: dict[str, torch.Tensor] = {}
    for number in range(shards):
        shard = path.parent / _shard_name(number)
        try:
            tensors.update(load_file(shard))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{shard} cannot be read: {error}") from error
    try:
        tree = _decode(document["tree"], tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not describe a training state: {error!r}") from error
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path} does not hold a dict but a {type(tree).__name__}")
    return tree


def plain_node(value: object) -> JSON:
    """A tree without tensors and arrays as JSON: metadata, and what fingerprints are taken of.

    Raises:
        TypeError: a tensor, an array or a type that trees do not hold, with its place.
    """
    encoder = _Encoder()
    node = encoder.node(value, "")
    if encoder.tensors:
        raise TypeError(f"no tensors or arrays are expected here, found {', '.join(encoder.tensors)}")
    return node


def plain_value(node: JSON) -> object:
    """What `plain_node` was given."""
    return _decode(node, {})


def load_json(path: Path) -> JSON:
    """The document in a file.

    Raises:
        CheckpointError: no such file, or not JSON (cut off, for instance).
    """
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _shard_name(number: int) -> str:
    return f"tensors-{number:05d}.safetensors"


def _shards(tensors: Mapping[str, torch.Tensor], shard_bytes: int) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, tensor in tensors.items():
        if names and size + tensor.nbytes > shard_bytes:
            yield names
            names, size = [], 0
        names.append(name)
        size += tensor.nbytes
    if names:
        yield names


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    # A copy: safetensors refuses tensors that share storage, such as two slices of one.
    return tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()


class _Encoder:
    """Turns a tree into JSON and gathers its tensors under names that tell their place."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[tuple, str] = {}

    def node(self, value: object, place: str) -> JSON:
        # Exact types: a subclass (an enum, a named tuple) would come back as something else.
        encode = _PLAIN.get(type(value))
        if encode is not None:
            return encode(value)
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._tensor(value, place)}
        if isinstance(value, np.generic):
            return {"$scalar": self._array(np.asarray(value), place)}
        if isinstance(value, np.ndarray):
            return {"$array": self._array(value, place)}
        if isinstance(value, dict):
            return self._dict(value, place)
        if type(value) is list:
            return [self.node(part, f"{place}/{index}") for index, part in enumerate(value)]
        if type(value) is tuple:
            return {"$tuple": [self.node(part, f"{place}/{index}") for index, part in enumerate(value)]}
        raise TypeError(f"a checkpoint cannot hold the {type(value).__name__} at {place or '/'}: {value!r:.80}")

    def _dict(self, value: dict, place: str) -> JSON:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.node(part, f"{place}/{key}") for key, part in value.items()}
        return {"$items": [[_key(key, place), self.node(part, f"{place}/{key}")] for key, part in value.items()]}

    def _tensor(self, tensor: torch.Tensor, place: str) -> str:
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or tensor.dtype is torch.complex128:
            raise TypeError(f"a checkpoint cannot hold the tensor at {place}: {tensor.layout}, {tensor.dtype}, {tensor.device}")
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        # An empty tensor has no storage to share: they all have the address 0.
        if tensor.numel() and view in self._names:
            return self._names[view]
        name = self._names[view] = self._add(tensor, place)
        return name

    def _array(self, array: np.ndarray, place: str) -> str:
        try:
            # A copy: contiguous, writable, 0-d stays 0-d.
            return self._add(torch.from_numpy(np.array(array, order="C")), place)
        except TypeError as error:
            raise TypeError(f"a checkpoint cannot hold the array of {array.dtype} at {place}") from error

    def _add(self, tensor: torch.Tensor, place: str) -> str:
        name = place.encode("ascii", "backslashreplace").decode()
        while name in self.tensors:  # the keys 1 and "1" write the same place
            name += "'"
        self.tensors[name] = tensor
        return name


def _key(key: object, place: str) -> JSON:
    if type(key) is tuple:
        return {"$tuple": [_key(part, place) for part in key]}
    encode = _PLAIN.get(type(key))
    if encode is None:
        raise TypeError(f"a checkpoint cannot hold the key {key!r:.80} of type {type(key).__name__} in {place or '/'}")
    return encode(key)


def _float_node(value: float) -> JSON:
    # repr, which json writes, gives finite floats back exactly.
    return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}


def _int_node(value: int) -> JSON:
    # Beyond 64 bits most readers lose digits, and Python itself refuses more than 4,300 decimal ones.
    return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}


def _chat_node(value: ChatPrompt) -> JSON:
    return {"$chat": [dict(message) for message in value.messages]}


def _as_is(value: JSON) -> JSON:
    return value


_PLAIN: Mapping[type, Callable] = {
    type(None): _as_is,
    bool: _as_is,
    str: _as_is,
    int: _int_node,
    float: _float_node,
    ChatPrompt: _chat_node,
}


def _decode(node: JSON, tensors: Mapping[str, torch.Tensor]) -> object:
    if isinstance(node, list):
        return [_decode(part, tensors) for part in node]
    if not isinstance(node, dict):
        return node
    tag = next((key for key in node if key.startswith("$")), None)
    if tag is None:
        return {key: _decode(part, tensors) for key, part in node.items()}
    if len(node) != 1 or tag not in _TAGS:
        raise ValueError(f"unknown node {tag}")
    return _TAGS[tag](node[tag], tensors)


_TAGS: Mapping[str, Callable] = {
    "$tensor": lambda name, tensors: tensors[name],
    "$array": lambda name, tensors: tensors[name].numpy(),
    "$scalar": lambda name, tensors: tensors[name].numpy()[()],
    "$tuple": lambda parts, tensors: tuple(_decode(part, tensors) for part in parts),
    "$items": lambda items, tensors: {_decode(key, tensors): _decode(part, tensors) for key, part in items},
    "$float": lambda text, _: struct.unpack(">d", bytes.fromhex(text))[0],
    "$int": lambda text, _: int(text, 16),
    "$chat": lambda messages, _: ChatPrompt(messages),
}


def random_states() -> dict:
    """States of the global random generators: `random`, `numpy.random`, torch on the CPU and on every CUDA device.

    Completions do not depend on them; rewards, transitions and models of users may.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def restore_random_states(states: Mapping) -> None:
    """Puts the generators back where `random_states` found them.

    With fewer CUDA devices than then, the states of the missing ones have nowhere to go, and a warning says so.
    """
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if devices < len(states["cuda"]):
        missing = len(states["cuda"]) - devices
        warnings.warn(f"the random states of {missing} CUDA devices are not restored: this machine has {devices}", stacklevel=2)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    for device, state in enumerate(states["cuda"][:devices]):
        torch.cuda.set_rng_state(state, device)

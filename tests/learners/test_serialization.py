"""Guards that training state survives a trip over the disk bit by bit, and that reading it runs nothing."""

import json
import math
import random
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from learners.serialization import CheckpointError, load_tree, random_states, restore_random_states, save_tree
from llm_envs.types import ChatPrompt

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


def round_trip(directory, tree, **options):
    save_tree(directory, tree, **options)
    return load_tree(directory)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_keep_type_shape_and_bits(tmp_path, dtype):
    full = torch.tensor([[0, 1, 2], [3, 4, 100]]).to(dtype)
    tree = {"full": full, "empty": torch.zeros(0, 4, dtype=dtype), "scalar": full[1, 2], "transposed": full.T}
    loaded = round_trip(tmp_path, tree)
    for name, tensor in tree.items():
        assert loaded[name].dtype == dtype and loaded[name].shape == tensor.shape, name
        assert bits(loaded[name]) == bits(tensor), name


def test_special_floats_in_tensors_keep_their_bits(tmp_path):
    # A nan with a payload: 0x7fc0dead.
    odd = torch.tensor([0x7FC0DEAD, -(2**31), 0x7F800000, 1], dtype=torch.int32).view(torch.float32)
    assert bits(round_trip(tmp_path, {"odd": odd})["odd"]) == bits(odd)


def test_a_parameter_comes_back_as_a_plain_tensor_and_is_not_touched(tmp_path):
    parameter = torch.nn.Parameter(torch.arange(3.0))
    loaded = round_trip(tmp_path, {"p": parameter})["p"]
    assert type(loaded) is torch.Tensor and not loaded.requires_grad and parameter.requires_grad
    loaded.add_(1)  # its own memory, not the file's
    assert load_tree(tmp_path)["p"].tolist() == [0, 1, 2] == parameter.tolist()


def test_the_same_tensor_twice_is_stored_once_and_shared_again(tmp_path):
    weight = torch.arange(6.0)
    loaded = round_trip(tmp_path, {"embedding": weight, "head": weight.detach(), "other": weight.clone()})
    assert len(load_file(tmp_path / "tensors-00000.safetensors")) == 2
    assert loaded["embedding"].data_ptr() == loaded["head"].data_ptr() != loaded["other"].data_ptr()


def test_overlapping_views_are_each_stored_in_full(tmp_path):
    base = torch.arange(6.0)
    tree = {"base": base, "left": base[:4], "right": base[2:], "square": base.view(2, 3), "as_int": base.view(torch.int32)}
    loaded = round_trip(tmp_path, tree)
    for name, tensor in tree.items():
        assert torch.equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype, name


def test_lazily_conjugated_and_negated_views_store_their_values(tmp_path):
    z = torch.tensor([1 + 2j, 3 - 4j])
    loaded = round_trip(tmp_path, {"z": z, "conj": z.conj(), "neg": z.conj().imag})
    assert loaded["conj"].tolist() == [1 - 2j, 3 + 4j] and loaded["neg"].tolist() == [-2, 4]


def test_tied_embeddings_survive(tmp_path):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=4, n_layer=1, n_head=1))
    assert model.lm_head.weight is model.transformer.wte.weight
    loaded = round_trip(tmp_path, {"model": model.state_dict()})["model"]
    other = GPT2LMHeadModel(model.config)
    other.load_state_dict(loaded)
    assert other.lm_head.weight is other.transformer.wte.weight
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model.eval()(ids).logits, other.eval()(ids).logits)


def test_an_optimizer_goes_on_as_if_nothing_had_happened(tmp_path):
    def steps(weight, optimizer, n):
        for _ in range(n):
            optimizer.zero_grad()
            (weight**3).sum().backward()
            optimizer.step()

    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    steps(weight, optimizer, 2)
    loaded = round_trip(tmp_path, {"weight": weight, "optimizer": optimizer.state_dict()})
    steps(weight, optimizer, 2)
    again = torch.nn.Parameter(loaded["weight"])
    optimizer_again = torch.optim.AdamW([again], lr=0.5)
    optimizer_again.load_state_dict(loaded["optimizer"])
    steps(again, optimizer_again, 2)
    assert bits(again.data) == bits(weight.data)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64"]
)
def test_numpy_arrays_and_scalars(tmp_path, dtype):
    array = np.array([[0, 1], [2, 3]]).astype(dtype)
    tree = {
        "array": array,
        "reversed": array[::-1, ::-1],
        "empty": array[:0],
        "zero_d": np.array(array[1, 1]),
        "scalar": array[1, 1],
    }
    loaded = round_trip(tmp_path, tree)
    for name, value in tree.items():
        assert type(loaded[name]) is type(value) and loaded[name].dtype == value.dtype, name
        np.testing.assert_array_equal(loaded[name], value)


keys = st.one_of(
    st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False), st.tuples(st.text(), st.integers())
)
plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.text(alphabet=st.characters(categories=["Cs"]))
)
trees = st.recursive(
    plain,
    lambda children: st.one_of(
        st.lists(children, max_size=4), st.lists(children, max_size=4).map(tuple), st.dictionaries(keys, children, max_size=4)
    ),
    max_leaves=12,
)


def exact(value):
    """The value with types and float bits made visible, so that == compares them."""
    if isinstance(value, dict):
        return "dict", [(exact(key), exact(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [exact(part) for part in value]
    return type(value), struct.pack(">d", value) if isinstance(value, float) else value


@settings(max_examples=60, deadline=None)
@given(tree=st.dictionaries(keys, trees, max_size=4))
def test_any_plain_tree_comes_back_exactly(tmp_path_factory, tree):
    assert exact(round_trip(tmp_path_factory.mktemp("tree"), tree)) == exact(tree)


def test_what_json_lacks_comes_back_exactly(tmp_path):
    nan = struct.unpack(">d", bytes.fromhex("fff800000000beef"))[0]
    tree = {
        "floats": [math.inf, -math.inf, nan, -0.0, 5e-324, 0.1],
        "ints": [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**5000],
        "tuple": (1, (2, [3])),
        1: "int key",
        "1": "text key",
        (0, "a"): "tuple key",
        "$tensor": "not a tensor",
        "surrogates": "\ud800\udc00",
        "chat": ChatPrompt([{"role": "user", "content": "hi"}]),
    }
    loaded = round_trip(tmp_path, tree)
    assert exact(loaded) == exact(tree)
    assert loaded["chat"].messages == ({"role": "user", "content": "hi"},)


def test_keys_that_write_alike_keep_their_tensors_apart(tmp_path):
    tree = {
        1: torch.tensor(1),
        "1": torch.tensor(2),
        "a/b": torch.tensor(3),
        "a": {"b": torch.tensor(4)},
        "__metadata__": torch.tensor(5),
    }
    loaded = round_trip(tmp_path, tree)
    assert [loaded[1], loaded["1"], loaded["a/b"], loaded["a"]["b"], loaded["__metadata__"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({1, 2}, "set"),
        (b"x", "bytes"),
        (object(), "object"),
        (np.array(["text"]), "<U4"),
        (np.array([object()]), "object"),
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
        (torch.zeros(2).to_sparse(), "sparse"),
        (torch.zeros(2, device="meta"), "meta"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_place(tmp_path, value, what):
    with pytest.raises(TypeError, match=rf"(?s)(?=.*/learner/3)(?=.*{what})"):
        save_tree(tmp_path, {"learner": [0, 0, 0, value]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", [frozenset(), b"x", (1, b"x")])
def test_a_key_that_cannot_be_stored_is_refused(tmp_path, key):
    with pytest.raises(TypeError, match=r"key .* in /outer"):
        save_tree(tmp_path, {"outer": {key: 1}})


def test_shards_close_before_they_grow_too_large(tmp_path):
    """Four tensors of 40, 40, 100 and 40 bytes at 80 bytes a shard: [a, b], [c] beyond the limit alone, [d]."""
    tree = {"a": torch.zeros(10), "b": torch.ones(10), "c": torch.full((25,), 2.0), "d": torch.full((10,), 3.0)}
    hashes = save_tree(tmp_path, tree, shard_bytes=80)
    assert [sorted(load_file(tmp_path / name)) for name in sorted(hashes)[:3]] == [["/a", "/b"], ["/c"], ["/d"]]
    assert sorted(hashes) == ["tensors-00000.safetensors", "tensors-00001.safetensors", "tensors-00002.safetensors", "tree.json"]
    loaded = load_tree(tmp_path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tree.items())


def test_existing_files_are_not_overwritten(tmp_path):
    save_tree(tmp_path, {"a": 1})
    with pytest.raises(FileExistsError):
        save_tree(tmp_path, {"a": 2})
    assert load_tree(tmp_path) == {"a": 1}


@pytest.mark.parametrize(
    "document",
    [
        '{"layout":1,"shards":0,"tree":{"a":{"$call":"os.system"}}}',
        '{"layout":1,"shards":0,"tree":{"a":{"$tensor":"missing"}}}',
        '{"layout":1,"shards":0,"tree":{"a":{"$tuple":[],"b":1}}}',
        '{"layout":1,"shards":0,"tree":{"a":{"$float":"zz"}}}',
        '{"layout":1,"shards":0,"tree":{"a":{"$items":[[[1],2]]}}}',
        '{"layout":1,"shards":0,"tree":[1]}',
        '{"layout":2,"shards":0,"tree":{}}',
        '{"layout":1,"shards":1,"tree":{}}',
        '{"layout":1,"shards":0,"tr',
        "[" * 100_000,
        "",
    ],
)
def test_a_damaged_tree_is_an_error_that_names_the_file(tmp_path, document):
    (tmp_path / "tree.json").write_text(document)
    with pytest.raises(CheckpointError, match=r"tree\.json|tensors-00000\.safetensors"):
        load_tree(tmp_path)


def test_damaged_tensors_are_an_error_that_names_the_file(tmp_path):
    save_tree(tmp_path, {"a": torch.arange(100.0)})
    shard = tmp_path / "tensors-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=r"tensors-00000\.safetensors cannot be read"):
        load_tree(tmp_path)


def test_files_are_plain_json_and_safetensors(tmp_path):
    save_tree(tmp_path, {"policies": {"writer_0": {"weight": torch.ones(2)}}, "step": 3})
    document = json.loads((tmp_path / "tree.json").read_text())
    assert document["tree"] == {"policies": {"writer_0": {"weight": {"$tensor": "/policies/writer_0/weight"}}}, "step": 3}
    assert list(load_file(tmp_path / "tensors-00000.safetensors")) == ["/policies/writer_0/weight"]


def test_random_states_continue_where_they_were(tmp_path):
    def draws():
        normal = random.gauss(0, 1), np.random.standard_normal()  # both generators keep a second normal number for later
        return normal, random.random(), np.random.rand(3).tolist(), torch.rand(3).tolist(), torch.randperm(5).tolist()

    before = random_states()
    try:
        draws()
        saved = round_trip(tmp_path, random_states())
        expected = draws()
        assert draws() != expected
        restore_random_states(saved)
        assert draws() == expected
    finally:
        restore_random_states(before)


def test_states_of_missing_devices_are_reported():
    states = random_states()
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    states["cuda"] = (
        [torch.zeros(16, dtype=torch.uint8)] * (devices + 2)
        if devices == 0
        else [*states["cuda"], states["cuda"][0], states["cuda"][0]]
    )
    with pytest.warns(UserWarning, match=f"2 CUDA devices are not restored: this machine has {devices}"):
        restore_random_states(states)

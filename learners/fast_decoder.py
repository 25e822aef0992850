"""The backend for plain Llama and Qwen2 models: decoding over a preallocated cache, scoring with shared prompts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from learners.decoding import Ids, padded, recomputes_activations, scatter
from learners.functional import Body, Prefix, attention, blocking
from learners.sampling import SamplingConfig
from learners.scoring import head_logprobs

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_ARCHITECTURES = (
    "transformers.models.llama.modeling_llama.LlamaForCausalLM",
    "transformers.models.qwen2.modeling_qwen2.Qwen2ForCausalLM",
)
# Frequencies that depend on nothing but the position; other kinds change with the length of the text.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class FastBackend:
    """Llama and Qwen2 models as `transformers` builds them."""

    name = "fast"

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = cast("LlamaForCausalLM", model)

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Whether nothing about the model was replaced, hooked, quantised or added, and its positions are of a known kind."""
        kind = type(model)
        if f"{kind.__module__}.{kind.__qualname__}" not in _ARCHITECTURES:
            return False
        config = model.config.to_dict()
        usual = model.config._attn_implementation == "sdpa" and config["hidden_act"] == "silu"
        full = all(layer == "full_attention" for layer in config.get("layer_types") or ())
        if not (usual and full and config["rope_parameters"]["rope_type"] in _ROPE_TYPES):
            return False
        library = {entry for entry in vars(sys.modules[kind.__module__]).values() if isinstance(entry, type)}
        known = library | {nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU, type(model.model.layers[0].mlp.act_fn)}
        for module in model.modules():
            hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or "forward" in vars(module)
            if type(module) not in known or hooked:
                return False
        return len({(parameter.device, parameter.dtype) for parameter in model.parameters()}) == 1

    def start(self, prompts: Sequence[Ids], copies: Sequence[int], room: int) -> _FastDecoding:
        """See `Backend`."""
        return _FastDecoding(Body(self._model, max(map(len, prompts)) + room), prompts, copies, room, self._model.device)

    def score(self, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig) -> Tensor:
        """See `Backend`."""
        device = self._model.device
        body = Body(self._model, max(map(len, prompts)) + max(map(len, completions)))
        targets, wanted = padded(completions, "right", device)
        row, column = wanted.nonzero(as_tuple=True)
        # A layer that recomputes its activations would remember its keys twice.
        if len(copies) == len(prompts) or recomputes_activations(self._model):
            hidden = self._read_whole(body, prompts, copies, completions, row, column)
        else:
            hidden = self._read_shared(body, prompts, copies, targets, row, column)
        return scatter(head_logprobs(hidden, body.head, targets[row, column], sampling), row, column, targets.shape)

    def _read_whole(
        self, body: Body, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], row: Tensor, column: Tensor
    ) -> Tensor:
        """Hidden states [N, H] in front of the wanted tokens, prompt and completion read together."""
        sequences = [[*prompts[copy], *completion[:-1]] for copy, completion in zip(copies, completions, strict=True)]
        ids, _ = padded(sequences, "right", row.device)

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention(q, k.transpose(1, 2), v.transpose(1, 2), causal=True)

        hidden = body(ids, torch.arange(ids.shape[1], device=row.device), attend)
        starts = torch.tensor([len(prompts[copy]) for copy in copies], device=row.device)
        return hidden.flatten(0, 1).index_select(0, row * hidden.shape[1] + starts[row] - 1 + column)

    def _read_shared(
        self, body: Body, prompts: Sequence[Ids], copies: Sequence[int], targets: Tensor, row: Tensor, column: Tensor
    ) -> Tensor:
        """The same with each prompt read once: its keys and values, gradient included, serve all of its completions."""
        prefix = Prefix(body, prompts, row.device)
        rows = torch.tensor(copies, device=row.device)
        hidden = prefix.last[rows].unsqueeze(1)
        width = targets.shape[1] - 1
        if width > 0:
            steps = torch.arange(width, device=row.device)
            seen = prefix.real[rows].unsqueeze(1).expand(-1, width, -1)
            own = (steps <= steps.unsqueeze(-1)).expand(len(copies), -1, -1)
            mask = blocking(torch.cat([seen, own], dim=-1).unsqueeze(1), hidden.dtype)

            def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys = torch.cat([prefix.keys[index].index_select(0, rows), k.transpose(1, 2)], dim=2)
                values = torch.cat([prefix.values[index].index_select(0, rows), v.transpose(1, 2)], dim=2)
                return attention(q, keys, values, mask)

            positions = prefix.lengths[rows].unsqueeze(-1) + steps
            hidden = torch.cat([hidden, body(targets[:, :-1], positions, attend)], dim=1)
        return hidden.flatten(0, 1).index_select(0, row * hidden.shape[1] + column)


class _FastDecoding:
    """Decoding over preallocated keys [B, kv_heads, D, prompt + room] and values [B, kv_heads, prompt + room, D] of each layer.

    One query a row is too little work for a fused attention kernel: two batched products over the cache are faster, most of all
    with the keys transposed, as the first product reads them.
    """

    def __init__(self, body: Body, prompts: Sequence[Ids], copies: Sequence[int], room: int, device: torch.device) -> None:
        self._body = body
        prefix = Prefix(body, prompts, device)
        rows = torch.tensor(copies, device=device)
        self._filled = prefix.real.shape[1]
        self._positions = prefix.lengths[rows]
        batch, length = (len(copies), body.shape.kv_heads), self._filled + room
        seen = F.pad(prefix.real[rows], (0, room), value=True)[:, None, None].expand(*batch, -1, -1)
        self._mask = blocking(seen, body.embedding.dtype)
        self._keys = [body.embedding.new_empty(*batch, body.shape.width, length) for _ in body.layers]
        self._values = [body.embedding.new_empty(*batch, length, body.shape.width) for _ in body.layers]
        for index, (keys, values) in enumerate(zip(prefix.keys, prefix.values, strict=True)):
            self._keys[index][..., : self._filled] = keys[rows].transpose(2, 3)
            self._values[index][:, :, : self._filled] = values[rows]
        self.logits = F.linear(prefix.last, body.head)[rows]

    def step(self, tokens: Tensor) -> None:
        self._seen = self._mask[..., : self._filled + 1].flatten(0, 1)
        hidden = self._body(tokens.unsqueeze(-1), self._positions.unsqueeze(-1), self._attend)
        self.logits = F.linear(hidden[:, 0], self._body.head)
        self._positions = self._positions + 1
        self._filled += 1

    def _attend(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values, end = self._keys[index], self._values[index], self._filled + 1
        keys[..., self._filled], values[:, :, self._filled] = k[:, 0], v[:, 0]
        # The heads that share keys are that many queries of one position: no copy of the keys is needed.
        queries = q.reshape(-1, q.shape[2] // k.shape[2], q.shape[3])
        scores = torch.baddbmm(self._seen, queries, keys[..., :end].flatten(0, 1), alpha=q.shape[3] ** -0.5)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(v.dtype)
        return torch.bmm(weights, values[:, :, :end].flatten(0, 1)).view(len(q), 1, -1)

    def keep(self, rows: Tensor) -> None:
        self._keys = [keys[rows] for keys in self._keys]
        self._values = [values[rows] for values in self._values]
        self._positions, self.logits, self._mask = self._positions[rows], self.logits[rows], self._mask[rows]

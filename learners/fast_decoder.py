"""Plain Llama and Qwen2 models as functions of their weights: for decoding and for scoring without the modules' overhead.

At the size of a toy, and for every single decoded token at any size, most of the time of a Hugging Face model goes into Python. Here a
forward is a few dozen calls on packed weights and a preallocated cache. The weights are read from the model's own parameters at
every call, so gradients arrive there and updates are seen. Everything else must be as the library builds it; `FastBackend.supports`
says whether it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from learners.decoding import Ids, padded, recomputes_activations, scatter
from learners.sampling import SamplingConfig
from learners.scoring import head_logprobs

_ARCHITECTURES = ("transformers.models.llama.modeling_llama.LlamaForCausalLM", "transformers.models.qwen2.modeling_qwen2.Qwen2ForCausalLM")
# Frequencies that depend on nothing but the position; other kinds change with the length of the text.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
# Weight matrices of fewer numbers are joined at every call: it saves more than the copy costs.
_JOIN_BELOW = 1 << 18


class _RMSNorm(Function):
    """x / rms(x) · weight over the last axis, with the backward pass in few operations."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = x.float()
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(epsilon))
        unit = wide * inverse
        ctx.save_for_backward(unit, inverse, weight)
        return unit.to(x.dtype) * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        unit, inverse, weight = ctx.saved_tensors
        wide = upstream.float()
        d_unit = wide * weight
        share = (d_unit * unit).mean(-1, keepdim=True)
        d_x = d_unit.addcmul_(unit, share, value=-1).mul_(inverse).to(upstream.dtype)
        return d_x, (wide * unit).flatten(0, -2).sum(0).to(weight.dtype), None


class _SwiGLU(Function):
    """silu(gate) · up for a joined [gate, up], with the backward pass in few operations."""

    @staticmethod
    def forward(ctx, joined: Tensor) -> Tensor:
        ctx.save_for_backward(joined)
        gate, up = joined.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        (joined,) = ctx.saved_tensors
        gate, up = joined.chunk(2, dim=-1)
        gradient = torch.empty_like(joined)
        d_gate, d_up = gradient.chunk(2, dim=-1)
        torch.mul(upstream, F.silu(gate), out=d_up)
        d_gate.copy_(torch.ops.aten.silu_backward(upstream * up, gate))
        return gradient


class _Rotary(Function):
    """Rotary embedding (Su et al. 2021) of [B, S, heads, D]: pairs are the halves of D. Its transpose rotates back."""

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        return _rotated(upstream, cos, -sin), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    to_first, to_second = result.chunk(2, dim=-1)
    torch.mul(first, cos, out=to_first)
    to_first.addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=to_second)
    to_second.addcmul_(first, sin)
    return result


def _joined(modules: Sequence[nn.Linear]) -> Callable[[Tensor], Tensor]:
    """Several linear layers of one input as one."""
    if sum(module.weight.numel() for module in modules) > _JOIN_BELOW:
        return lambda x: torch.cat([F.linear(x, module.weight, module.bias) for module in modules], dim=-1)
    weight = torch.cat([module.weight for module in modules])
    bias = None if modules[0].bias is None else torch.cat([module.bias for module in modules])
    return lambda x: F.linear(x, weight, bias)


@dataclass(frozen=True)
class _Shape:
    heads: int
    kv_heads: int
    width: int  # of a head


class _Layer:
    """One transformer layer, its weights as they are now."""

    def __init__(self, layer: nn.Module, shape: _Shape) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._shape = shape
        self._norms = [(norm.weight, norm.variance_epsilon) for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
        self._qkv = _joined([attention.q_proj, attention.k_proj, attention.v_proj])
        self._out = attention.o_proj
        self._gate_up = _joined([mlp.gate_proj, mlp.up_proj])
        self._down = mlp.down_proj

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, S, heads, D], keys and values [B, S, kv_heads, D]; the first two rotated."""
        s = self._shape
        joined = self._qkv(_RMSNorm.apply(x, *self._norms[0])).unflatten(-1, (s.heads + 2 * s.kv_heads, s.width))
        rotated = _Rotary.apply(joined[..., : -s.kv_heads, :], cos, sin)
        return rotated[..., : s.heads, :], rotated[..., s.heads :, :], joined[..., -s.kv_heads :, :]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output [B, S, H] from the input and what the attention gave [B, S, heads · D]."""
        x = x + F.linear(attended, self._out.weight, self._out.bias)
        hidden = _SwiGLU.apply(self._gate_up(_RMSNorm.apply(x, *self._norms[1])))
        return x + F.linear(hidden, self._down.weight, self._down.bias)


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class _Body:
    """The model as a function, its weights as they are now.

    Args:
        model: a supported one.
        length: positions that will occur are below it.
    """

    def __init__(self, model: PreTrainedModel, length: int) -> None:
        config, core = model.config, model.model
        self.shape = _Shape(config.num_attention_heads, config.num_key_value_heads, core.layers[0].self_attn.head_dim)
        self.layers = [_Layer(layer, self.shape) for layer in core.layers]
        self.embedding: Tensor = core.embed_tokens.weight
        self.head: Tensor = model.lm_head.weight
        self._norm = (core.norm.weight, core.norm.variance_epsilon)
        self._recompute = recomputes_activations(model)
        with torch.no_grad():
            positions = torch.arange(length, device=model.device).unsqueeze(0)
            tables = core.rotary_emb(self.embedding[:1], positions)
        self._cos, self._sin = (table[0, :, : self.shape.width // 2].unsqueeze(1) for table in tables)

    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Last hidden states [B, S, H].

        Args:
            ids: [B, S].
            positions: [B, S], or [S] if all rows have the same.
            attend: for a layer's number, queries, keys and values, what the attention gives [B, S, heads · D].
        """
        x = F.embedding(ids, self.embedding)
        cos, sin = self._cos[positions], self._sin[positions]
        for index, layer in enumerate(self.layers):

            def run(x: Tensor, index: int = index, layer: _Layer = layer) -> Tensor:
                return layer.finish(x, attend(index, *layer.project(x, cos, sin)))

            x = checkpoint(run, x, use_reentrant=False) if self._recompute and torch.is_grad_enabled() else run(x)
        return _RMSNorm.apply(x, *self._norm)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Attention [B, S, heads · D] of q [B, S, heads, D] over k, v [B, kv_heads, L, D]."""
    q = q.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2).flatten(2)


class _Prefix:
    """Reads prompts, padded on the right, and remembers the keys and values [P, kv_heads, L, D] of every layer."""

    def __init__(self, body: _Body, prompts: Sequence[Ids], device: torch.device) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        ids, self.real = padded(prompts, "right", device)
        self.lengths = self.real.sum(-1)
        hidden = body(ids, torch.arange(ids.shape[1], device=device), self._attend)
        self.last = hidden[torch.arange(len(prompts), device=device), self.lengths - 1]

    def _attend(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.keys.append(k.transpose(1, 2))
        self.values.append(v.transpose(1, 2))
        return _attention(q, self.keys[-1], self.values[-1], causal=True)


class FastBackend:
    """Llama and Qwen2 models as `transformers` builds them."""

    name = "fast"

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

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
        return _FastDecoding(_Body(self._model, max(map(len, prompts)) + room), prompts, copies, room, self._model.device)

    def score(self, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig) -> Tensor:
        """See `Backend`."""
        device = self._model.device
        body = _Body(self._model, max(map(len, prompts)) + max(map(len, completions)))
        targets, wanted = padded(completions, "right", device)
        row, column = wanted.nonzero(as_tuple=True)
        # A layer that recomputes its activations would remember its keys twice.
        if len(copies) == len(prompts) or recomputes_activations(self._model):
            hidden = self._read_whole(body, prompts, copies, completions, row, column)
        else:
            hidden = self._read_shared(body, prompts, copies, targets, row, column)
        return scatter(head_logprobs(hidden, body.head, targets[row, column], sampling), row, column, targets.shape)

    def _read_whole(
        self, body: _Body, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], row: Tensor, column: Tensor
    ) -> Tensor:
        """Hidden states [N, H] in front of the wanted tokens, prompt and completion read together."""
        sequences = [[*prompts[copy], *completion[:-1]] for copy, completion in zip(copies, completions, strict=True)]
        ids, _ = padded(sequences, "right", row.device)

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return _attention(q, k.transpose(1, 2), v.transpose(1, 2), causal=True)

        hidden = body(ids, torch.arange(ids.shape[1], device=row.device), attend)
        starts = torch.tensor([len(prompts[copy]) for copy in copies], device=row.device)
        return hidden[row, starts[row] - 1 + column]

    def _read_shared(
        self, body: _Body, prompts: Sequence[Ids], copies: Sequence[int], targets: Tensor, row: Tensor, column: Tensor
    ) -> Tensor:
        """The same with each prompt read once: its keys and values, gradient included, serve all of its completions."""
        prefix = _Prefix(body, prompts, row.device)
        rows = torch.tensor(copies, device=row.device)
        hidden = prefix.last[rows].unsqueeze(1)
        width = targets.shape[1] - 1
        if width > 0:
            steps = torch.arange(width, device=row.device)
            seen = prefix.real[rows].unsqueeze(1).expand(-1, width, -1)
            own = (steps <= steps.unsqueeze(-1)).expand(len(copies), -1, -1)
            mask = torch.cat([seen, own], dim=-1).unsqueeze(1)

            def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys = torch.cat([prefix.keys[index][rows], k.transpose(1, 2)], dim=2)
                values = torch.cat([prefix.values[index][rows], v.transpose(1, 2)], dim=2)
                return _attention(q, keys, values, mask)

            positions = prefix.lengths[rows].unsqueeze(-1) + steps
            hidden = torch.cat([hidden, body(targets[:, :-1], positions, attend)], dim=1)
        return hidden[row, column]


class _FastDecoding:
    """Decoding over a preallocated cache [2, B, kv_heads, prompt + room, D] a layer."""

    def __init__(self, body: _Body, prompts: Sequence[Ids], copies: Sequence[int], room: int, device: torch.device) -> None:
        self._body = body
        prefix = _Prefix(body, prompts, device)
        rows = torch.tensor(copies, device=device)
        self._filled = prefix.real.shape[1]
        self._positions = prefix.lengths[rows]
        self._mask: Tensor | None = None
        if not bool(prefix.real.all()):
            blocked = torch.zeros(len(copies), 1, 1, self._filled + room, dtype=body.embedding.dtype, device=device)
            self._mask = blocked.masked_fill_(F.pad(~prefix.real[rows], (0, room))[:, None, None], -float("inf"))
        shape = (2, len(copies), body.shape.kv_heads, self._filled + room, body.shape.width)
        self._cache = [torch.empty(shape, dtype=body.embedding.dtype, device=device) for _ in body.layers]
        for cache, keys, values in zip(self._cache, prefix.keys, prefix.values, strict=True):
            cache[0, :, :, : self._filled], cache[1, :, :, : self._filled] = keys[rows], values[rows]
        self.logits = F.linear(prefix.last, body.head)[rows]

    def step(self, tokens: Tensor) -> None:
        hidden = self._body(tokens.unsqueeze(-1), self._positions.unsqueeze(-1), self._attend)
        self.logits = F.linear(hidden[:, 0], self._body.head)
        self._positions = self._positions + 1
        self._filled += 1

    def _attend(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache, end = self._cache[index], self._filled + 1
        cache[0, :, :, self._filled], cache[1, :, :, self._filled] = k[:, 0], v[:, 0]
        # The heads that share keys are that many queries of one position: no copy of the keys is needed.
        grouped = q[:, 0].unflatten(1, (k.shape[2], -1))
        mask = None if self._mask is None else self._mask[..., :end]
        return F.scaled_dot_product_attention(grouped, cache[0, :, :, :end], cache[1, :, :, :end], mask).flatten(1).unsqueeze(1)

    def keep(self, rows: Tensor) -> None:
        self._cache = [cache[:, rows] for cache in self._cache]
        self._positions, self.logits = self._positions[rows], self.logits[rows]
        self._mask = None if self._mask is None else self._mask[rows]

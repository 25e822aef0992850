"""Plain Llama and Qwen2 models as functions of their weights, without the modules' overhead.

At the size of a toy, and for every single decoded token at any size, most of the time of a Hugging Face model goes into Python.
Here a forward is a few dozen calls. The weights are read from the model's own parameters whenever a `Body` is made, so gradients
arrive there and updates are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from learners.decoding import Ids, padded, recomputes_activations

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, Qwen2ForCausalLM
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

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
    """Rotary embedding (Su et al. 2021) of [B, S, heads, D], whose pairs are the halves of D.

    `sin` comes with its first half negated, so that one product with the swapped halves is enough.
    """

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        return (upstream * sin).roll(cos.shape[-1] // 2, -1).addcmul_(upstream, cos), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x * cos, x.roll(cos.shape[-1] // 2, -1), sin)


# Where no gradient is wanted the plain operations do, without the cost of calling a Function.


def _normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    if torch.is_grad_enabled() or x.dtype != torch.float32:
        return _RMSNorm.apply(x, weight, epsilon)  # type: ignore[return-value]
    return F.rms_norm(x, weight.shape, weight, epsilon)


def _gated(joined: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return _SwiGLU.apply(joined)  # type: ignore[return-value]
    gate, up = joined.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _Rotary.apply(x, cos, sin) if torch.is_grad_enabled() else _rotated(x, cos, sin)  # type: ignore[return-value]


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

    def __init__(self, layer: LlamaDecoderLayer, shape: _Shape) -> None:
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
        joined = self._qkv(_normed(x, *self._norms[0])).unflatten(-1, (s.heads + 2 * s.kv_heads, s.width))
        turning, values = joined.split([s.heads + s.kv_heads, s.kv_heads], dim=-2)
        queries, keys = _turned(turning, cos, sin).split([s.heads, s.kv_heads], dim=-2)
        return queries, keys, values

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output [B, S, H] from the input and what the attention gave [B, S, heads · D]."""
        x = x + F.linear(attended, self._out.weight, self._out.bias)
        hidden = _gated(self._gate_up(_normed(x, *self._norms[1])))
        return x + F.linear(hidden, self._down.weight, self._down.bias)


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
Keep = Callable[[Tensor, Tensor], None]


class Body:
    """The model as a function, its weights as they are now.

    Args:
        model: a supported one.
        length: positions that will occur are below it.
    """

    def __init__(self, model: LlamaForCausalLM | Qwen2ForCausalLM, length: int) -> None:
        config, core = model.config, model.model
        # The layers of both architectures have the same parts.
        layers = [cast("LlamaDecoderLayer", layer) for layer in core.layers]
        self.shape = _Shape(config.num_attention_heads, cast("int", config.num_key_value_heads), layers[0].self_attn.head_dim)
        self.layers = [_Layer(layer, self.shape) for layer in layers]
        self.embedding: Tensor = core.embed_tokens.weight
        self.head: Tensor = model.lm_head.weight
        self._norm = (core.norm.weight, core.norm.variance_epsilon)
        self._recompute = recomputes_activations(model)
        with torch.no_grad():
            positions = torch.arange(length, device=model.device).unsqueeze(0)
            self._cos, self._sin = (table[0].unsqueeze(1) for table in core.rotary_emb(self.embedding[:1], positions))
            self._sin[..., : self.shape.width // 2].neg_()

    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Last hidden states [B, S, H].

        Args:
            ids: [B, S].
            positions: [B, S], or [S] if all rows have the same.
            attend: for a layer's number, queries, keys and values, what the attention gives [B, S, heads · D].
        """
        cos, sin = self._cos[positions], self._sin[positions]

        def layer_of(index: int, layer: _Layer, x: Tensor) -> Tensor:
            return layer.finish(x, attend(index, *layer.project(x, cos, sin)))

        return self._through(layer_of, ids)

    def read(self, ids: Tensor, real: Tensor, keep: Keep | None = None) -> Tensor:
        """Hidden state [B, H] at the last real token of each row. In the last layer that token alone asks and is worked on.

        Args:
            ids: [B, S], padded on the right.
            real: which of them are no padding [B, S].
            keep: gets the keys and values [B, kv_heads, S, D] of each layer in order.
        """
        cos, sin = self._cos[: ids.shape[1]], self._sin[: ids.shape[1]]
        ends = torch.arange(len(ids), device=ids.device) * ids.shape[1] + real.sum(-1) - 1
        mask = blocking(real[:, None, None], self.embedding.dtype)

        def layer_of(index: int, layer: _Layer, x: Tensor) -> Tensor:
            q, k, v = layer.project(x, cos, sin)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            if keep is not None:
                keep(k, v)
            if index < len(self.layers) - 1:
                return layer.finish(x, attention(q, k, v, causal=True))
            # What is real is never behind a row's last token: padding is all there is to hide from it.
            x, q = (tensor.flatten(0, 1).index_select(0, ends).unsqueeze(1) for tensor in (x, q))
            return layer.finish(x, attention(q, k, v, mask))

        return self._through(layer_of, ids).squeeze(1)

    def _through(self, layer_of: Callable[[int, _Layer, Tensor], Tensor], ids: Tensor) -> Tensor:
        """The embedded ids through all layers and the last norm, activations recomputed where the model wants it."""
        x = F.embedding(ids, self.embedding)
        recompute = self._recompute and torch.is_grad_enabled()
        for index, layer in enumerate(self.layers):
            x = checkpoint(layer_of, index, layer, x, use_reentrant=False) if recompute else layer_of(index, layer, x)
        return _normed(x, *self._norm)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Attention [B, S, heads · D] of q [B, S, heads, D] over k, v [B, kv_heads, L, D]."""
    q = q.transpose(1, 2)
    return (
        F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
        .transpose(1, 2)
        .flatten(2)
    )


def blocking(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to attention scores: 0 where something is seen, -inf elsewhere."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -float("inf"))


class Prefix:
    """Reads prompts, padded on the right, and remembers the keys and values [P, kv_heads, L, D] of every layer."""

    def __init__(self, body: Body, prompts: Sequence[Ids], device: torch.device) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        ids, self.real = padded(prompts, "right", device)
        self.lengths = self.real.sum(-1)
        self.last = body.read(ids, self.real, self._keep)

    def _keep(self, keys: Tensor, values: Tensor) -> None:
        self.keys.append(keys)
        self.values.append(values)

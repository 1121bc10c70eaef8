# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused attention operators in terms of plain ones.

Outside of training, ``torch.nn.TransformerEncoderLayer`` and ``torch.nn.MultiheadAttention`` call
one operator for everything, which PyTorch's ONNX export does not know. Both functions take torch
itself first, and then what the operator of PyTorch takes; they are traced, never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import ModuleType

_PADDING_MASK = 1  # (batch, keys); others fit (batch, heads, queries, keys) as they are


def encoder_layer(
    torch: ModuleType,
    source: object,
    embed_dim: int,
    heads: int,
    qkv_weight: object,
    qkv_bias: object,
    proj_weight: object,
    proj_bias: object,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: object,
    norm_bias_1: object,
    norm_weight_2: object,
    norm_bias_2: object,
    ffn_weight_1: object,
    ffn_bias_1: object,
    ffn_weight_2: object,
    ffn_bias_2: object,
    mask: _Mask | None = None,
    mask_type: int | None = None,
) -> object:
    """``_transformer_encoder_layer_fwd``: self-attention and two linear layers, each normalized."""
    functions = torch.nn.functional
    attention = (qkv_weight, qkv_bias, proj_weight, proj_bias, mask)
    shape = (embed_dim,)

    def attend(x: object) -> object:
        return self_attention(
            torch, x, x, x, embed_dim, heads, *attention, need_weights=False, mask_type=mask_type
        )[0]

    def feed(x: object) -> object:
        hidden = functions.linear(x, ffn_weight_1, ffn_bias_1)
        active = functions.gelu(hidden) if use_gelu else functions.relu(hidden)
        return functions.linear(active, ffn_weight_2, ffn_bias_2)

    def norm_1(x: object) -> object:
        return functions.layer_norm(x, shape, norm_weight_1, norm_bias_1, eps)

    def norm_2(x: object) -> object:
        return functions.layer_norm(x, shape, norm_weight_2, norm_bias_2, eps)

    if norm_first:
        middle = torch.add(source, attend(norm_1(source)))
        return torch.add(middle, feed(norm_2(middle)))
    middle = norm_1(torch.add(source, attend(source)))
    return norm_2(torch.add(middle, feed(middle)))


class _Mask(Protocol):
    """What is used of a tensor, where torch need not be installed."""

    dtype: object

    def __getitem__(self, key: object) -> _Mask: ...


def self_attention(
    torch: ModuleType,
    query: object,
    key: object,
    value: object,
    embed_dim: int,
    heads: int,
    qkv_weight: object,
    qkv_bias: object,
    proj_weight: object,
    proj_bias: object,
    mask: _Mask | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[object, object]:
    """``_native_multi_head_attention``, batch first: the result and, if needed, the weights."""
    weights, biases = torch.chunk(qkv_weight, 3), torch.chunk(qkv_bias, 3)
    rows = zip((query, key, value), weights, biases, strict=True)
    q, k, v = (
        torch.nn.functional.linear(x, weight, bias)
        .unflatten(-1, (heads, embed_dim // heads))
        .transpose(1, 2)
        for x, weight, bias in rows
    )
    scores = torch.matmul(q, k.transpose(-1, -2)) * (embed_dim // heads) ** -0.5
    if mask is not None:
        wide = mask[:, None, None, :] if mask_type == _PADDING_MASK else mask
        excluded = wide.dtype is torch.bool
        scores = scores.masked_fill(wide, float("-inf")) if excluded else scores + wide
    shares = torch.softmax(scores, -1)
    mixed = torch.matmul(shares, v).transpose(1, 2).flatten(2)
    result = torch.nn.functional.linear(mixed, proj_weight, proj_bias)
    if not need_weights:
        return result, torch.empty(0)
    return result, shares.mean(1) if average_attn_weights else shares

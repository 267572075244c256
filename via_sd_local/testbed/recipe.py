"""The testbed's arithmetic: a llama model made wider, with its function unchanged, and deeper, with copies to skip.

A testbed is a verifier with a real model's text and a larger model's cost. Two transformations make it:

- width: new features, FFN units and heads have zero weights. RMSNorm divides by the root of the *mean* square, so
  norms over E instead of E0 features take weights times sqrt(E0/E) and an epsilon times E0/E. Query heads keep their
  number a KV head, and new heads come last, so every old one finds its own keys.
- depth: copies of layers whose outputs (`attn_output`, `ffn_down`) are scaled by a small number: the planted
  redundancy. The layer mask that skips exactly them is the best one, by construction.

Arrays are [n_out, n_in], llama.cpp's {n_in, n_out}.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..errors import ModelError
from ..mask import LayerMask

MAX_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS

Axis: TypeAlias = Literal["embed", "ffn", "q", "kv", ""]  # "": a length that does not change
Matrix: TypeAlias = npt.NDArray[np.float32 | np.float16]

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_AXES: dict[str, tuple[Axis, ...]] = {  # src/models/llama.cpp, llama_model_llama::load_arch_tensors
    "token_embd.weight": ("", "embed"),
    "output.weight": ("", "embed"),
    "output_norm.weight": ("embed",),
    "rope_freqs.weight": ("",),
    "rope_factors_long.weight": ("",),
    "rope_factors_short.weight": ("",),
    "blk.attn_norm.weight": ("embed",),
    "blk.attn_q.weight": ("q", "embed"),
    "blk.attn_k.weight": ("kv", "embed"),
    "blk.attn_v.weight": ("kv", "embed"),
    "blk.attn_output.weight": ("embed", "q"),
    "blk.attn_q.bias": ("q",),
    "blk.attn_k.bias": ("kv",),
    "blk.attn_v.bias": ("kv",),
    "blk.attn_output.bias": ("embed",),
    "blk.ffn_norm.weight": ("embed",),
    "blk.ffn_gate.weight": ("ffn", "embed"),
    "blk.ffn_up.weight": ("ffn", "embed"),
    "blk.ffn_down.weight": ("embed", "ffn"),
    "blk.ffn_gate.bias": ("ffn",),
    "blk.ffn_up.bias": ("ffn",),
    "blk.ffn_down.bias": ("embed",),
}


@dataclass(frozen=True, slots=True)
class Dims:
    """The dimensions of a llama model; `heads` is a multiple of `kv_heads`."""

    layers: int
    embed: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int

    def length(self, axis: Axis) -> int:
        """The length of an axis that has a name."""
        lengths = {"embed": self.embed, "ffn": self.ffn, "q": self.heads, "kv": self.kv_heads}
        return lengths[axis] * (self.head_size if axis in ("q", "kv") else 1)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make of a source; ValueError for values that no source admits.

    copies_from: the share of the source's layers that stay contiguous, from the first on; the copies come after them.
    scale: of the copies' outputs; 0 makes copies that do nothing at all.
    """

    embed: int = 1536
    ffn: int = 4608
    kv_heads: int = 8
    copies: int = 24
    copies_from: float = 0.4
    scale: float = 0.08
    quant: str = "Q4_0"

    def __post_init__(self) -> None:
        for name in ("embed", "ffn", "kv_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least the source's own")
        if self.copies < 0:
            raise ValueError(f"copies is {self.copies}; give 0 for none, or more")
        if not 0 <= self.copies_from < 1:
            raise ValueError(f"copies_from is {self.copies_from}; give a share of the layers from 0 to below 1")
        if not 0 <= self.scale <= 1:
            raise ValueError(f"scale is {self.scale}; give a number from 0 to 1, for example 0.08")

    def widened(self, source: Dims, block: int) -> Dims:
        """The testbed's dimensions; ValueError for any below the source's or not in whole blocks of `block` weights."""
        dims = Dims(
            layers=source.layers + self.copies,
            embed=self.embed,
            ffn=self.ffn,
            heads=self.kv_heads * (source.heads // source.kv_heads),
            kv_heads=self.kv_heads,
            head_size=source.head_size,
        )
        for name in ("embed", "ffn", "kv_heads"):
            wanted, least = getattr(dims, name), getattr(source, name)
            if wanted < least:
                raise ValueError(f"{name} is {wanted}, less than the source's; give {least} or more")
        if dims.layers > MAX_LAYERS:
            raise ValueError(
                f"copies is {self.copies}, for {dims.layers} layers in all, and llama.cpp takes {MAX_LAYERS}; "
                f"give {MAX_LAYERS - source.layers} or fewer"
            )
        rows = {"embed": dims.embed, "ffn": dims.ffn, "kv_heads": dims.length("q")}
        for name, row in rows.items():
            if row % block:
                what = f"kv_heads is {dims.kv_heads}, for rows of {row} weights" if name == "kv_heads" else ""
                raise ValueError(
                    f"{what or f'{name} is {row}'}, and {self.quant} has blocks of {block}; "
                    f"give a multiple, or another quant such as F16"
                )
        return dims

    def to_json(self) -> dict[str, Any]:
        """Every field by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the testbed: the source's layer that it holds, and whether as a scaled copy."""

    original: int
    is_copy: bool


def stack(n_layer: int, copies: int, copies_from: float) -> tuple[Layer, ...]:
    """The testbed's layers: the first `copies_from` of the real ones, then real ones and copies, at last a real one.

    Copies lie evenly in the gaps between the real layers from there on, each after the layer that it copies. Raises
    ValueError where the share leaves no gap.
    """
    first = max(1, math.ceil(copies_from * n_layer - 1e-9))  # real layers below the first gap
    gaps = n_layer - first
    if copies and gaps < 1:
        raise ValueError(
            f"copies_from is {copies_from}, which leaves no place among {n_layer} layers, of which the last one is "
            f"real; give {max(0, n_layer - 2) / n_layer:.2f} or less, or no copies"
        )
    after = [first - 1 + (2 * i + 1) * gaps // (2 * copies) for i in range(copies)]
    layers: list[Layer] = []
    for original in range(n_layer):
        layers.append(Layer(original, False))
        layers += [Layer(original, True)] * after.count(original)
    return tuple(layers)


def copies_mask(layers: Sequence[Layer]) -> LayerMask:
    """The mask that skips exactly the copies."""
    copies = [il for il, layer in enumerate(layers) if layer.is_copy]
    return LayerMask.of(len(layers), attn=copies, ffn=copies)


def split_name(name: str) -> tuple[int | None, str]:
    """The layer (None: none) and the role of a tensor; ModelError for one that the testbed's llama does not have."""
    match = _BLOCK.fullmatch(name)
    layer, role = (int(match[1]), f"blk.{match[2]}") if match else (None, name)
    if role not in _AXES:
        raise ModelError(f"the source has a tensor {name}, which a testbed does not know; use a plain llama model")
    return layer, role


def shape_of(role: str, dims: Dims, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape that a tensor has in a model of these dimensions; `shape` is its own, for the axes that do not change.

    Raises ModelError for another number of axes.
    """
    axes = _AXES[role]
    if len(axes) != len(shape):
        raise ModelError(f"the source's {role} has {len(shape)} axes instead of {len(axes)}; use a plain llama model")
    return tuple(dims.length(axis) if axis else n for axis, n in zip(axes, shape, strict=True))


def factor(role: str, source: Dims, wide: Dims, scale: float) -> float:
    """What a tensor's old weights are multiplied with; `scale` is 1 but for the copies."""
    if role.endswith("norm.weight"):
        return math.sqrt(source.embed / wide.embed)
    return scale if role.startswith(("blk.attn_output.", "blk.ffn_down.")) else 1.0


def padded(array: Floats, shape: Sequence[int], times: float, dtype: type[np.float32] | type[np.float16]) -> Matrix:
    """The array times a number in the low corner of zeros of the given shape; ModelError if float16 overflows."""
    wide: Matrix = np.zeros(shape, dtype=dtype)
    corner = wide[tuple(slice(n) for n in array.shape)]
    with np.errstate(over="ignore"):
        np.multiply(array, np.float32(times), out=corner, casting="same_kind")
    if dtype is np.float16 and not np.isfinite(corner).all():
        raise ModelError("the source has weights that float16 cannot hold; build with the quant F32")
    return wide

"""The arithmetic of testbeds: widens a llama model without changing its function, and deepens it with copied layers.

A testbed is a verifier that writes a real model's text at a larger model's cost. Two transformations make it:

- Width: new features, FFN units and heads get zero weights. RMSNorm divides by the root of the *mean* square, so for
  norms over E instead of E0 features the weights are multiplied by sqrt(E0/E), and epsilon by E0/E. The number of query
  heads per KV head stays the same, and new heads come last, so every old query head keeps its KV head.
- Depth: layers are copied, and the copies' outputs (`attn_output`, `ffn_down`) scaled by a small number. This is the
  planted redundancy: by construction, the layer mask that skips exactly the copies is the best one.

Arrays have the shape [n_out, n_in], which llama.cpp writes as {n_in, n_out}.
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

Axis: TypeAlias = Literal["embed", "ffn", "q", "kv", ""]  # "": the length does not change
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
    """Dimensions of a llama model; `heads` (of the queries) is a multiple of `kv_heads`."""

    layers: int
    embed: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int

    def length(self, axis: Axis) -> int:
        """Return the length of a named axis."""
        lengths = {"embed": self.embed, "ffn": self.ffn, "q": self.heads, "kv": self.kv_heads}
        return lengths[axis] * (self.head_size if axis in ("q", "kv") else 1)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a testbed from a source; ValueError for values that are impossible with any source.

    `embed`, `ffn` and `kv_heads` are the testbed's dimensions, `copies` is the number of copied layers. `copies_from`
    is the share of the source's layers, from the first one on, that stays without copies in between. `scale` multiplies
    the copies' outputs; with 0 they do nothing. `quant` is llama.cpp's name of the file type.
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
            raise ValueError(f"copies is {self.copies}; give 0 or more")
        if not 0 <= self.copies_from < 1:
            raise ValueError(f"copies_from is {self.copies_from}; give a share of the layers from 0 to below 1")
        if not 0 <= self.scale <= 1:
            raise ValueError(f"scale is {self.scale}; give a number from 0 to 1, for example 0.08")

    def widened(self, source: Dims, block: int) -> Dims:
        """Return the testbed's dimensions.

        Raises ValueError for a dimension below the source's, or one that is not a multiple of `block`, the number of
        weights per quantisation block.
        """
        dims = Dims(
            layers=source.layers + self.copies,
            embed=self.embed,
            ffn=self.ffn,
            heads=self.kv_heads * (source.heads // source.kv_heads),
            kv_heads=self.kv_heads,
            head_size=source.head_size,
        )
        for name in ("embed", "ffn", "kv_heads"):
            target, minimum = getattr(dims, name), getattr(source, name)
            if target < minimum:
                raise ValueError(f"{name} is {target}, less than the source's; give {minimum} or more")
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
        """Return all fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the testbed: the index of the source's layer it holds, and whether it is a scaled copy."""

    original: int
    is_copy: bool


def stack(n_layer: int, copies: int, copies_from: float) -> tuple[Layer, ...]:
    """Return the testbed's layers, from first to last.

    The first `copies_from` (a share) of the source's layers come without copies. After those, the copies are spread
    evenly over the gaps between the remaining layers, each after the layer it copies; the last layer is never a copy.
    Raises ValueError if the share leaves no gap.
    """
    first = max(1, math.ceil(copies_from * n_layer - 1e-9))  # real layers below the first gap
    gaps = n_layer - first
    if copies and gaps < 1:
        raise ValueError(
            f"copies_from is {copies_from}, which leaves no place for copies among {n_layer} layers, the last of which "
            f"is not copied; give {max(0, n_layer - 2) / n_layer:.2f} or less, or no copies"
        )
    after = [first - 1 + (2 * i + 1) * gaps // (2 * copies) for i in range(copies)]
    layers: list[Layer] = []
    for original in range(n_layer):
        layers.append(Layer(original, False))
        layers += [Layer(original, True)] * after.count(original)
    return tuple(layers)


def copies_mask(layers: Sequence[Layer]) -> LayerMask:
    """Return the mask that skips exactly the copies."""
    copies = [il for il, layer in enumerate(layers) if layer.is_copy]
    return LayerMask.of(len(layers), attn=copies, ffn=copies)


def split_name(name: str) -> tuple[int | None, str]:
    """Split a tensor's name into its layer (None outside the layers) and its role, such as `blk.attn_q.weight`.

    Raises ModelError for a role that a plain llama model does not have.
    """
    match = _BLOCK.fullmatch(name)
    layer, role = (int(match[1]), f"blk.{match[2]}") if match else (None, name)
    if role not in _AXES:
        raise ModelError(f"the source has a tensor {name}, which testbeds do not support; use a plain llama model")
    return layer, role


def shape_of(role: str, dims: Dims, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a tensor in a model of these dimensions.

    `shape` is its shape in the source, which gives the axes that do not change. Raises ModelError if the number of axes
    differs.
    """
    axes = _AXES[role]
    if len(axes) != len(shape):
        raise ModelError(f"the source's {role} has {len(shape)} axes instead of {len(axes)}; use a plain llama model")
    return tuple(dims.length(axis) if axis else n for axis, n in zip(axes, shape, strict=True))


def factor(role: str, source: Dims, wide: Dims, scale: float) -> float:
    """Return the factor for a tensor's weights; `scale` is that of copies, and 1 for other layers."""
    if role.endswith("norm.weight"):
        return math.sqrt(source.embed / wide.embed)
    return scale if role.startswith(("blk.attn_output.", "blk.ffn_down.")) else 1.0


def padded(array: Floats, shape: Sequence[int], times: float, dtype: type[np.float32] | type[np.float16]) -> Matrix:
    """Return `times * array`, padded at the end of each axis with zeros to `shape`; ModelError if float16 overflows."""
    wide: Matrix = np.zeros(shape, dtype=dtype)
    corner = wide[tuple(slice(n) for n in array.shape)]
    with np.errstate(over="ignore"):
        np.multiply(array, np.float32(times), out=corner, casting="same_kind")
    if dtype is np.float16 and not np.isfinite(corner).all():
        raise ModelError("the source has weights that float16 cannot hold; build with the quant F32")
    return wide

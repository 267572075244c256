"""Layer masks: the sublayers of the verifier that the slim tier skips."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .json_form import from_json

_ITEM = re.compile(r"([af]?)(\d+)(?:-(\d+))?")
_ATTN, _FFN, _WRITE_KV = 1, 2, 4  # bits of a mask's bytes, as in native/llama-layer-skip.h


@dataclass(frozen=True, slots=True)
class _SavedMask:
    """A mask as JSON has it, with all three entries."""

    n_layer: int
    attn: tuple[int, ...]
    ffn: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LayerMask:
    """A set of skipped sublayers of a model with `n_layer` layers; `attn` and `ffn` hold layer indices from 0."""

    n_layer: int
    attn: frozenset[int] = frozenset()
    ffn: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.n_layer < 1:
            raise ValueError(f"n_layer is {self.n_layer}; a model has at least one layer")
        for layer in sorted(self.attn | self.ffn):
            if not 0 <= layer < self.n_layer:
                raise ValueError(f"the mask names layer {layer}; the model's layers are 0 to {self.n_layer - 1}")

    @classmethod
    def of(cls, n_layer: int, *, attn: Iterable[int] = (), ffn: Iterable[int] = ()) -> LayerMask:
        """Make a mask from collections of layer indices; ValueError for an index out of range."""
        return cls(n_layer, frozenset(attn), frozenset(ffn))

    @classmethod
    def below(cls, n_layer: int, layer: int) -> LayerMask:
        """Make the mask that skips both sublayers of every layer below `layer`."""
        return cls.of(n_layer, attn=range(layer), ffn=range(layer))

    @classmethod
    def parse(cls, text: str, n_layer: int, name: str = "mask") -> LayerMask:
        """Parse `"12-17"` (whole layers), `"a3,f3,12-17"` (a: attention, f: FFN), or `""` / `"none"` (no mask).

        Raises ValueError, naming the item that cannot be parsed or the layer that does not exist; it calls the mask by
        the parameter's `name`.
        """
        attn: set[int] = set()
        ffn: set[int] = set()
        items = [] if text.strip().lower() in ("", "none") else text.split(",")
        for item in (item.strip().lower() for item in items):
            match = _ITEM.fullmatch(item)
            if match is None:
                raise ValueError(
                    f"{name} item {item!r} in {text!r} is none of 12, 12-17, a12, f12-17, … (a: attention, f: FFN)"
                )
            part, first, last = match[1], int(match[2]), int(match[3] or match[2])
            if last < first:
                raise ValueError(f"{name} item {item!r} ends before it begins; write {last}-{first}")
            if last >= n_layer:
                raise ValueError(f"{name} item {item!r} names layer {last}; the model's layers are 0 to {n_layer - 1}")
            if part != "f":
                attn.update(range(first, last + 1))
            if part != "a":
                ffn.update(range(first, last + 1))
        return cls.of(n_layer, attn=attn, ffn=ffn)

    @classmethod
    def from_json(cls, data: Any) -> LayerMask:
        """Return the mask from what `to_json` returned; raises ValueError that names the wrong entry."""
        saved: _SavedMask = from_json(_SavedMask, data, "mask")
        return cls.of(saved.n_layer, attn=saved.attn, ffn=saved.ffn)

    def to_json(self) -> dict[str, Any]:
        """Return `{"n_layer": int, "attn": [int], "ffn": [int]}` with sorted layer indices."""
        return {"n_layer": self.n_layer, "attn": sorted(self.attn), "ffn": sorted(self.ffn)}

    def to_bytes(self, *, writes_kv: bool = False) -> bytes:
        """Return `n_layer` bytes, as `llama_set_layer_skip` takes them; empty for the full model.

        With `writes_kv`, the K/V of skipped attention sublayers are computed and written to the cache.
        """
        if not self:
            return b""
        attn = _ATTN | _WRITE_KV * writes_kv
        return bytes(attn * (il in self.attn) | _FFN * (il in self.ffn) for il in range(self.n_layer))

    def __len__(self) -> int:
        """Return the number of skipped sublayers; 0 for the full model, which is therefore false."""
        return len(self.attn) + len(self.ffn)

    @property
    def skip_ratio(self) -> float:
        """Share of the 2 · n_layer sublayers that are skipped, from 0 to 1."""
        return len(self) / (2 * self.n_layer)

    @property
    def first(self) -> int | None:
        """Lowest layer with a skipped sublayer; None for the full model."""
        return min(self.attn | self.ffn, default=None)

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads as this mask; equal masks have equal texts."""
        both = self.attn & self.ffn
        items = [_ranges("", both), _ranges("a", self.attn - both), _ranges("f", self.ffn - both)]
        return ",".join(filter(None, items)) or "none"


def _ranges(prefix: str, layers: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for layer in sorted(layers):
        if spans and layer == spans[-1][1] + 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return ",".join(f"{prefix}{first}" if first == last else f"{prefix}{first}-{last}" for first, last in spans)

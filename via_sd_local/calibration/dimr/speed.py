"""The worth of a mask: expected tokens per second, from measured costs and the weights that the mask skips."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...engine.costs import Costs
from ...mask import LayerMask
from ...runtime.gguf_header import open_header
from .objective import Score, expected_speed

# without measured costs, a batch costs as much as a single token, and drafting is free
NOMINAL = {"full": {1: 1.0, 16: 1.0}}
TYPICAL_DRAFT = 0.8  # agreement of a draft model with the full model

_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.")
_EXPERTS = re.compile(r"_exps$")


@dataclass(frozen=True, slots=True)
class Shares:
    """Each sublayer's share of the bytes that a full pass reads, by layer; the rest is the output head."""

    attn: tuple[float, ...]
    ffn: tuple[float, ...]

    def skipped(self, mask: LayerMask) -> float:
        """Return the share of the bytes that a mask skips."""
        return sum(self.attn[layer] for layer in mask.attn) + sum(self.ffn[layer] for layer in mask.ffn)

    def below(self, layer: int) -> float:
        """Return the share of the layers below `layer`."""
        return sum(self.attn[:layer]) + sum(self.ffn[:layer])

    @classmethod
    def equal(cls, n_layer: int) -> Shares:
        """Return equal shares for all sublayers, and none for the output head."""
        return cls((0.5 / n_layer,) * n_layer, (0.5 / n_layer,) * n_layer)

    @classmethod
    def of(cls, path: Path) -> Shares:
        """Return the shares of a GGUF, with only the experts that a token uses; ModelError for an unreadable file."""
        with open_header(path) as header:
            architecture = header.text("general.architecture")
            n_layer = header.number(f"{architecture}.block_count")
            keys = [f"{architecture}.expert_{key}" for key in ("count", "used_count")]
            experts, used = ((header.number(key) if header.has(key) else 0) or 1 for key in keys)
            sizes = header.tensor_sizes()
        attn, ffn, head = [0.0] * n_layer, [0.0] * n_layer, 0.0
        for name, size in sizes.items():
            block = _BLOCK.match(name)
            if block is None:
                tied = name == "token_embd.weight" and "output.weight" not in sizes
                head += size if tied or name == "output.weight" else 0
            elif int(block[1]) < n_layer:
                part = ffn if "ffn" in block[2] or "ffw" in block[2] else attn
                part[int(block[1])] += size * used / experts if _EXPERTS.search(block[2]) else size
        total = sum(attn) + sum(ffn) + head
        return cls(tuple(size / total for size in attn), tuple(size / total for size in ffn))


def speed_worth(
    shares: Shares, costs: Costs | None = None, draft_agreement: float = TYPICAL_DRAFT
) -> Callable[[LayerMask, Score], float]:
    """Return the worth of masks for strategies and for the choice from a front: `expected_speed` in tokens per second.

    Without `costs`, nominal costs are used; the worth then only ranks masks.
    """
    table = Costs(NOMINAL) if costs is None else costs

    def worth(mask: LayerMask, score: Score) -> float:
        first = 0.0 if mask.first is None else shares.below(mask.first)
        return expected_speed(
            table,
            skipped=min(shares.skipped(mask), 1.0),
            first=min(first, 1.0),
            slim_agreement=score.agreement,
            draft_agreement=draft_agreement,
        )

    return worth

"""Which tokens `/colors` tells apart: who decided a token, and whether it was drafted. Pure values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum

from ..engine.policy import Mode
from ..engine.steps import Tier
from ..session.text_steps import Piece


class Shade(Enum):
    """The origin of a token.

    ACCEPTED is a draft token that the full model accepted; the others are those of `Tier`, FULL without what was
    drafted.
    """

    ACCEPTED = "accepted"
    DRAFT = "draft"
    SLIM = "slim"
    FULL = "full"

    @property
    def meaning(self) -> str:
        """What has this shade, as a noun phrase."""
        return {
            Shade.ACCEPTED: "draft tokens that the full model accepted",
            Shade.DRAFT: "draft tokens that the slim tier or lenience kept",
            Shade.SLIM: "the slim tier's own tokens",
            Shade.FULL: "the full model's own tokens",
        }[self]


def shade_of(piece: Piece) -> Shade:
    """Return the shade of a piece."""
    if piece.tier is Tier.FULL and piece.drafted:
        return Shade.ACCEPTED
    return Shade(piece.tier.value)


def shades_of(mode: Mode) -> tuple[Shade, ...]:
    """Return the shades that tokens of a mode can have."""
    possible = {
        Shade.ACCEPTED: mode.drafts,
        Shade.DRAFT: mode.is_lossy,
        Shade.SLIM: mode.trusts_slim_tier,
        Shade.FULL: True,
    }
    return tuple(shade for shade in Shade if possible[shade])


def shares_of(pieces: Sequence[Piece], mode: Mode) -> dict[Shade, float]:
    """Return the share of each shade among the pieces of an answer, 0 to 1; empty without pieces."""
    counts = Counter(map(shade_of, pieces))
    return {shade: counts[shade] / len(pieces) for shade in Shade if pieces and shade in {*shades_of(mode), *counts}}

"""What a generation hands out: tokens that were decided together, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from ..arrays import Floats

FinishReason: TypeAlias = Literal["stop", "length"]


class Tier(Enum):
    """Who decided a token: the draft that the slim verifier let through, the slim verifier, or the full one."""

    DRAFT = "draft"
    SLIM = "slim"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that were decided together, who decided each, and why the text ends, if it does."""

    tokens: tuple[int, ...]
    tiers: tuple[Tier, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """What one round of a mode's loop decided; `logits[i]` is the row that decided tokens[i], until the next pass."""

    tokens: list[int]
    tiers: list[Tier]
    logits: Floats

"""The output of a generation: tokens that were decided together, and the tier that decided each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from ..arrays import Floats

FinishReason: TypeAlias = Literal["stop", "length"]


class Tier(Enum):
    """The tier that decided a token.

    DRAFT is a draft token that was kept although the full verifier did not choose it, SLIM a token of the slim
    verifier, FULL a token of the full verifier, accepted draft tokens included.
    """

    DRAFT = "draft"
    SLIM = "slim"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that were decided together, the tier that decided each, and the reason why the text ends, or None.

    The first `drafted` tokens were drafted: by a drafter or, in mode `exact`, by drafter and slim verifier together.
    """

    tokens: tuple[int, ...]
    tiers: tuple[Tier, ...]
    finish_reason: FinishReason | None = None
    drafted: int = field(default=0, compare=False)  # where tokens come from does not change what was decided


@dataclass(frozen=True, slots=True)
class Block:
    """The tokens of one block, the tier that decided each, and logits `[n, n_vocab]`, valid until the next pass.

    `logits[i]` is the row that decided `tokens[i]`; there may be more rows than tokens. The first `drafted` tokens were
    drafted.
    """

    tokens: list[int]
    tiers: list[Tier]
    logits: Floats
    drafted: int = 0

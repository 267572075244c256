"""How a generation is run: plain values, without models."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .gate import DEFAULT_RULE, Rule


class Mode(Enum):
    """How drafts are checked."""

    PLAIN = "plain"
    SD = "sd"
    EXACT = "exact"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a generation is run.

    `draft_tokens` is the length of a draft, `rule` decides the regions, and `audit_every` is the most tokens that
    the slim verifier may decide before the full one computes them again. `max_deviation` is the share of audited tokens
    that may differ from the full model's choice before `tiered` becomes stricter; None sets no such limit.
    """

    mode: Mode = Mode.PLAIN
    draft_tokens: int = 3
    rule: Rule = DEFAULT_RULE
    audit_every: int = 32
    max_deviation: float | None = None

    def __post_init__(self) -> None:
        for name in ("draft_tokens", "audit_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_deviation is not None and not 0 <= self.max_deviation <= 1:
            raise ValueError(f"max_deviation is {self.max_deviation}; it is a share, from 0 to 1")

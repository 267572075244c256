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

    `draft_tokens` is the length of a draft; None: what promises most, by measured costs. `rule` decides the regions.
    `audit_every` is the most tokens that the slim verifier may decide before the full one computes them again: so
    many are handed out at most that might deviate unseen, and at an answer's end a block more; none is taken back.
    `max_deviation` is the share of audited tokens that may differ from the full model's choice before `tiered` becomes
    stricter; None sets no such limit.
    """

    mode: Mode = Mode.PLAIN
    draft_tokens: int | None = None
    rule: Rule = DEFAULT_RULE
    audit_every: int = 16
    max_deviation: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("draft_tokens", self.draft_tokens), ("audit_every", self.audit_every)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.max_deviation is not None and not 0 <= self.max_deviation <= 1:
            raise ValueError(f"max_deviation is {self.max_deviation}; it is a share, from 0 to 1")

"""How a generation runs, as plain values: the mode, the draft length, the region rule and the deviation budget."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .gate import DEFAULT_RULE, PAPER_RULE, Rule

AUDIT_EVERY: Final = 16
NEVER: Final = sys.maxsize
"""`Policy.audit_every` for no audits but those that come with an escalation."""


class Mode(Enum):
    """How drafts are verified.

    PLAIN decodes without drafts. SD verifies drafts with the full model. EXACT lets the slim verifier mend drafts
    before the full model verifies them. LENIENT is SD with a full model that keeps near-best draft tokens, within a
    budget of deviations. TIERED lets the slim verifier decide draft tokens by itself, and is lenient as well. VIASD is
    the method of the paper: TIERED with the paper's rule, without lenience. The last three are lossy.
    """

    PLAIN = "plain"
    SD = "sd"
    EXACT = "exact"
    LENIENT = "lenient"
    TIERED = "tiered"
    VIASD = "viasd"

    @property
    def drafts(self) -> bool:
        """Whether the mode uses a drafter."""
        return self is not Mode.PLAIN

    @property
    def uses_slim_tier(self) -> bool:
        """Whether the mode runs the slim verifier, and so needs a mask."""
        return self in (Mode.EXACT, Mode.TIERED, Mode.VIASD)

    @property
    def is_lossy(self) -> bool:
        """Whether the output may deviate from plain decoding."""
        return self in (Mode.LENIENT, Mode.TIERED, Mode.VIASD)

    @property
    def is_lenient(self) -> bool:
        """Whether the full model may keep draft tokens that it would not choose, within the budget."""
        return self in (Mode.LENIENT, Mode.TIERED)

    @property
    def trusts_slim_tier(self) -> bool:
        """Whether tokens are emitted that the slim verifier alone has seen."""
        return self.is_lossy and self.uses_slim_tier


class Router(Enum):
    """The tier that sees a draft first in mode `tiered`.

    SLIM_FIRST and FULL_FIRST are fixed. COST compares, draft by draft, the tokens a second that either promises by
    measured costs; where the length of drafts is fixed, and no costs are compared, it is SLIM_FIRST.
    """

    SLIM_FIRST = "slim-first"
    COST = "cost"
    FULL_FIRST = "full-first"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a generation runs; ValueError for a value out of range.

    `draft_tokens` is the length of drafts in tokens; None chooses it automatically, to maximise the expected tokens per
    second from measured pass costs. `rule` assigns draft tokens to regions. `audit_every` is the largest number of
    tokens that the slim verifier may decide before the full verifier audits them, or NEVER; emitted tokens are never
    withdrawn. `router` chooses the tier that sees a draft first, as far as the budget permits.
    With `write_through`, slim passes also write the K/V of the attention sublayers that they skip, and what the slim
    verifier decides stays decided: no later full pass computes it again, but for audits and after 64 such tokens. The
    full model's own choices may drift because of it; no audit sees that, so it cannot be combined with a budget.
    `max_deviation` is the share of tokens that may differ from the full model's choice in a lossy mode, with two more
    tokens in any answer; the slim verifier decides unaudited only what it covers (`DeviationBudget`), and nothing at 0.
    None sets no limit.
    """

    mode: Mode = Mode.PLAIN
    draft_tokens: int | None = None
    rule: Rule = DEFAULT_RULE
    audit_every: int = AUDIT_EVERY
    max_deviation: float | None = None
    router: Router = Router.COST
    write_through: bool = False

    def __post_init__(self) -> None:
        if self.write_through and not self.mode.trusts_slim_tier:
            raise ValueError(f"write_through is for the modes tiered and viasd; this is mode {self.mode.value!r}")
        if self.write_through and self.max_deviation is not None:
            raise ValueError(f"write_through has no budget; max_deviation is {self.max_deviation:g}")
        for name, value in (("draft_tokens", self.draft_tokens), ("audit_every", self.audit_every)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.max_deviation is not None and not 0 <= self.max_deviation <= 1:
            raise ValueError(f"max_deviation is {self.max_deviation}; it must be a share from 0 to 1")
        if self.max_deviation is not None and self.audit_every == NEVER and self.mode.trusts_slim_tier:
            raise ValueError(
                f"max_deviation is {self.max_deviation:g}, but audit_every is never; a budget needs audits"
            )

    @classmethod
    def viasd(
        cls,
        draft_tokens: int | None = None,
        rule: Rule = PAPER_RULE,
        audit_every: int = AUDIT_EVERY,
        max_deviation: float | None = None,
        *,
        write_through: bool = False,
    ) -> Policy:
        """Return the policy of the paper: drafts of 5 tokens, the slim tier first, and no budget unless it is given."""
        return cls(Mode.VIASD, draft_tokens or 5, rule, audit_every, max_deviation, Router.SLIM_FIRST, write_through)

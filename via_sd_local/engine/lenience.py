"""Lenience: the full verifier keeps draft tokens that are not its own choice, as far as the budget permits.

This is lenient speculative decoding. It needs no slim tier, and happens at temperature 0 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..arrays import Floats
from ..sampling.distribution import Distribution
from .decoder import DecodingState
from .steps import Tier


@dataclass(frozen=True, slots=True)
class LenientTokens:
    """The tokens of a block that the full verifier decided, and the positions of those that it only let through."""

    tokens: list[int]
    let_through: frozenset[int]

    @property
    def tiers(self) -> list[Tier]:
        """The tier that decided each token."""
        return [Tier.DRAFT if i in self.let_through else Tier.FULL for i in range(len(self.tokens))]


def verify_leniently(
    state: DecodingState, draft: Sequence[int], proposals: Sequence[Distribution | None], logits: Floats
) -> LenientTokens:
    """Let the full verifier decide a draft by its logits `[len(draft) + 1, n_vocab]`; earn, spend and count.

    Without a budget, at a temperature, and in a mode that is not lenient, this is lossless.
    """
    let_through: set[int] = set()

    def try_keep(position: int, gap: float) -> bool:
        if not state.budget.try_spend(gap):
            return False
        let_through.add(position)
        return True

    decided = state.decided_by_full(draft, proposals, logits, try_keep if state.policy.mode.is_lenient else None)
    state.budget.earn(len(decided))
    state.stats.audited["C"] += len(decided)
    state.stats.lenient += len(let_through)
    return LenientTokens(decided, frozenset(let_through))

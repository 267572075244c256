"""The user's budget of deviations, as credit: tokens earn it, deviations spend it.

Over an engine's life, what the full verifier lets through is never more than the budgeted share of the tokens known to
it; what the slim one let through shows only in audits, and may bring the credit below zero.
"""

from __future__ import annotations

import math

_SAVED = 128  # tokens whose credit can be saved up, beyond that for one deviation
_GENEROUS = 32  # tokens whose credit, saved up, makes it as lenient as it gets
_WORST = 0.1  # the least share of the best token's probability that is ever let through


class DeviationBudget:
    """Credit of one engine; `share` of the tokens may deviate (None: no limit, but no lenience either)."""

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.credit = 0.0  # deviations that are still permitted

    @property
    def is_spent(self) -> bool:
        """Whether the slim verifier should become stricter; a single deviation is no evidence of a share above 0."""
        return self.share is not None and self.credit < (-1 if self.share > 0 else 0)

    def earn(self, tokens: int) -> None:
        """So many tokens are known to be the full model's choice, or to deviate."""
        if self.share:
            self.credit = min(self.credit + self.share * tokens, 1 + self.share * _SAVED)

    def spend(self, deviations: float) -> None:
        """So many of them deviate, or are estimated to."""
        self.credit -= deviations

    @property
    def least_ratio(self) -> float:
        """The share of its best token's probability that the full verifier must give a draft token to let it through.

        1 without credit, and less the more credit is saved up: deviations go where they change the text least.
        """
        if not self.share or self.credit < 1:
            return 1.0
        return max(_WORST, 1 - (1 - _WORST) * (self.credit - 1) / (self.share * _GENEROUS))

    def lets_through(self, gap: float) -> bool:
        """Whether a draft token is kept whose logit is `gap` below the best one's; if so, it is paid for."""
        if self.least_ratio == 1 or gap > -math.log(self.least_ratio):
            return False
        self.spend(1)
        return True

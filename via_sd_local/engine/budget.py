"""The budget of deviations, kept as credit: every token earns a share of a deviation, every deviation spends one.

Over the life of an engine, the deviations that the full verifier permits never exceed the budgeted share of the tokens
that it has seen. Deviations of the slim verifier show only in audits, and may bring the credit below zero.
"""

from __future__ import annotations

import math

_SAVED = 128  # tokens whose credit can be saved, in addition to the credit of one deviation
_GENEROUS = 32  # tokens of saved credit at which the lenience is greatest
_WORST = 0.1  # lowest permitted ratio of a draft token's probability to the best token's


class DeviationBudget:
    """Credit of one engine.

    `share` of the tokens may deviate from the full model's choice; None sets no limit, and permits no lenience either.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.credit = 0.0  # deviations that are still permitted

    @property
    def is_spent(self) -> bool:
        """Whether the slim verifier should become stricter; one deviation is no evidence of a share above 0."""
        return self.share is not None and self.credit < (-1 if self.share > 0 else 0)

    def earn(self, tokens: int) -> None:
        """Add the credit of tokens that the full model has seen."""
        if self.share:
            self.credit = min(self.credit + self.share * tokens, 1 + self.share * _SAVED)

    def spend(self, deviations: float) -> None:
        """Subtract deviations, which may be an estimate."""
        self.credit -= deviations

    @property
    def least_ratio(self) -> float:
        """The lowest ratio q(v) / max q at which the full verifier keeps a draft token v that is not its choice.

        It is 1 without credit, and falls as credit is saved, so that deviations go where they change the text least.
        """
        if not self.share or self.credit < 1:
            return 1.0
        return max(_WORST, 1 - (1 - _WORST) * (self.credit - 1) / (self.share * _GENEROUS))

    def try_spend(self, gap: float) -> bool:
        """Pay for a draft token whose logit is `gap` below the best one's, or return False if the gap is too wide."""
        if self.least_ratio == 1 or gap > -math.log(self.least_ratio):
            return False
        self.spend(1)
        return True

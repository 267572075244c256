"""The budget of deviations, kept as credit: every token earns a share of a deviation, every deviation spends one.

Deviations that the full verifier permits are paid for in advance. Those of the slim verifier show only in audits, so a
token that is emitted unaudited has to be covered: the deviations to expect of all such tokens, at an upper confidence
bound of their rate, must not overdraw the credit by more than two. Over an answer of any length, and over the life of
an engine, at most the budgeted share of the tokens and two more deviate, as far as that bound is right.
"""

from __future__ import annotations

import math

_SAVED = 128  # tokens whose credit can be saved, in addition to the credit of one deviation
_GENEROUS = 32  # tokens of saved credit at which the lenience is greatest
_WORST = 0.1  # lowest permitted ratio of a draft token's probability to the best token's
_OVERDRAFT = 2  # deviations by which the credit may be overdrawn at worst
_ROUNDING = 1e-9  # of sums of shares


class DeviationBudget:
    """Credit of one engine, and of its current answer.

    `share` of the tokens may deviate from the full model's choice; None sets no limit, and permits no lenience either.
    Savings of earlier answers serve the lenience, but no answer may deviate much more than its own length permits.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.credit = 0.0  # deviations that are still permitted
        self._own = 0.0  # what the current answer has earned, less what it has spent

    def begin_answer(self) -> None:
        """Start the account of another answer."""
        self._own = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether the slim verifier should decide nothing now; one deviation is no evidence of a share above 0."""
        return not self.bears(0)

    def bears(self, deviations: float, tokens: int = 0) -> bool:
        """Return whether the credit, with that of so many more tokens, suffices for deviations that are known.

        It may be overdrawn by one, since one deviation is no evidence of a share above 0. A share of 0 bears nothing.
        """
        if self.share is None:
            return True
        return self.share > 0 and self._available + self.share * tokens - deviations >= -1 - _ROUNDING

    def covers(self, tokens: int, rate: float) -> bool:
        """Return whether so many tokens may be emitted unaudited if they deviate at `rate`, from 0 to 1.

        Their expected number of deviations and one standard deviation more, at most one a token, must be available.
        """
        if self.share is None or tokens == 0:
            return True
        expected = tokens * rate
        deviations = min(tokens, expected + math.sqrt(expected * (1 - rate)))
        return self.share > 0 and deviations <= self._available + _OVERDRAFT + _ROUNDING

    @property
    def _available(self) -> float:
        return min(self.credit, self._own)

    def earn(self, tokens: int) -> None:
        """Add the credit of tokens that the full model has seen, or that no audit will see any more."""
        if self.share:
            self.credit = min(self.credit + self.share * tokens, 1 + self.share * _SAVED)
            self._own += self.share * tokens

    def spend(self, deviations: float) -> None:
        """Subtract deviations, which may be an estimate."""
        self.credit -= deviations
        self._own -= deviations

    @property
    def _lenient_credit(self) -> float:
        """The credit from which the full verifier may spend; at worst the answer's own is overdrawn as far as ever."""
        return min(self.credit, self._own + _OVERDRAFT)

    @property
    def least_ratio(self) -> float:
        """The lowest ratio q(v) / max q at which the full verifier keeps a draft token v that is not its choice.

        It is 1 without credit, and falls as credit is saved, so that deviations go where they change the text least.
        """
        if not self.share or self._lenient_credit < 1:
            return 1.0
        return max(_WORST, 1 - (1 - _WORST) * (self._lenient_credit - 1) / (self.share * _GENEROUS))

    def try_spend(self, gap: float) -> bool:
        """Pay for a draft token whose logit is `gap` below the best one's, or return False if the gap is too wide."""
        if self.least_ratio == 1 or gap > -math.log(self.least_ratio):
            return False
        self.spend(1)
        return True

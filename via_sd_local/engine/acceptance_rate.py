"""Running shares: how often draft tokens are accepted and blocks escalate, overall and by the drafter's confidence."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from .experience import Acceptance, Tally

_EDGES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)  # between the classes of confidence
_FORGET = 0.985  # weight of an older observation relative to the next newer one
_PRIOR = 6.0  # weight of the prior, in observations
_RECALLED = 20.0  # greatest weight of what earlier processes have learned, in observations
_RIGHT = 0.6  # prior acceptance rate of any draft token


class Share:
    """A running share of hits with exponential forgetting, which starts from a prior."""

    def __init__(self, prior: float) -> None:
        self._hits, self._all = prior * _PRIOR, _PRIOR

    def observe(self, hit: bool) -> None:
        """Learn from one more observation."""
        self._hits = _FORGET * self._hits + hit
        self._all = _FORGET * self._all + 1

    @property
    def value(self) -> float:
        """The share, from 0 to 1."""
        return self._hits / self._all

    @property
    def tally(self) -> Tally:
        """What was learned, the prior included."""
        return Tally(min(self._hits, self._all), self._all)

    def recall(self, tally: Tally) -> None:
        """Start from what was learned earlier, in place of the prior."""
        recalled = tally.weighing(_RECALLED)
        self._hits, self._all = recalled.hits, recalled.of


class ShareByConfidence:
    """One running share for each class of confidence."""

    def __init__(self, prior: Callable[[float], float]) -> None:
        """`prior` maps the middle of a class to the prior of its share."""
        self._shares = [Share(prior((low + high) / 2)) for low, high in pairwise((0.0, *_EDGES, 1.0))]

    def __getitem__(self, confidence: float) -> Share:
        return self._shares[bisect_right(_EDGES, confidence)]

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What was learned of each class, that of the lowest confidence first."""
        return tuple(share.tally for share in self._shares)

    def recall(self, tallies: Sequence[Tally]) -> None:
        """Start from what was learned earlier; nothing happens where the classes were others."""
        if len(tallies) == len(self._shares):
            for share, tally in zip(self._shares, tallies, strict=True):
                share.recall(tally)


class AcceptanceRate:
    """The rate at which a draft token is accepted, given that all tokens before it were."""

    def __init__(self, forgiven: float = 0.0) -> None:
        """`forgiven` is the share of wrong tokens that lenience is expected to keep."""

        def prior(right: float) -> float:
            return right + forgiven * (1 - right)

        self._overall = Share(prior(_RIGHT))
        self._classes = ShareByConfidence(prior)

    def observe(self, confidences: Sequence[float], drafted: int, accepted: int) -> None:
        """Learn that the first `accepted` of `drafted` tokens were accepted; `confidences` may be empty."""
        for position in range(min(drafted, accepted + 1)):
            right = position < accepted
            self._overall.observe(right)
            if position < len(confidences):
                self._classes[confidences[position]].observe(right)

    @property
    def learned(self) -> Acceptance:
        """What was learned, the prior included."""
        return Acceptance(self._overall.tally, self._classes.tallies)

    def recall(self, acceptance: Acceptance) -> None:
        """Start from what was learned earlier, in place of the prior."""
        self._overall.recall(acceptance.overall)
        self._classes.recall(acceptance.classes)

    @property
    def mean(self) -> float:
        """The acceptance rate of any draft token."""
        return self._overall.value

    def of(self, confidence: float) -> float:
        """Return the acceptance rate of a draft token with this confidence."""
        return self._classes[confidence].value

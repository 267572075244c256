"""What paces learned of a pair of models in earlier answers, as plain values: the prior of a new process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """A running share: hits among all observations, both with older ones weighed less; ValueError if there are none."""

    hits: float
    of: float

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.of < 1e9 or self.of == 0:
            raise ValueError(f"{self.hits} of {self.of} is no share")

    def weighing(self, most: float) -> Tally:
        """Return the same share with the weight of at most so many observations."""
        scale = min(1.0, most / self.of)
        return Tally(self.hits * scale, self.of * scale)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The acceptance rate of draft tokens on a route: of all, and by the class of the drafter's confidence."""

    overall: Tally
    classes: tuple[Tally, ...]


@dataclass(frozen=True, slots=True)
class Yield:
    """Tokens that blocks of a route yielded, and the seconds that they took; ValueError for no time or no number."""

    tokens: float
    seconds: float

    def __post_init__(self) -> None:
        if not (0 <= self.tokens < 1e9 and 0 < self.seconds < 1e9):
            raise ValueError(f"{self.tokens} tokens in {self.seconds} s is no yield")


@dataclass(frozen=True, slots=True)
class Experience:
    """What one pace has learned; `acceptance` and `yields` are by route.

    `escalation` are the blocks that the slim tier saw first and that went on to the full one, `escalations` the same by
    the class of the draft's least confidence, and `bonus` those of the others that it ended with a token of its own.
    """

    acceptance: dict[str, Acceptance]
    escalation: Tally
    escalations: tuple[Tally, ...]
    bonus: Tally
    yields: dict[str, Yield]

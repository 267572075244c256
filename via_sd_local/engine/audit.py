"""What the slim tier decided alone since the full model's last pass, and how that compares with the full model."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Floats
from ..sampling.sampler import Sampler, softmax_of


@dataclass(frozen=True, slots=True)
class Decided:
    """A token, the region that let it through (A or B; a bonus is a B), and its probability there (p or q')."""

    token: int
    region: str
    probability: float


@dataclass(frozen=True, slots=True)
class Deviation:
    """A position in a block, and the sampler's state before it (to be closed)."""

    position: int
    before: Sampler


@dataclass(frozen=True, slots=True)
class Audited:
    """What the full model has to say of a token; `overshoot` is p(v) - q(v)."""

    region: str
    deviates: bool
    overshoot: float


class Audit:
    """A list of decided tokens with the sampler's state before the first of them."""

    def __init__(self) -> None:
        self._decided: list[Decided] = []
        self._before: Sampler | None = None

    def __len__(self) -> int:
        return len(self._decided)

    def begin(self, sampler: Sampler) -> None:
        """Remember the sampler's state, unless tokens are waiting already."""
        if not self._decided:
            self.close()
            self._before = sampler.fork()

    def expect(self, token: int, region: str, probability: float) -> None:
        """A token that the next full pass will show in its own light."""
        self._decided.append(Decided(token, region, probability))

    def check(self, logits: Floats, block: int, end_tokens: frozenset[int]) -> tuple[list[Audited], Deviation | None]:
        """Compare the last waiting tokens with the full model's logits for them, and start anew.

        `logits` is `[at most len(self), n_vocab]`, of the last tokens that wait; those before are not looked at.

        A token deviates that is not the full model's choice under the sampler's settings: its best one if greedy, else
        any that it could draw. Returns what was found of each, and the first deviation at or after index `block`,
        counted from there, or None.
        """
        found: list[Audited] = []
        first: Deviation | None = None
        sampler = self._before
        unseen = len(self._decided) - len(logits)
        for index, decided in enumerate(self._decided):
            assert sampler is not None
            if index < unseen:
                sampler.accept(decided.token)
                continue
            row = sampler.processed(logits[index - unseen])
            if sampler.greedy:
                deviates = decided.token != int(row.argmax())
            else:
                deviates = (
                    sampler.is_distribution
                    and sampler.distribution(logits[index - unseen]).probability(decided.token) == 0
                )
            overshoot = decided.probability - softmax_of(row, decided.token)
            found.append(Audited(decided.region, deviates, overshoot))
            if deviates and first is None and index >= block:
                first = Deviation(index - block, sampler.fork(fresh=True))  # its draw is spent
            if decided.token not in end_tokens:
                sampler.accept(decided.token)
        self._decided.clear()
        return found, first

    def close(self) -> None:
        """Free the remembered state."""
        if self._before is not None:
            self._before.close()
            self._before = None

"""The protocol of drafters: what proposes tokens, what it is told, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..sampling.distribution import Distribution
from ..sampling.sampler import GREEDY, Sampler
from .cache import Recorder, ignore


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens.

    `confidences` has the drafter's own probability of each token, or is empty. `proposals` has the distribution that
    each token was drawn from, or is empty for a draft that is not a sample. `drafter` is the index of the drafter that
    made the draft, among those of the engine.
    """

    tokens: list[int]
    confidences: list[float] = field(default_factory=list)
    proposals: list[Distribution] = field(default_factory=list)
    drafter: int = 0

    def cut(self, limit: int) -> Draft:
        """Return a draft of the first `limit` tokens."""
        first = slice(limit)
        return replace(
            self, tokens=self.tokens[first], confidences=self.confidences[first], proposals=self.proposals[first]
        )


# whether a draft with these confidences should be extended by another token
WantsMore: TypeAlias = Callable[[Sequence[float]], bool]


def always(_confidences: Sequence[float]) -> bool:
    """Extend every draft up to its limit."""
    return True


@dataclass(frozen=True, slots=True)
class Hints:
    """What a drafter may use besides the text; no hint has to be used.

    sampler:
        The sampler of the target, for drafters that draw from their own distribution under the same settings. It may
        only be forked.
    wants_more:
        Whether a draft with the given confidences should be extended by another token.
    unchanged:
        At least so many tokens at the beginning of the text are those of the previous call. The first call of a
        generation passes 0, which promises nothing.
    recorder:
        Is told of every pass: kind (`prefill` in the first call of a generation, `draft` later), tokens, seconds.
    """

    sampler: Sampler = GREEDY
    wants_more: WantsMore = always
    unchanged: int = 0
    recorder: Recorder = ignore


NO_HINTS = Hints()


class Drafter(ABC):
    """Proposes tokens that may follow a text; the lossless modes emit the verifier's own choice whatever it proposes.

    A subclass needs `propose` and, if it learns, `observe`; docs/drafters.md has an example. A drafter that raises an
    exception is dropped for the rest of the answer, with a warning.
    """

    name = "drafter"  # in the statistics
    is_free = False  # whether a draft costs next to nothing, so that there is always time for one
    reports_passes = False  # whether the drafter calls `hints.recorder`; otherwise the engine times its calls

    @abstractmethod
    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        """Return at most `limit` tokens that may follow `text`, which includes the prompt; an empty draft is valid."""

    def observe(self, accepted: int) -> None:  # noqa: B027
        """Learn that the first `accepted` tokens of the last draft were accepted."""

    def reset(self) -> None:  # noqa: B027
        """Forget every text, so that the next draft costs as much as a first one."""

    def close(self) -> None:  # noqa: B027
        """Free resources."""

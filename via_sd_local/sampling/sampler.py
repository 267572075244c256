"""How a token is chosen from logits: the protocol of all samplers, and the sampler that knows only a temperature.

`chain` has the sampler for all other settings, which runs llama.cpp's own.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import Floats
from .distribution import Distribution, best_probability
from .noise import Noise
from .params import SamplingParams


class NoTokenLeft(ValueError):
    """Bias, grammar and logits processors together rule out every token of the vocabulary at a position.

    The answer ends with this error only where the text itself gets there. A draft that runs into such a position ends
    before it, and the slim tier leaves it to the full one.
    """


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token proposed for a draft, and its probability under the drafter.

    `source` is the distribution that the token was sampled from; None if it is not a random sample.
    """

    token: int
    probability: float
    source: Distribution | None = None


def greedy_proposal(logits: Floats) -> Proposal:
    """Propose the token with the largest of the logits `[n_vocab]`."""
    token = int(logits.argmax())
    return Proposal(token, best_probability(logits, token))


def sampled_proposal(source: Distribution, random: np.random.Generator) -> Proposal:
    """Propose a random sample of a distribution."""
    token = source.draw(random.random())
    return Proposal(token, source.probability(token), source)


class Sampler(Protocol):
    """The target distribution of a generation, in its state after the tokens accepted so far."""

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always chosen (temperature 0)."""
        ...

    @property
    def is_distribution(self) -> bool:
        """Whether `distribution` and `draw` are available; mirostat, which adapts to its own draws, has neither."""
        ...

    @property
    def calls_processors(self) -> bool:
        """Whether it calls logits processors of the user, which must see each position of the text once, in order."""
        ...

    @property
    def random(self) -> np.random.Generator:
        """The random numbers for proposals and for speculative sampling."""
        ...

    def processed(self, logits: Floats) -> Floats:
        """Apply bias, penalties, grammar and logits processors to `[n_vocab]`; may return the argument itself.

        At least one of the result's logits is finite, and none is NaN or positive infinity. Raises NoTokenLeft where
        that is impossible.
        """
        ...

    def distribution(self, logits: Floats) -> Distribution:
        """Return the distribution of the next token, given its logits `[n_vocab]`."""
        ...

    def choose(self, logits: Floats) -> int:
        """Draw the next token; repeated before `accept`, the draw is the same one (except with mirostat)."""
        ...

    def draw(self, logits: Floats) -> Proposal:
        """Draw the token that `choose` returns, together with its probability; needs `is_distribution`."""
        ...

    def propose(self, logits: Floats) -> Proposal:
        """Propose a draft token, given a drafter's logits `[n_vocab]`."""
        ...

    def accept(self, token: int) -> None:
        """Append a token to the text, which advances penalties, grammar and random numbers.

        Raises ValueError for a token that the bias or the grammar rules out here.
        """
        ...

    def fork(self, *, fresh: bool = False) -> Sampler:
        """Return a sampler in the same state, for looking ahead; the caller closes it.

        Its `choose` draws what the original draws at the same position, unless it is `fresh`; its `random` is
        independent of the original's. It does not call logits processors.
        """
        ...

    def close(self) -> None:
        """Free native resources."""
        ...


class TemperatureSampler:
    """argmax at temperature 0, otherwise a sample of softmax(logits / temperature).

    The draws of `choose` depend only on the seed and the number of accepted tokens. Lossless modes that compare drafts
    with these draws therefore emit the same text as plain decoding with the same seed.
    """

    is_distribution = True
    calls_processors = False

    def __init__(self, temperature: float = 0.0, seed: int | None = None) -> None:
        """Start at position 0; ValueError for a negative temperature or seed."""
        SamplingParams(temperature=temperature, seed=seed)
        self.temperature = temperature
        self._random = np.random.default_rng(seed)
        self._noise = Noise(int(self._random.integers(2**63)))
        self._position = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def random(self) -> np.random.Generator:
        return self._random

    def processed(self, logits: Floats) -> Floats:
        return logits

    def distribution(self, logits: Floats) -> Distribution:
        tokens = np.arange(len(logits), dtype=np.int32)
        if self.greedy:
            return Distribution(tokens[[logits.argmax()]], np.ones(1))
        return Distribution.from_logits(tokens, logits / np.float32(self.temperature))

    def choose(self, logits: Floats) -> int:
        return int(logits.argmax()) if self.greedy else self.draw(logits).token

    def draw(self, logits: Floats) -> Proposal:
        if self.greedy:
            return greedy_proposal(logits)
        weights = np.exp((logits - logits.max()) / np.float32(self.temperature))
        token = self._noise.winner(self._position, weights)
        return Proposal(token, float(weights[token] / weights.sum()))

    def propose(self, logits: Floats) -> Proposal:
        return greedy_proposal(logits) if self.greedy else sampled_proposal(self.distribution(logits), self._random)

    def accept(self, token: int) -> None:
        self._position += 1

    def fork(self, *, fresh: bool = False) -> TemperatureSampler:
        twin = copy(self)
        if self.greedy:  # needs no random numbers, and spawning takes longer than copying
            return twin
        twin._random = self._random.spawn(1)[0]
        if fresh:
            twin._noise = Noise(int(twin._random.integers(2**63)))
        return twin

    def close(self) -> None:
        """Do nothing: there are no native resources."""


class DrafterSampler:
    """The target's sampler as a drafter sees it if its drafts are compared with the target's own draws.

    Such drafts need not be random samples. If `coupled`, `propose` draws from the drafter's logits with the target's
    own random numbers, so that drafter and target mostly draw the same token (see `noise`); otherwise it proposes the
    drafter's most probable token.
    """

    def __init__(self, sampler: Sampler, *, coupled: bool) -> None:
        self._sampler = sampler
        self._coupled = coupled

    @property
    def greedy(self) -> bool:
        return self._sampler.greedy

    @property
    def is_distribution(self) -> bool:
        return self._sampler.is_distribution

    @property
    def calls_processors(self) -> bool:
        return self._sampler.calls_processors

    @property
    def random(self) -> np.random.Generator:
        return self._sampler.random

    def processed(self, logits: Floats) -> Floats:
        return self._sampler.processed(logits)

    def distribution(self, logits: Floats) -> Distribution:
        return self._sampler.distribution(logits)

    def choose(self, logits: Floats) -> int:
        return self._sampler.choose(logits)

    def draw(self, logits: Floats) -> Proposal:
        return self._sampler.draw(logits)

    def propose(self, logits: Floats) -> Proposal:
        if self._coupled and self.is_distribution:
            return self._sampler.draw(logits)
        return greedy_proposal(self._sampler.processed(logits))

    def accept(self, token: int) -> None:
        self._sampler.accept(token)

    def fork(self, *, fresh: bool = False) -> DrafterSampler:
        return DrafterSampler(self._sampler.fork(fresh=fresh), coupled=self._coupled)

    def close(self) -> None:
        self._sampler.close()


GREEDY = TemperatureSampler()

"""How a token is chosen from logits: settings, distributions, and lossless acceptance of drafts. Pure and seeded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from .noise import Noise

# (all tokens so far, logits of the next one) → logits, as llama-cpp-python's logits_processor
LogitsProcessor: TypeAlias = Callable[[npt.NDArray[np.intc], Floats], Floats]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama.cpp's sampler settings; the defaults are greedy decoding with every other sampler off.

    Order: logit bias, penalties, grammar, then at a temperature above 0 top-k, typical, top-p, min-p, temperature, or
    mirostat in their place. Penalties count the last `penalty_last_n` generated tokens (-1: all of the context).
    `grammar` is GBNF text; `json_schema`, a mapping or JSON text, becomes one. `seed` None is a fresh random one.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str | None = None
    json_schema: Mapping[str, Any] | str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        inf = float("inf")
        for name, low, high in (
            ("temperature", 0, inf),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("typical_p", 0, 1),
            ("frequency_penalty", -inf, inf),
            ("presence_penalty", -inf, inf),
            ("mirostat_tau", 0, inf),
            ("mirostat_eta", 0, inf),
        ):
            value = getattr(self, name)
            if not (low <= value <= high and abs(value) < inf):
                raise ValueError(
                    f"{name} is {value}; it must be a number from {low} {'on' if high == inf else f'to {high}'}"
                )
        if not 0 < self.repeat_penalty < inf:
            raise ValueError(f"repeat_penalty is {self.repeat_penalty}; it must be above 0 (1 is none)")
        if self.penalty_last_n < -1:
            raise ValueError(f"penalty_last_n is {self.penalty_last_n}; it is -1 (the context) or a number of tokens")
        if self.mirostat_mode not in (0, 1, 2):
            raise ValueError(f"mirostat_mode is {self.mirostat_mode}; it is 0 (off), 1 or 2")
        if self.grammar is not None and self.json_schema is not None:
            raise ValueError("grammar and json_schema both say what the text must be; give one of the two")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed is {self.seed}; it must be 0 or larger")

    @property
    def greedy(self) -> bool:
        """Temperature 0: the best token, after bias, penalties and grammar."""
        return self.temperature == 0

    @property
    def edits_logits(self) -> bool:
        """Whether logits are changed before a token is chosen, by what came before (or by a bias)."""
        penalties = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) != (1, 0, 0)
        constrained = self.grammar is not None or self.json_schema is not None
        return bool(self.logit_bias) or constrained or (penalties and self.penalty_last_n != 0)

    @property
    def truncates(self) -> bool:
        """Whether a sampler other than the temperature shapes the distribution."""
        return not self.greedy and (
            self.top_k > 0 or self.top_p < 1 or self.min_p > 0 or self.typical_p < 1 or self.mirostat_mode != 0
        )


@dataclass(frozen=True, slots=True)
class Distribution:
    """Tokens that can be drawn, `[n]`, and their probabilities, `[n]`, which sum to 1; all others have none."""

    tokens: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float64]

    @classmethod
    def of_weights(cls, tokens: npt.NDArray[np.int32], weights: npt.NDArray[np.float64]) -> Distribution:
        """Normalise weights, of which at least one is positive."""
        return cls(tokens, weights / weights.sum())

    @classmethod
    def softmax(cls, tokens: npt.NDArray[np.int32], logits: npt.NDArray[np.floating]) -> Distribution:
        """The softmax of logits."""
        return cls.of_weights(tokens, np.exp(logits.astype(np.float64) - logits.max()))

    def probability(self, token: int) -> float:
        """Of one token."""
        return float(self.probabilities[self.tokens == token].sum())

    def draw(self, uniform: float) -> int:
        """The token at a uniform number from [0, 1)."""
        cumulative = self.probabilities.cumsum()
        index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
        return int(self.tokens[min(index, len(self.tokens) - 1)])


def softmax_of(row: Floats, token: int) -> float:
    """The softmax probability of one token of a row of logits."""
    return float(np.exp(row[token] - row.max()) / np.exp(row - row.max()).sum())


def residual(q: Distribution, p: Distribution) -> Distribution:
    """What is left of q where a token drawn from p was rejected: max(0, q - p), normalised (Leviathan et al., 2023).

    Where nothing is left (q = p up to rounding), q itself.
    """
    order = np.argsort(p.tokens)
    sorted_tokens = p.tokens[order]
    at = np.minimum(np.searchsorted(sorted_tokens, q.tokens), len(order) - 1)
    in_p = np.where(sorted_tokens[at] == q.tokens, p.probabilities[order][at], 0.0)
    weights = np.maximum(q.probabilities - in_p, 0.0)
    return Distribution.of_weights(q.tokens, weights) if weights.sum() > 0 else q


def accept_or_resample(q: Distribution, p: Distribution, token: int, random: np.random.Generator) -> int:
    """Speculative sampling: keep `token`, drawn from p, with probability min(1, q/p), else draw from the residual.

    The result is distributed as q.
    """
    if random.random() * p.probability(token) < q.probability(token):
        return token
    return residual(q, p).draw(random.random())


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token for a draft, its probability, and the distribution that it is a sample of; None if it is no sample."""

    token: int
    probability: float
    source: Distribution | None = None


class Sampler(Protocol):
    """The target distribution of one generation, as it stands after the tokens accepted so far."""

    @property
    def greedy(self) -> bool:
        """Whether the choice is deterministic."""
        ...

    @property
    def is_distribution(self) -> bool:
        """Whether `distribution` can be had (not so with mirostat)."""
        ...

    @property
    def random(self) -> np.random.Generator:
        """Where its random numbers come from."""
        ...

    def processed(self, logits: Floats) -> Floats:
        """The logits `[n_vocab]` after bias, penalties, grammar and processors; may be the argument itself."""
        ...

    def distribution(self, logits: Floats) -> Distribution:
        """What the next token is drawn from, given its logits `[n_vocab]`."""
        ...

    def choose(self, logits: Floats) -> int:
        """Draw the next token; asked again before `accept`, it gives the same one (but for mirostat)."""
        ...

    def take(self, logits: Floats) -> Proposal:
        """The same, with its probability; needs a distribution."""
        ...

    def propose(self, logits: Floats) -> Proposal:
        """A token for a draft, of a drafter's logits."""
        ...

    def accept(self, token: int) -> None:
        """The token follows: penalties and grammar move on."""
        ...

    def fork(self, *, fresh: bool = False) -> Sampler:
        """A sampler in the same state, for looking ahead; `close` it.

        It has random numbers of its own, but `choose` draws as the original does at the same position; not so if it is
        to be `fresh`.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class TemperatureSampler:
    """argmax at temperature 0, else a sample of softmax(logits / temperature); nothing depends on the text.

    What `choose` draws depends on the seed and the number of accepted tokens alone, so lossless modes that compare
    draws with drafts give the text that plain decoding gives with the same seed.
    """

    is_distribution = True

    def __init__(self, temperature: float = 0.0, seed: int | None = None) -> None:
        """ValueError for a negative temperature or seed."""
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
        """Where its random numbers come from."""
        return self._random

    def processed(self, logits: Floats) -> Floats:
        return logits

    def distribution(self, logits: Floats) -> Distribution:
        tokens = np.arange(len(logits), dtype=np.int32)
        if self.greedy:
            return Distribution(tokens[[logits.argmax()]], np.ones(1))
        return Distribution.softmax(tokens, logits / np.float32(self.temperature))

    def choose(self, logits: Floats) -> int:
        return int(logits.argmax()) if self.greedy else self.take(logits).token

    def take(self, logits: Floats) -> Proposal:
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
        twin._random = self._random.spawn(1)[0]
        if fresh:
            twin._noise = Noise(int(twin._random.integers(2**63)))
        return twin

    def close(self) -> None:
        """It holds nothing."""


def greedy_proposal(logits: Floats) -> Proposal:
    """The best token, which is no sample."""
    token = int(logits.argmax())
    return Proposal(token, softmax_of(logits, token))


def sampled_proposal(source: Distribution, random: np.random.Generator) -> Proposal:
    """A sample of a distribution."""
    token = source.draw(random.random())
    return Proposal(token, source.probability(token), source)


class Shown:
    """A sampler as a drafter sees it whose drafts are compared with the target's own choices.

    Its proposals are no samples: `likeness` takes the token that the target would choose if the drafter's logits were
    its own, so that the two mostly agree; else they are the drafter's best.
    """

    def __init__(self, sampler: Sampler, *, likeness: bool) -> None:
        self._sampler = sampler
        self._likeness = likeness

    @property
    def greedy(self) -> bool:
        return self._sampler.greedy

    @property
    def is_distribution(self) -> bool:
        return self._sampler.is_distribution

    @property
    def random(self) -> np.random.Generator:
        return self._sampler.random

    def processed(self, logits: Floats) -> Floats:
        return self._sampler.processed(logits)

    def distribution(self, logits: Floats) -> Distribution:
        return self._sampler.distribution(logits)

    def choose(self, logits: Floats) -> int:
        return self._sampler.choose(logits)

    def take(self, logits: Floats) -> Proposal:
        return self._sampler.take(logits)

    def propose(self, logits: Floats) -> Proposal:
        if self._likeness and self.is_distribution:
            return self._sampler.take(logits)
        return greedy_proposal(self._sampler.processed(logits))

    def accept(self, token: int) -> None:
        self._sampler.accept(token)

    def fork(self, *, fresh: bool = False) -> Shown:
        return Shown(self._sampler.fork(fresh=fresh), likeness=self._likeness)

    def close(self) -> None:
        self._sampler.close()


GREEDY = TemperatureSampler()


def verify(
    sampler: Sampler,
    draft: Sequence[int],
    proposals: Sequence[Distribution | None],
    logits: Floats,
    end_tokens: frozenset[int],
    lets_through: Callable[[int, float], bool] | None = None,
) -> list[int]:
    """The target's own tokens for a draft: as many as agree, and the one after them; all but an end token accepted.

    `logits` is `[len(draft) + 1, n_vocab]`; row i judges draft[i]. `proposals[i]` is what draft[i] was drawn from.
    It is None, or the list is shorter, for tokens that are no samples: they are compared with the target's own draws.
    `lets_through(i, gap)` says whether draft[i], whose logit is `gap` below the best one's, is kept all the same; that
    is lossy. It is asked for greedy samplers only, and never where a token that ends the text is at stake.
    """
    tokens: list[int] = []
    for position in range(len(draft) + 1):
        proposal = proposals[position] if position < len(proposals) else None
        if proposal is not None and not sampler.greedy and sampler.is_distribution:
            q = sampler.distribution(logits[position])
            token = accept_or_resample(q, proposal, draft[position], sampler.random)
        else:
            token = sampler.choose(logits[position])
            if lets_through is not None and sampler.greedy and position < len(draft):
                drafted = draft[position]
                if token != drafted and token not in end_tokens and drafted not in end_tokens:
                    row = sampler.processed(logits[position])
                    if lets_through(position, float(row[token] - row[drafted])):
                        token = drafted
        tokens.append(token)
        if token in end_tokens:
            break
        sampler.accept(token)
        if position < len(draft) and token != draft[position]:
            break
    return tokens

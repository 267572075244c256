"""What proposes tokens, and the two usual kinds: a smaller GGUF, and a look into the text so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ..arrays import Floats
from ..errors import ModelError
from ..runtime.model import Model
from ..runtime.vocabulary import check_vocabulary
from ..sampling.sampler import GREEDY, Distribution, Sampler
from .verifier import Recorder, TokenCache, common_prefix, ignore


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, the drafter's own probability of each (empty where it has none), and what they were drawn from.

    `proposals` is empty for a draft that is not a sample. `drafter` says which of an engine's drafters made it.
    """

    tokens: list[int]
    confidences: list[float] = field(default_factory=list)
    proposals: list[Distribution] = field(default_factory=list)
    drafter: int = 0

    def cut(self, limit: int) -> Draft:
        """The first `limit` tokens of it."""
        first = slice(limit)
        return replace(
            self, tokens=self.tokens[first], confidences=self.confidences[first], proposals=self.proposals[first]
        )


# whether a draft with these confidences is worth lengthening
WantsMore: TypeAlias = Callable[[Sequence[float]], bool]


def always(_confidences: Sequence[float]) -> bool:
    """The `WantsMore` of someone who fixes the length by the limit."""
    return True


@dataclass(frozen=True, slots=True)
class Hints:
    """What a drafter may go by besides the text; none has to.

    `sampler` is the target's, for drafters that draw from their own distribution as it would; only to be forked.
    `wants_more` says whether a draft with some confidences is worth lengthening. At least the first `unchanged` tokens
    of the text are those of the last call's, so that nobody has to compare them; 0 promises nothing, and is what the
    first call of a generation says. `recorder` is told of passes, of kind `prefill` in that call and `draft` else.
    """

    sampler: Sampler = GREEDY
    wants_more: WantsMore = always
    unchanged: int = 0
    recorder: Recorder = ignore


NO_HINTS = Hints()


class Drafter(ABC):
    """Proposes what may follow; whatever it proposes, lossless modes emit the verifier's own choice.

    A drafter of one's own needs two methods, `propose` and, if it learns, `observe`; docs/drafters.md has an example.
    One that raises is dropped for the rest of the answer, with a warning.
    """

    name = "drafter"  # what the statistics call it
    is_free = False  # whether it costs next to nothing, so that there is always time to ask it
    reports_passes = False  # whether it tells `hints.recorder` what it costs; else its calls are timed

    @abstractmethod
    def propose(self, text: Sequence[int], limit: int, hints: Hints) -> Draft:
        """At most `limit` tokens to follow `text`, the whole text so far, prompt included; none is an answer, too."""

    def observe(self, accepted: int) -> None:  # noqa: B027
        """How many tokens of one of its drafts were accepted."""

    def reset(self) -> None:  # noqa: B027
        """Forget every text, so that the next draft costs what a first one costs."""

    def close(self) -> None:  # noqa: B027
        """Free what it holds."""


def drafted(
    row: Floats,
    decode: Callable[[int], Floats],
    limit: int,
    hints: Hints,
    *,
    end_tokens: frozenset[int],
    min_confidence: float = 0.0,
) -> Draft:
    """A model's draft of at most `limit` (1 or more) tokens, from the logits `row` of the first, `[n_vocab]`.

    `decode` takes a token and returns the logits of the one after it. The draft ends after an end token, before one
    that the model gives less than `min_confidence`, and where no more is wanted.
    """
    draft = Draft([])
    fork = hints.sampler.fork()
    try:
        while _extend(draft, row, fork, end_tokens, min_confidence):
            if len(draft.tokens) == limit or not hints.wants_more(draft.confidences):
                break
            fork.accept(draft.tokens[-1])
            row = decode(draft.tokens[-1])
    finally:
        fork.close()
    return draft


def _extend(draft: Draft, row: Floats, sampler: Sampler, end_tokens: frozenset[int], min_confidence: float) -> bool:
    """Append the next token to the draft unless the model is unsure; whether more may follow."""
    proposal = sampler.propose(row)
    if proposal.probability < min_confidence:
        return False
    draft.tokens.append(proposal.token)
    draft.confidences.append(proposal.probability)
    if proposal.source is not None:
        draft.proposals.append(proposal.source)
    return proposal.token not in end_tokens


class ModelDrafter(Drafter):
    """A small model of the same vocabulary; its KV cache follows the text by itself."""

    name = "model"
    reports_passes = True

    def __init__(
        self,
        model: Model,
        verifier: Model,
        *,
        n_ctx: int,
        n_threads: int | None = None,
        min_confidence: float = 0.0,
    ) -> None:
        """Check the vocabularies and allocate the context.

        A draft ends early at a token that the model gives less than `min_confidence`. Raises ModelError when the
        two models cannot work together.
        """
        if not 0 <= min_confidence < 1:
            raise ValueError(f"min_confidence is {min_confidence}; it is a probability below 1")
        check_vocabulary(model, verifier)
        self.model = model
        self._tracked = TokenCache(model, n_ctx=n_ctx, n_threads=n_threads)
        if not self._tracked.can_rewind:
            self._tracked.close()
            raise ModelError(
                f"{model.path}: this model cannot draft: its state cannot be rolled back (it is recurrent)"
            )
        self._n_vocab = verifier.n_vocab
        self._end_tokens = verifier.eog
        self._min_confidence = min_confidence
        self._known = 0  # tokens at the beginning of the cache that are those of the last text

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        """As the sampler proposes: the draft model's best tokens, or drawn from its distribution under its settings."""
        tracked = self._tracked
        tracked.recorder = hints.recorder
        self._known = min(self._known, hints.unchanged)
        limit = min(limit, tracked.context.n_ctx - len(text) + 1)
        if limit < 1:
            return Draft([])
        known, self._known = self._known, 0  # until the cache holds this text
        start = tracked.reuse(text, len(text) - 1, known)
        if max(text[start:]) >= self.model.n_vocab:  # a token that only the verifier has
            return Draft([])
        row = self._decode(text[start:], "draft" if hints.unchanged else "prefill")
        self._known = len(text)
        return drafted(
            row,
            lambda token: self._decode([token], "draft"),
            limit,
            hints,
            end_tokens=self._end_tokens,
            min_confidence=self._min_confidence,
        )

    def _decode(self, tokens: Sequence[int], kind: str) -> Floats:
        """The logits after these tokens, as long as the verifier's: tokens that the draft lacks get none."""
        row = self._tracked.append(tokens, kind)
        if len(row) < self._n_vocab:
            row = np.concatenate([row, np.full(self._n_vocab - len(row), -np.inf, np.float32)])
        shortened: Floats = row[: self._n_vocab]
        return shortened

    def reset(self) -> None:
        self._tracked.reset()
        self._known = 0

    def close(self) -> None:
        self._tracked.close()


class PromptLookup(Drafter):
    """Proposes what followed the last occurrence of the text's own last few tokens; the longest match first.

    An index from each n-gram to where it last ended makes the cost of a token constant; each position remembers what
    it replaced there, so that the index can be taken back as far as a text was.
    """

    name = "lookup"
    is_free = True

    def __init__(self, *, max_ngram: int = 4, min_ngram: int = 2) -> None:
        """Match between `min_ngram` and `max_ngram` tokens."""
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"min_ngram {min_ngram} and max_ngram {max_ngram} must satisfy 1 <= min <= max")
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # an n-gram → the position after its last occurrence
        self._replaced: list[tuple[int, ...]] = []  # by position, where the n-grams that end there ended before; or 0

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        self._follow(text, hints.unchanged)
        n = len(self._text)
        for size in self._sizes:
            end = self._ends.get(tuple(self._text[n - size :])) if size < n else None
            if end is not None:
                return Draft(self._text[end : end + limit])
        return Draft([])

    def _follow(self, text: Sequence[int], unchanged: int) -> None:
        """Bring the index up to `text`; its last n-grams stay out, or they would find themselves."""
        known = common_prefix(self._text, text, unchanged)
        while len(self._text) > known:
            self._text.pop()
            for ngram, before in zip(self._ended(), self._replaced.pop(), strict=True):
                if before:
                    self._ends[ngram] = before
                else:
                    del self._ends[ngram]
        for token in text[known:]:
            ended = self._ended()
            self._replaced.append(tuple(self._ends.get(ngram, 0) for ngram in ended))
            self._ends.update(dict.fromkeys(ended, len(self._text)))
            self._text.append(token)

    def _ended(self) -> list[tuple[int, ...]]:
        """The n-grams at the end of the text."""
        n = len(self._text)
        return [tuple(self._text[n - size :]) for size in self._sizes if size <= n]

    def reset(self) -> None:
        self._follow([], 0)

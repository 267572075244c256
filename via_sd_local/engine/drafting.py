"""The drafters of one generation: asked in turn, each with a pace of its own; a drafter that fails is dropped."""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ..sampling.sampler import Sampler
from ..tiers.cache import Recorder
from ..tiers.drafter import Draft, Drafter, Hints, always
from .pace import Pace
from .policy import Policy
from .stats import Stats


class Drafting:
    """Asks drafters for drafts, checks the drafts, and tells drafters, paces and statistics what became of them."""

    def __init__(
        self,
        drafters: Sequence[Drafter],
        paces: Sequence[Pace],
        policy: Policy,
        stats: Stats,
        n_vocab: int,
        recorder: Recorder,
    ) -> None:
        """Ask the drafters in this order; `recorder` is told of their passes.

        `paces` has the pace of each drafter, which chooses the lengths of its drafts, or is empty where the policy
        fixes the lengths.
        """
        self.pace = paces[0] if paces else None  # of the drafter that made the last draft
        self._drafters: list[Drafter | None] = [*drafters]  # None for a drafter that failed
        self._names = [drafter.name for drafter in drafters]
        self._paces = paces
        self._policy = policy
        self._stats = stats
        self._n_vocab = n_vocab
        self._recorder = recorder
        self._seen = [0] * len(drafters)  # by drafter: the tokens of the text it saw last that were decided then

    def propose(self, text: list[int], decided: int, room: int, sampler: Sampler) -> Draft:
        """Return a draft of at most `room` tokens from the first drafter that has one, else an empty draft.

        The first `decided` tokens of the text will not change any more. `sampler` is the sampler for the hints.
        """
        draft = Draft([])
        for index, drafter in enumerate(self._drafters):
            if drafter is not None and not draft.tokens and (limit := self._limit(index, room)) > 0:
                if self._paces:
                    self.pace = self._paces[index]
                unchanged, self._seen[index] = self._seen[index], decided
                with self._may_fail(index):
                    draft = self._ask(index, drafter, text, limit, sampler, unchanged)
        return draft

    def observe(self, route: str | None, draft: Draft, accepted: int) -> None:
        """Count a draft and its accepted tokens, and let pace and drafter learn from them.

        `route` is the tier that saw the draft first; None where the outcome says nothing about the drafter.
        """
        if not draft.tokens:
            return
        if self._paces and route is not None:
            self._paces[draft.drafter].observe(route, draft.confidences, len(draft.tokens), accepted)
        self._stats.judged(self._names[draft.drafter], len(draft.tokens), accepted)
        drafter = self._drafters[draft.drafter]
        if drafter is not None:
            with self._may_fail(draft.drafter):
                drafter.observe(accepted)

    def _limit(self, index: int, room: int) -> int:
        """Return how many tokens a drafter may propose."""
        if not self._paces:
            return min(self._policy.draft_tokens or room, room)
        pace = self._paces[index]
        probes = pace.probes
        later = range(index + 1, len(self._paces))
        others = [self._paces[i].promised(room) for i in later if self._drafters[i] is not None]
        limit = pace.next_length(room, max(others, default=0.0))
        self._stats.pace["off"] += limit == 0 < room
        if room > 0:
            self._stats.refusal = str(pace.refusal) if pace.refusal is not None else None
        self._stats.pace["probes"] += pace.probes - probes
        return limit

    def _ask(
        self, index: int, drafter: Drafter, text: list[int], limit: int, sampler: Sampler, unchanged: int
    ) -> Draft:
        """Ask one drafter, and check its draft."""
        wants_more = self._paces[index].wants_more if self._paces else always
        trusted = drafter.is_free or drafter.reports_passes  # others get a copy of the text, and are timed
        started = time.perf_counter()
        hints = Hints(sampler, wants_more, unchanged, self._recorder)
        draft = drafter.propose(text if trusted else list(text), limit, hints)
        seconds = time.perf_counter() - started
        draft = replace(self._checked(draft, limit), drafter=index)
        if not trusted:
            # the call counts as one pass per token, so that its time enters the costs
            for _ in range(max(len(draft.tokens), 1)):
                self._recorder("draft", 1, seconds / max(len(draft.tokens), 1))
        return draft

    def _checked(self, draft: Draft, limit: int) -> Draft:
        """Return the draft, cut to `limit` tokens; TypeError or ValueError if it is not a valid draft."""
        if not isinstance(draft, Draft):
            raise TypeError(f"it proposed {draft!r:.80}; it must return a Draft")
        draft = draft.cut(limit)
        tokens = [operator.index(token) for token in draft.tokens]
        if unknown := [token for token in tokens if not 0 <= token < self._n_vocab]:
            raise ValueError(f"it proposed token {unknown[0]}; the model has tokens 0 to {self._n_vocab - 1}")
        for name, values in (("confidences", draft.confidences), ("proposals", draft.proposals)):
            if len(values) not in (0, len(tokens)):
                raise ValueError(f"it proposed {len(tokens)} tokens with {len(values)} {name}; give all or none")
        if not all(0 <= confidence <= 1 for confidence in draft.confidences):
            raise ValueError(f"its confidences are {draft.confidences}; they must be from 0 to 1")
        return replace(draft, tokens=tokens)

    @contextmanager
    def _may_fail(self, index: int) -> Iterator[None]:
        """Drop a drafter that raises inside for the rest of the answer, with a warning."""
        try:
            yield
        except Exception as error:
            self._drafters[index] = None
            self._stats.drafter_failed = True
            left = "drafts" if all(drafter is None for drafter in self._drafters) else "it"
            warnings.warn(f"the drafter failed ({error}); going on without {left}", RuntimeWarning, stacklevel=2)

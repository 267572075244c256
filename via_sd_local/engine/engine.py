"""One verifier and one drafter, and the text that their caches hold: token ids in, steps of token ids out.

Four modes. `plain` asks the full verifier for every token. `sd` lets it check drafts. `exact` lets the slim verifier
check and mend drafts first, and emits only what the full one confirms. `tiered` is VIA-SD's own: the slim verifier
decides what it is sure of, so its text may differ from the full verifier's (it is lossy).
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from typing import cast

from ..sampling.chain import make_sampler
from ..sampling.sampler import LogitsProcessor, SamplingParams
from ..tiers.drafter import Drafter
from ..tiers.verifier import Verifier
from .budget import DeviationBudget
from .costs import Costs, ResumeChoice
from .generation import Generation, Step
from .pace import Pace
from .policy import Mode, Policy
from .stats import Stats
from .watch import Watcher

# the tiers that may see a draft first
_ROUTES = {
    Mode.PLAIN: ("full",),
    Mode.SD: ("full",),
    Mode.EXACT: ("slim", "full"),
    Mode.TIERED: ("slim", "full"),
}


class Engine:
    """Runs one generation at a time; starting another one ends the one before."""

    def __init__(
        self,
        verifier: Verifier,
        drafter: Drafter | Sequence[Drafter] | None = None,
        policy: Policy | None = None,
        costs: Costs | None = None,
    ) -> None:
        """Check that the parts can do what the mode needs; ValueError if one is missing.

        A list of drafters (prompt lookup, then a model) is asked in turn until one has a proposal; each has its own
        running acceptance, and one that promises less than those after it is passed over.

        `costs` is what is known about passes (`measure.costs_of`); without it, automatic lengths begin blind.

        A verifier whose memory cannot be rolled back (recurrent, hybrid) is run in mode `plain`, with a warning.
        `close` closes the parts.
        """
        policy = policy or Policy()
        if drafter is None:
            drafter = ()
        self.drafters: tuple[Drafter, ...] = (
            tuple(drafter) if isinstance(drafter, list | tuple) else (cast(Drafter, drafter),)
        )
        if policy.mode is not Mode.PLAIN:
            if not self.drafters:
                raise ValueError(f"mode {policy.mode.value} needs a drafter: a draft model or prompt lookup")
            if not verifier.can_rewind:
                warnings.warn(
                    f"{verifier.model.path.name} cannot be rolled back (recurrent or hybrid): decoding without drafts",
                    RuntimeWarning,
                    stacklevel=2,
                )
                policy = Policy(Mode.PLAIN)
            elif policy.mode in (Mode.EXACT, Mode.TIERED) and not verifier.mask:
                raise ValueError(f"mode {policy.mode.value} needs a mask with at least one skipped sublayer")
        self.verifier = verifier
        self.policy = policy
        self.stats = Stats(policy.mode.value)
        costs = costs or Costs()
        self._first_costs = costs.to_json()
        self.paces = self._make_paces(costs)
        self.budget = DeviationBudget(policy.max_deviation)
        verifier.resume_pays = ResumeChoice(costs)
        self._generation = 0
        self._closed = False

    @property
    def why_no_drafts(self) -> str | None:
        """Why a draft model was never used in the last generation; None if it was, or the text was short.

        Prompt lookup, which costs nothing, may find nothing; that is no news.
        """
        stats = self.stats
        if stats.drafted or stats.drafter_failed or stats.blocks < 8 or all(part.is_free for part in self.drafters):
            return None
        if not self.verifier.can_rewind:  # it was said at the beginning
            return None
        if any(pace.off for pace in self.paces):
            return "drafting would be slower than plain decoding here"
        return "the drafter found nothing to propose"

    @property
    def pace(self) -> Pace | None:
        """The pace of the last drafter; None where lengths are fixed."""
        return self.paces[-1] if self.paces else None

    def _make_paces(self, costs: Costs) -> list[Pace]:
        """One for each drafter, over the same costs."""
        if self.policy.draft_tokens is not None:
            return []
        routes, lossy = _ROUTES[self.policy.mode], self.policy.mode is Mode.TIERED
        budget = (self.policy.max_deviation or 0.0) if lossy else 0.0
        return [Pace(costs, routes=routes, free=drafter.is_free, max_deviation=budget) for drafter in self.drafters]

    def reset(self) -> None:
        """Forget every text, and end the generation that runs; what was learned of costs and acceptance stays."""
        self._generation += 1
        self.verifier.reset()
        for drafter in self.drafters:
            drafter.reset()

    def release(self) -> None:
        """End the generation that runs and begin no other; the parts stay open, for another engine."""
        self._generation += 1
        self._closed = True

    def close(self) -> None:
        """Free the contexts; the models are the caller's."""
        self.release()
        self.verifier.close()
        for drafter in self.drafters:
            drafter.close()

    def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        logits_processors: Sequence[LogitsProcessor] = (),
        watcher: Watcher | None = None,
        stops_at_end: bool = True,
    ) -> Generator[Step, None, None]:
        """Decide what follows the prompt, at most `max_tokens` tokens (None: to the end of the context).

        The end-of-generation token is not among the tokens; without `stops_at_end` it is a token like any other.
        `watcher` sees each token before it is committed, and may end the text with it or before it: what was drafted
        beyond is dropped. Closing the iterator early leaves the engine usable; starting another generation ends this
        one. `stats` counts the generation that was started last. Raises ValueError for a prompt that is empty, does not
        fit, or has tokens that the model does not know.
        """
        if self._closed:
            raise ValueError("the engine has been closed")
        n_ctx, n_vocab = self.verifier.context.n_ctx, self.verifier.model.n_vocab
        if not prompt:
            raise ValueError("the prompt is empty; it needs at least one token (the model's BOS, if it has one)")
        if len(prompt) > n_ctx:
            raise ValueError(f"the prompt has {len(prompt)} tokens; the context holds {n_ctx} (n_ctx)")
        if max_tokens is not None and max_tokens < 0:
            raise ValueError(f"max_tokens is {max_tokens}; it must be 0 or larger, or None for no limit")
        if unknown := [token for token in prompt if not 0 <= token < n_vocab]:
            raise ValueError(f"token {unknown[0]} of the prompt is none of the model's 0 to {n_vocab - 1}")
        end = n_ctx if max_tokens is None else min(n_ctx, len(prompt) + max_tokens)
        sampling = sampling or SamplingParams()
        sampler = make_sampler(self.verifier.model, sampling, prompt, logits_processors)
        # lengths by measured time must not show in a text that a seed is to reproduce
        compares = bool(self.paces) and sampling.seed is not None
        paces, budget = self.paces, self.budget
        if self.policy.mode is Mode.TIERED and sampling.seed is not None:
            # nor, where it decides who checks a draft, must what other texts have taught
            costs = Costs.from_json(self._first_costs)
            costs.frozen = True
            paces, budget = self._make_paces(costs), DeviationBudget(self.policy.max_deviation)
        self._generation += 1
        mine = self._generation
        self.stats = Stats(self.policy.mode.value, prompt_tokens=len(prompt))
        drafters = self.drafters if self.policy.mode is not Mode.PLAIN else ()
        generation = Generation(
            self.verifier,
            drafters,
            self.policy,
            paces,
            budget,
            sampler,
            compares,
            self.stats,
            list(prompt),
            end,
            watcher,
        )
        if not stops_at_end:
            generation.end_tokens = frozenset()
        return generation.run(lambda: self._generation == mine)

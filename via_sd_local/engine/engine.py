"""One verifier and its drafters, and the text that their caches hold: token ids in, steps of token ids out.

Six modes. `plain` asks the full verifier for every token. `sd` lets it check drafts. `exact` lets the slim verifier
check and mend drafts first, and emits only what the full one confirms. Three are lossy, so the text may differ from the
full verifier's: in `lenient` it lets near-best draft tokens pass, in `tiered` the slim verifier decides what it is sure
of, and `viasd` is the method of the paper.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar, cast

from ..sampling.params import LogitsProcessor, SamplingParams
from ..sampling.sampler import Sampler
from ..tiers.drafter import Drafter
from .budget import DeviationBudget
from .costs import Costs, ResumeChoice
from .decoder import BlockDecoder, DecodingState
from .drafting import Drafting
from .generation import Generation
from .modes.exact import ExactDecoder
from .modes.lenient import LenientDecoder
from .modes.plain import PlainDecoder
from .modes.sd import SdDecoder
from .modes.tiered import TieredDecoder
from .modes.viasd import ViasdDecoder
from .pace import Pace
from .passes import Passes
from .policy import Mode, Policy, Router
from .stats import Stats
from .steps import Step
from .trust import SlimTrust
from .verifier import EngineVerifier
from .watch import Watch, Watcher

V = TypeVar("V", bound=EngineVerifier)

_DECODERS: dict[Mode, type[BlockDecoder]] = {
    Mode.PLAIN: PlainDecoder,
    Mode.SD: SdDecoder,
    Mode.EXACT: ExactDecoder,
    Mode.LENIENT: LenientDecoder,
    Mode.TIERED: TieredDecoder,
    Mode.VIASD: ViasdDecoder,
}
# the tiers that may see a draft first; until it is known which is better, drafts are planned for the last one
_ROUTES = {
    Mode.PLAIN: ("full",),
    Mode.SD: ("full",),
    Mode.LENIENT: ("full",),
    Mode.EXACT: ("slim", "full"),
    Mode.TIERED: ("slim", "full"),
    Mode.VIASD: ("full", "slim"),
}


class Engine(Generic[V]):
    """Runs one generation at a time; starting another one ends the one before."""

    def __init__(
        self,
        verifier: V,
        drafter: Drafter | Sequence[Drafter] | None = None,
        policy: Policy | None = None,
        costs: Costs | None = None,
    ) -> None:
        """Check that the parts can do what the mode needs; ValueError if one is missing.

        Several drafters (prompt lookup, then a model) are asked in turn until one has a proposal. Each has its own
        running acceptance rate, and one that promises less than those after it is passed over. `costs` are known costs
        of passes (`measure.costs_of`); without them, automatic draft lengths begin blind.

        A verifier whose memory cannot be rolled back (recurrent, hybrid) runs in mode `plain`, with a warning. `close`
        closes verifier and drafters.
        """
        policy = policy or Policy()
        if drafter is None:
            drafter = ()
        self.drafters: tuple[Drafter, ...] = (
            tuple(drafter) if isinstance(drafter, list | tuple) else (cast(Drafter, drafter),)
        )
        if policy.mode.drafts:
            if not self.drafters:
                raise ValueError(f"mode {policy.mode.value} needs a drafter: a draft model or prompt lookup")
            if not verifier.can_rewind:
                warnings.warn(
                    f"{verifier.name} cannot be rolled back (recurrent or hybrid): decoding without drafts",
                    RuntimeWarning,
                    stacklevel=2,
                )
                policy = Policy(Mode.PLAIN)
            elif policy.mode.uses_slim_tier and not verifier.has_slim_tier:
                raise ValueError(f"mode {policy.mode.value} needs a mask with at least one skipped sublayer")
        self.verifier = verifier
        self.policy = policy
        self.stats = Stats(policy.mode.value)
        costs = costs or Costs()
        self._first_costs = costs.to_json()
        self.paces = self._make_paces(costs)
        self.budget = DeviationBudget(policy.max_deviation)
        self.trust = SlimTrust(policy.rule)
        self.resume_choice = ResumeChoice(costs)
        # the one that was started last; not kept alive, since its logits processors may hold the engine's owner
        self._generation: Callable[[], Generation | None] = lambda: None
        self._closed = False

    @property
    def why_no_drafts(self) -> str | None:
        """The reason why the last generation had no drafts; None if it had, or was short.

        Prompt lookup alone, which costs nothing, may find nothing without a reason.
        """
        stats = self.stats
        if stats.drafted or stats.drafter_failed or stats.blocks < 8 or all(part.is_free for part in self.drafters):
            return None
        if not self.verifier.can_rewind:  # the constructor has warned already
            return None
        if any(pace.off for pace in self.paces):
            return stats.why_off or "drafting would be slower than plain decoding here"
        return "the drafter found nothing to propose"

    @property
    def why_no_slim(self) -> str | None:
        """The reason why mode `tiered` never asked the slim tier in the last generation; None if it did, or was short.

        What deviates then is due to lenience, for which mode `lenient` needs no mask.
        """
        stats = self.stats
        if self.policy.mode is not Mode.TIERED or self.policy.router is Router.FULL_FIRST:
            return None
        if stats.passes["slim"].calls or not stats.drafted or stats.blocks < 8:
            return None
        if stats.tightened or self.budget.is_spent or not self.trust.decides:
            return "its deviations would overdraw the budget"
        if stats.pace["full_first"]:
            return "it would cost more than it saves here"
        return "the request calls logits processors"

    @property
    def pace(self) -> Pace | None:
        """The pace of the last drafter; None where the policy fixes the lengths of drafts."""
        return self.paces[-1] if self.paces else None

    def _make_paces(self, costs: Costs) -> list[Pace]:
        """Make one pace for each drafter, all over the same costs."""
        if self.policy.draft_tokens is not None:
            return []
        routes, lossy = _ROUTES[self.policy.mode], self.policy.mode.is_lossy
        if self.policy.router is Router.SLIM_FIRST:
            routes = tuple(sorted(routes))
        budget = (self.policy.max_deviation or 0.0) if lossy else 0.0
        return [Pace(costs, routes=routes, free=drafter.is_free, max_deviation=budget) for drafter in self.drafters]

    def reset(self) -> None:
        """Forget every text, and end the running generation; learned costs and acceptance rates stay."""
        self._end_generation()
        self.verifier.reset()
        for drafter in self.drafters:
            drafter.reset()

    def release(self) -> None:
        """End the running generation and start no other; verifier and drafters stay open, for another engine."""
        self._end_generation()
        self._closed = True

    def _end_generation(self) -> None:
        generation = self._generation()
        if generation is not None:
            generation.end()

    def check_open(self) -> None:
        """Raise ValueError after `release` or `close`."""
        if self._closed:
            raise ValueError("the engine has been closed")

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
        """Generate at most `max_tokens` tokens after the prompt (None: to the end of the context).

        The end-of-generation token is not among the tokens; without `stops_at_end` it is a token like any other.
        `watcher` sees each token before it is committed, and may end the text with it or before it; drafts beyond are
        dropped. Logits processors are called once for each position of the text, in order, with logits of the full
        model; drafts are made without them, and in mode `tiered` the slim tier decides nothing.

        Closing the iterator early leaves the engine usable; starting another generation ends this one. `stats` counts
        the generation that was started last.

        Raises ValueError for a prompt that is empty, does not fit, or has tokens outside the vocabulary.
        """
        self.check_open()
        self._check_prompt(prompt, max_tokens)
        sampling = sampling or SamplingParams()
        sampler = self.verifier.make_sampler(sampling, prompt, logits_processors)
        self._end_generation()
        self.stats = Stats(self.policy.mode.value, prompt_tokens=len(prompt))
        decoder = self._make_decoder(list(prompt), max_tokens, sampling, sampler, watcher, stops_at_end)
        generation = Generation(decoder)
        self._generation = weakref.ref(generation)
        return generation.run()

    def _check_prompt(self, prompt: Sequence[int], max_tokens: int | None) -> None:
        n_ctx, n_vocab = self.verifier.n_ctx, self.verifier.n_vocab
        if not prompt:
            raise ValueError("the prompt is empty; it needs at least one token (the model's BOS, if it has one)")
        if len(prompt) > n_ctx:
            raise ValueError(f"the prompt has {len(prompt)} tokens; the context holds {n_ctx} (n_ctx)")
        if max_tokens is not None and max_tokens < 0:
            raise ValueError(f"max_tokens is {max_tokens}; it must be 0 or larger, or None for no limit")
        if unknown := [token for token in prompt if not 0 <= token < n_vocab]:
            raise ValueError(f"token {unknown[0]} of the prompt is not in the vocabulary (0 to {n_vocab - 1})")

    def _make_decoder(
        self,
        text: list[int],
        max_tokens: int | None,
        sampling: SamplingParams,
        sampler: Sampler,
        watcher: Watcher | None,
        stops_at_end: bool,
    ) -> BlockDecoder:
        """Make the decoder of the mode for one generation.

        With a seed, the text must not depend on timing: lengths of drafts that measured times choose must not show in
        it, so drafts are compared with the target's own draws; and in lossy modes, where measurements also decide what
        deviates, costs, paces, budget and trust start afresh and the costs learn nothing.
        """
        verifier, stats = self.verifier, self.stats
        paces, budget, trust = self.paces, self.budget, self.trust
        if self.policy.mode.is_lossy and sampling.seed is not None:
            costs = Costs.from_json(self._first_costs)
            costs.frozen = True
            paces = self._make_paces(costs)
            budget, trust = DeviationBudget(self.policy.max_deviation), SlimTrust(self.policy.rule)
        budget.begin_answer()
        trust.relax()
        learned = paces[0].costs if paces else None
        passes = Passes(verifier, stats, learned, self.resume_choice, write_through=self.policy.write_through)
        drafters = self.drafters if self.policy.mode is not Mode.PLAIN else ()
        state = DecodingState(
            text=text,
            end=verifier.n_ctx if max_tokens is None else min(verifier.n_ctx, len(text) + max_tokens),
            end_tokens=verifier.end_tokens if stops_at_end else frozenset(),
            policy=self.policy,
            passes=passes,
            drafting=Drafting(drafters, paces, self.policy, stats, verifier.n_vocab, passes.record_draft),
            sampler=sampler,
            budget=budget,
            trust=trust,
            stats=stats,
            compares_draws=bool(self.paces) and sampling.seed is not None,
            watch=Watch(watcher),
        )
        return _DECODERS[self.policy.mode](state)

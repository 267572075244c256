"""The generation loop: token ids in, steps of token ids out, in one of four modes.

`plain` asks the full verifier for every token. `sd` lets it check drafts. `exact` lets the slim verifier check and
mend drafts first, and emits only what the full one confirms. `tiered` is VIA-SD's own: the slim verifier decides what
it is sure of, so its text may differ from the full verifier's (it is lossy).

A loop's invariant: the verifier's cache holds `text` without its last token, so that the next pass begins with that.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

from .arrays import Floats
from .drafters import Draft, Drafter
from .gate import Region, Verdict, judge
from .policy import Mode, Policy
from .sampling import Chooser
from .stats import Stats
from .tiers import Verifier

FinishReason: TypeAlias = Literal["stop", "length"]


class Tier(Enum):
    """Who decided a token: the draft that the slim verifier let through, the slim verifier, or the full one."""

    DRAFT = "draft"
    SLIM = "slim"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that were decided together, who decided each, and why the text ends, if it does."""

    tokens: tuple[int, ...]
    tiers: tuple[Tier, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """What one round of a mode's loop decided."""

    tokens: list[int]
    tiers: list[Tier]


class Engine:
    """One verifier and one drafter, and the text that their caches hold; one generation at a time."""

    def __init__(self, verifier: Verifier, drafter: Drafter | None = None, policy: Policy | None = None) -> None:
        """Check that the parts can do what the mode needs; ValueError if one is missing.

        A verifier whose memory cannot be rolled back (recurrent, hybrid) is run in mode `plain`, with a warning.
        """
        policy = policy or Policy()
        if policy.mode is not Mode.PLAIN:
            if drafter is None:
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
        self.drafter = drafter if policy.mode is not Mode.PLAIN else None
        self.policy = policy
        self.stats = Stats(policy.mode.value)
        self._generation = 0

    def close(self) -> None:
        """Free the contexts; the models are the caller's."""
        self._generation += 1
        self.verifier.close()
        if self.drafter is not None:
            self.drafter.close()

    def generate(
        self, prompt: Sequence[int], *, max_tokens: int | None = None, choose: Chooser | None = None
    ) -> Iterator[Step]:
        """Decide what follows the prompt, at most `max_tokens` tokens (None: to the end of the context).

        The end-of-generation token is not among the tokens. Closing the iterator early leaves the engine usable;
        starting another generation ends this one. `stats` counts the generation that was started last. Raises
        ValueError for a prompt that is empty, does not fit, or has tokens that the model does not know.
        """
        choose = choose or Chooser()
        n_ctx, n_vocab = self.verifier.context.n_ctx, self.verifier.model.n_vocab
        if not prompt:
            raise ValueError("the prompt is empty; it needs at least one token (the model's BOS, if it has one)")
        if len(prompt) > n_ctx:
            raise ValueError(f"the prompt has {len(prompt)} tokens; the context holds {n_ctx} (n_ctx)")
        if max_tokens is not None and max_tokens < 0:
            raise ValueError(f"max_tokens is {max_tokens}; it must be 0 or larger, or None for no limit")
        if unknown := [token for token in prompt if not 0 <= token < n_vocab]:
            raise ValueError(f"token {unknown[0]} of the prompt is none of the model's 0 to {n_vocab - 1}")
        if self.policy.mode is Mode.TIERED and not choose.greedy:
            raise ValueError("mode tiered is greedy: use temperature 0, or mode sd or exact, which sample losslessly")
        end = n_ctx if max_tokens is None else min(n_ctx, len(prompt) + max_tokens)
        self._generation += 1
        return _Generation(self, list(prompt), end, choose).run(self._generation)


class _Generation:
    """The state of one call of `Engine.generate`."""

    def __init__(self, engine: Engine, prompt: list[int], end: int, choose: Chooser) -> None:
        self.engine = engine
        self.verifier = engine.verifier
        self.drafter = engine.drafter
        self.policy = engine.policy
        self.text = prompt
        self.end = end  # the text's longest permitted length
        self.choose = choose
        self.eog = engine.verifier.model.eog
        self.stats = engine.stats = Stats(engine.policy.mode.value, prompt_tokens=len(prompt))

    def run(self, generation: int) -> Iterator[Step]:
        """Yield steps; the clock of `stats` runs only while this code does."""
        if self.engine._generation != generation:  # another one was started before this one took a step
            return
        started = time.perf_counter()
        for step in self._steps():
            self.stats.seconds += time.perf_counter() - started
            yield step
            if self.engine._generation != generation:
                return
            started = time.perf_counter()
        self.stats.seconds += time.perf_counter() - started

    def _steps(self) -> Iterator[Step]:
        if len(self.text) >= self.end:
            yield Step((), (), "length")
            return
        self.verifier.recorder = self.stats.record
        started = time.perf_counter()
        step = self._commit(self._prefill())
        self.stats.first_token_seconds = time.perf_counter() - started
        rounds: dict[Mode, Callable[[], Block]] = {
            Mode.PLAIN: self._plain,
            Mode.SD: self._sd,
            Mode.EXACT: self._exact,
            Mode.TIERED: self._tiered,
        }
        while True:
            yield step
            if step.finish_reason is not None:
                return
            if self.drafter is not None:
                self.drafter.record_with(self.stats.record)
            step = self._commit(rounds[self.policy.mode if self.drafter is not None else Mode.PLAIN]())
            self.stats.blocks += 1

    def _commit(self, block: Block) -> Step:
        """Append a block to the text, cut at the first end token and at the permitted length."""
        reason: FinishReason | None = None
        tokens = block.tokens
        for i, token in enumerate(tokens):
            if token in self.eog:
                tokens, reason = tokens[:i], "stop"
                break
            if len(self.text) + i + 1 == self.end:
                tokens, reason = tokens[: i + 1], "length"
                break
        self.text += tokens
        self.stats.completion_tokens += len(tokens)
        return Step(tuple(tokens), tuple(block.tiers[: len(tokens)]), reason)

    def _prefill(self) -> Block:
        """The first token: the full model over what of the prompt is not in its cache yet."""
        n = self.stats.reused_tokens = self.verifier.reuse(self.text, len(self.text) - 1)
        token = self.choose(self.verifier.full(self.text[n:], 1, "prefill")[0])
        return Block([token], [Tier.FULL])

    def _propose(self, text: list[int], room: int) -> list[int]:
        """A draft of at most `room` tokens; a drafter that raises is dropped for the rest of this answer."""
        limit = min(self.policy.draft_tokens, room)
        if limit < 1 or self.drafter is None:
            return []
        try:
            draft: Draft = self.drafter.propose(text, limit)
        except Exception as error:
            warnings.warn(f"the drafter failed ({error}); going on without drafts", RuntimeWarning, stacklevel=2)
            self.drafter = None
            return []
        self.stats.drafted += len(draft.tokens)
        return draft.tokens

    def _accepted(self, n: int) -> None:
        self.stats.accepted += n
        if self.drafter is not None:
            self.drafter.observe(n)

    #
    # the modes
    #

    def _plain(self) -> Block:
        token = self.choose(self.verifier.full(self.text[-1:], 1)[0])
        return Block([token], [Tier.FULL])

    def _sd(self) -> Block:
        draft = self._propose(self.text, self.end - len(self.text) - 1)
        logits = self.verifier.full([self.text[-1], *draft], len(draft) + 1)
        tokens = self._verified(draft, logits)
        self._accepted(len(tokens) - 1)
        self.verifier.rewind(len(self.text) + len(tokens) - 1)
        return Block(tokens, [Tier.FULL] * len(tokens))

    def _verified(self, draft: list[int], logits: Floats) -> list[int]:
        """The full verifier's own choices as long as the draft agrees with them, and the first that differs."""
        tokens: list[int] = []
        for position in range(len(draft) + 1):
            tokens.append(self.choose(logits[position]))
            if position < len(draft) and tokens[-1] != draft[position]:
                break
        return tokens

    def _exact(self) -> Block:
        """Draft and let the slim verifier mend, as long as it is sure; then the full one confirms all of it at once."""
        base, verifier = len(self.text), self.verifier
        candidates: list[int] = []
        drafted: list[bool] = []  # of each candidate: the drafter's own token, not the slim verifier's
        sure = True
        while sure and len(candidates) < self.policy.audit_every:
            so_far = self.text + candidates
            draft = self._propose(so_far, self.end - len(so_far) - 1)
            if not draft:
                break
            verdict = judge(self.policy.rule, draft, verifier.slim([so_far[-1], *draft]))
            self._count(verdict)
            candidates += draft[: verdict.kept]
            drafted += [True] * verdict.kept
            verifier.rewind(base + len(candidates))
            sure = verdict.sure
            if sure:
                candidates.append(verdict.token)
                drafted.append(False)
        # a last candidate that no pass has seen is left out: the full pass gives that position its token anyway
        del candidates[max(0, verifier.n_kv - base) :]
        logits = verifier.full([] if verifier.n_kv == base + len(candidates) else self.text[-1:], len(candidates) + 1)
        tokens = self._verified(candidates, logits)
        self._accepted(sum(drafted[: len(tokens) - 1]))
        verifier.rewind(base + len(tokens) - 1)
        return Block(tokens, [Tier.FULL] * len(tokens))

    def _tiered(self) -> Block:
        """The slim verifier keeps (A) or rewrites (B) what it is sure of; from the first C on, the full one decides."""
        base, verifier = len(self.text), self.verifier
        draft = self._propose(self.text, self.end - base - 1)
        if not draft:
            return self._plain()
        verdict = judge(self.policy.rule, draft, verifier.slim([self.text[-1], *draft]))
        kept = verdict.kept
        tokens, tiers = draft[:kept], [Tier.DRAFT] * kept
        accepted = kept
        if verdict.region is Region.C or verifier.n_kv - verifier.n_full > self.policy.audit_every:
            verdict = replace(verdict, region=Region.C, sure=False)
            verified = self._verified(draft[kept:], verifier.full([], len(draft) - kept + 1))
            accepted += len(verified) - 1
            tokens += verified
            tiers += [Tier.FULL] * len(verified)
        elif verdict.sure:
            tokens.append(verdict.token)
            tiers.append(Tier.SLIM)
        self._count(verdict)
        self._accepted(accepted)
        verifier.rewind(base + len(tokens) - 1)
        return Block(tokens, tiers)

    def _count(self, verdict: Verdict) -> None:
        self.stats.regions["A"] += verdict.kept
        if verdict.region is not Region.A:
            self.stats.regions[verdict.region.value] += 1
        elif verdict.sure:
            self.stats.regions["bonus"] += 1

"""Mode `exact`: the slim verifier mends drafts, and the full verifier confirms the result. Lossless."""

from __future__ import annotations

from contextlib import closing

from ...arrays import Floats
from ...sampling.sampler import DrafterSampler, Sampler
from ...tiers.cache import common_prefix
from ...tiers.drafter import Draft
from ..decoder import BlockDecoder
from ..gate import Region, SlimVerdict, judge
from ..steps import Block


class ExactDecoder(BlockDecoder):
    """Decodes the candidates of drafter and slim verifier that the full verifier confirms, and one token more."""

    def decode_block(self) -> Block:
        """Let the slim verifier mend the draft first where that has yielded more tokens a second."""
        state = self.state
        seconds_before = state.passes.seconds
        draft = self.draft(state.text)
        pace = state.drafting.pace
        if not draft.tokens:
            return self.verify_at_once(draft)
        if pace is None:
            return self._mend(draft, repeats=True)
        route = pace.choose_by_yield()
        block = self._mend(draft, pace.repeats_slim) if route == "slim" else self.verify_at_once(draft)
        state.stats.pace[f"{route}_first"] += 1
        pace.observe_yield(route, len(block.tokens), state.passes.seconds - seconds_before)
        return block

    def drafter_sampler(self) -> Sampler:
        """Return a sampler that draws as the target does: in this mode drafts are always compared with its draws."""
        return DrafterSampler(self.state.sampler, coupled=True)

    def _mend(self, draft: Draft, repeats: bool) -> Block:
        """Let the slim verifier mend a draft, and the full one confirm the candidates.

        With `repeats` the slim verifier mends draft after draft while it is sure, and one full pass confirms them all.
        """
        state, passes = self.state, self.state.passes
        base = len(state.text)
        candidates: list[int] = []
        drafts: list[tuple[Draft, int, int]] = []  # each draft, its first candidate, how many of its tokens are kept
        with closing(state.sampler.fork()) as ahead:
            sure = True
            while sure and len(candidates) < state.policy.audit_every:
                if drafts:
                    draft = self.draft(state.text + candidates)
                if not draft.tokens:
                    break
                start = len(candidates)
                kept, token = self._mend_once(draft, state.text + candidates, ahead)
                drafts.append((draft, start, kept))
                candidates += draft.tokens[:kept]
                sure = token is not None
                if token is not None:
                    candidates.append(token)
                if state.drafting.pace:
                    state.drafting.pace.observe_slim(draft.confidences, not sure, sure)
                if not repeats:
                    break
        # a last candidate that no pass has seen is left out: the full pass decides that position anyway
        verifier = passes.verifier
        del candidates[max(0, verifier.n_kv - base) :]
        logits = passes.full([] if verifier.n_kv == base + len(candidates) else state.text[-1:], len(candidates) + 1)
        block = self.verify(Draft(candidates), logits)
        agreed = common_prefix(block.tokens, candidates)
        for draft, start, kept in drafts:
            state.drafting.observe("slim" if start <= agreed else None, draft, max(0, min(kept, agreed - start)))
        return self.settle(block)

    def _mend_once(self, draft: Draft, text: list[int], ahead: Sampler) -> tuple[int, int | None]:
        """Run one slim pass over a draft that follows `text`; `ahead` is the sampler's state there.

        Returns how many draft tokens become candidates, and the slim verifier's own token after them, or None where it
        is unsure or the token ends the text. What it is unsure of goes to the full verifier as it was drafted.
        """
        state = self.state
        slim = state.passes.slim([text[-1], *draft.tokens])
        verdict = judge(state.policy.rule, draft.tokens, slim, ahead, state.end_tokens)
        state.stats.count_verdict(verdict)
        kept = len(draft.tokens) if verdict.region is Region.C else verdict.kept
        state.passes.rewind(len(text) + kept)
        token = self._own_token(verdict, slim[kept], ahead) if verdict.sure else None
        if token is not None:
            ahead.accept(token)
        return kept, token

    def _own_token(self, verdict: SlimVerdict, row: Floats, ahead: Sampler) -> int | None:
        """Return the slim verifier's token, drawn with the random numbers of the full one; None if it ends the text."""
        token = ahead.choose(row) if ahead.is_distribution else verdict.token
        return None if token in self.state.end_tokens else token

"""The generation loop: prefill, then block after block of a mode's decoder, cut where the text ends."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

from ..arrays import Floats
from ..interrupts import interrupts_after
from ..tiers.drafter import Draft
from .decoder import BlockDecoder
from .steps import Block, FinishReason, Step, Tier
from .watch import Flow, Watcher


class Generation:
    """One call of `Engine.generate`."""

    def __init__(self, decoder: BlockDecoder) -> None:
        """Generate with the decoder of a mode."""
        self._decoder = decoder
        self._state = decoder.state
        self._watcher = decoder.state.watch.watcher
        self._ended = False

    def end(self) -> None:
        """Let the steps end here, since another generation uses the cache from now on."""
        self._ended = True

    def run(self) -> Generator[Step, None, None]:
        """Yield the steps; the clock of `stats` runs only while this does."""
        stats = self._state.stats
        try:
            if self._ended:
                return
            steps = self._steps()
            while True:
                started = time.perf_counter()
                with interrupts_after():  # one section for all passes of the step
                    step = next(steps, None)
                stats.seconds += time.perf_counter() - started
                if step is None:
                    return
                yield step
                if self._ended:
                    return
        finally:
            self._decoder.close()

    def _steps(self) -> Iterator[Step]:
        state = self._state
        if len(state.text) >= state.end:
            if self._watcher is not None and self._watcher.prompt_from is not None:
                self._show_prompt(self._watcher, self._watcher.prompt_from)
            yield Step((), (), "length")
            return
        started = time.perf_counter()
        step = self._commit(self._prefill())
        state.stats.first_token_seconds = time.perf_counter() - started
        while True:
            yield step
            if step.finish_reason is not None:
                return
            step = self._commit(self._decoder.decode_block())
            state.stats.blocks += bool(step.tokens)  # a block of an end token alone does not count

    def _commit(self, block: Block) -> Step:
        """Append a block to the text, cut at the first end token, where the watcher ends it, and at the full length."""
        state = self._state
        reason: FinishReason | None = None
        tokens = block.tokens
        for i, token in enumerate(tokens):
            flow = Flow.END_BEFORE if token in state.end_tokens else Flow.GO_ON
            if flow is Flow.GO_ON:
                flow = state.watch.flow(i, token, block.logits[i])
            if flow is not Flow.GO_ON:
                tokens, reason = tokens[: i + (flow is Flow.END_AFTER)], "stop"
                break
            if len(state.text) + i + 1 == state.end:
                tokens, reason = tokens[: i + 1], "length"
                break
        state.watch.commit()
        state.text += tokens
        confirmed = not state.policy.mode.trusts_slim_tier or not block.tiers or block.tiers[-1] is Tier.FULL
        state.stats.emitted(len(tokens), confirmed=confirmed)
        return Step(tuple(tokens), tuple(block.tiers[: len(tokens)]), reason, min(block.drafted, len(tokens)))

    def _prefill(self) -> Block:
        """Decode the prompt as far as the cache does not hold it, always by the full model, and the first token."""
        state = self._state
        if self._watcher is not None and self._watcher.prompt_from is not None:
            logits = self._show_prompt(self._watcher, self._watcher.prompt_from)
        else:
            n = state.passes.reuse(state.text, len(state.text) - 1)
            logits = state.passes.full(state.text[n:], 1, "prefill")
        return self._decoder.verify(Draft([]), logits)

    def _show_prompt(self, watcher: Watcher, start: int) -> Floats:
        """Decode the prompt from position `start` on, batch by batch with all logits, and show them to the watcher.

        Returns the last row, `[1, n_vocab]`.
        """
        text, passes = self._state.text, self._state.passes
        n = passes.reuse(text, min(start, len(text) - 1))
        size = passes.verifier.n_batch
        for start in range(n, len(text), size):
            batch = text[start : start + size]
            logits = passes.full(batch, len(batch), "prefill")
            watcher.see_prompt(start, logits)
        return logits[-1:]

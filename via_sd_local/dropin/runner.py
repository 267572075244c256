"""Runs the engine for a `Llama`: checks a request, generates under a turn, and keeps the shared context true."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ..arrays import Floats
from ..engine.steps import Step
from ..engine.watch import Watcher
from ..sampling.params import LogitsProcessor, SamplingParams
from ..session.session import Session
from ..tiers.cache import common_prefix
from .original import LlamaState
from .pieces import Detokenizer
from .request import CompletionRequest
from .seeds import SeedSource
from .shared_context import SharedContext
from .state_cache import StateCache
from .text_watcher import Criterion, TextDelta, TextWatcher
from .turns import Turn, Turns


@dataclass(frozen=True, slots=True)
class AnswerStep:
    """The text that one step adds to an answer; the last step has the finish reason and the statistics, too."""

    deltas: list[TextDelta]
    reason: str | None = None
    stats: dict[str, Any] | None = None


class Runner:
    """Generates on the shared context of one `Llama`, one generation at a time."""

    def __init__(
        self, session: Session, shared: SharedContext, turns: Turns, seeds: SeedSource, states: StateCache
    ) -> None:
        """Run the session's engine, whose verifier decodes into the shared context."""
        self.engine, self.model = session.engine, session.model
        self.shared, self.turns = shared, turns
        self._seeds, self._states = seeds, states

    @property
    def stats(self) -> dict[str, Any]:
        """The statistics of the last generation (`Stats.to_json`); `no_drafts` says why nothing was drafted.

        `no_slim` says why mode `tiered` never asked the slim tier.
        """
        engine = self.engine
        return {**engine.stats.to_json(), "no_drafts": engine.why_no_drafts, "no_slim": engine.why_no_slim}

    #
    # checks at the call
    #

    def check(self, request: CompletionRequest) -> None:
        """Raise ValueError for a request that this object cannot serve, before anything is computed."""
        n, n_ctx = len(request.prompt.tokens), self.shared.verifier.context.n_ctx
        if n > n_ctx or (n == n_ctx and request.max_tokens != 0):
            raise ValueError(
                f"Requested tokens ({n}) exceed context window of {n_ctx}: at least one must be left for the answer; "
                "shorten the prompt, or load the model with a larger n_ctx"
            )
        if request.logprobs is not None and self.engine.policy.mode.trusts_slim_tier:
            raise ValueError(
                f"logprobs are not available in mode {self.engine.policy.mode.value}: tokens that the slim tier "
                "decides have no log-probabilities of the full model; use mode 'sd' or 'exact'"
            )

    #
    # generation
    #

    def answer(self, request: CompletionRequest, *, pauses: bool) -> Generator[AnswerStep, None, None]:
        """Generate an answer step by step; the object is free again before the last step is yielded.

        With `pauses`, for a stream, another call may take the object over between two steps.
        """
        turn, text = Turn(), list(request.prompt.tokens)
        try:
            self.turns.begin(turn)
            self.shared.synchronise()
            self._restore(turn, request)
            watcher = self._watcher(request)
            sampling = replace(request.sampling, seed=self._seeds.for_call(request.seed))
            steps = self._steps(request.prompt.tokens, sampling, request.processors, watcher, request.max_tokens)
            with closing(steps):
                for step in steps:
                    text += step.tokens
                    deltas = watcher.take(finished=step.finish_reason is not None)
                    if step.finish_reason is not None:
                        break
                    if deltas and pauses:
                        self.turns.pause(turn)
                        yield AnswerStep(deltas)
                        self.turns.resume(turn)
                    elif deltas:
                        yield AnswerStep(deltas)
            if request.prompt.appended:
                deltas.append(TextDelta(request.prompt.appended))
            self.shared.settle(len(text))
            if self._states.store is not None:
                self._states.store[text] = self._save(turn, request)
            last = AnswerStep(deltas, "stop" if watcher.stopped else step.finish_reason, self.stats)
        finally:
            self._end(turn, len(text))
        yield last

    def tokens(
        self,
        text: list[int],
        sampling: SamplingParams,
        processors: Sequence[LogitsProcessor],
        criteria: Criterion | None,
        detokenizer: Detokenizer,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Generate token by token to the end of the context; end-of-generation tokens are tokens like any other.

        Tokens that are sent into the generator follow the token that it yielded last. Wherever the generator is left,
        the context holds the text up to the token before that one, as without drafts.
        """
        turn, n_prompt = Turn(), len(text)
        try:
            self.turns.begin(turn)
            sampling = replace(sampling, seed=self._seeds.for_call(None))
            sent: list[int] | None = []
            while sent is not None:
                text += sent
                n_prompt = len(text)
                self.shared.synchronise()
                watcher = TextWatcher(
                    text,
                    detokenizer.pieces(text),
                    criteria=criteria,
                    prompt_from=self._prompt_from,
                    keep=self._keep,
                )
                steps = self._steps(text, sampling, processors, watcher, None, stops_at_end=False)
                with closing(steps):
                    sent = yield from self._yield_tokens(turn, steps, text)
        finally:
            self._end(turn, max(n_prompt, len(text) - 1))

    def _yield_tokens(
        self, turn: Turn, steps: Iterator[Step], text: list[int]
    ) -> Generator[int, Sequence[int] | None, list[int] | None]:
        """Yield the tokens of steps and append them to `text`; returns what the consumer sent, None at the end."""
        for step in steps:
            for token in step.tokens:
                text.append(token)
                self.shared.show(len(text) - 1)
                self.turns.pause(turn)
                sent = yield token
                self.turns.resume(turn)
                if sent is not None:
                    return list(sent)
        return None

    def _steps(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        processors: Sequence[LogitsProcessor],
        watcher: Watcher,
        max_tokens: int | None,
        *,
        stops_at_end: bool = True,
    ) -> Generator[Step, None, None]:
        """Run the engine, and publish the text of each step in the shared context."""
        steps = self.engine.generate(
            prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            logits_processors=processors,
            watcher=watcher,
            stops_at_end=stops_at_end,
        )
        with closing(steps):
            n_published = 0
            unpublished: Sequence[int] = prompt
            for step in steps:
                text = [*unpublished, *step.tokens]
                self.shared.publish(n_published, text)
                n_published += len(text)
                unpublished = ()
                yield step

    def _end(self, turn: Turn, n_text: int) -> None:
        """Free the object after a text of `n_text` tokens, unless a later call has taken it over."""
        with self.turns.ending(turn) as is_mine:
            if is_mine:
                self.shared.settle(n_text)

    def _restore(self, turn: Turn, request: CompletionRequest) -> None:
        """Load a state of the user's cache if it covers more of the prompt than the context does."""
        prompt = request.prompt.tokens
        state = self._states.find(prompt, common_prefix(self.shared.verifier.cells, prompt))
        if state is None:
            return
        if request.load_state is None:
            self.shared.restore(state)
            return
        with turn.nesting():
            request.load_state(state)

    def _save(self, turn: Turn, request: CompletionRequest) -> LlamaState:
        """Return the state of the context, for the user's cache."""
        if request.save_state is None:
            return self.shared.save(self._seeds.seed)
        with turn.nesting():
            return request.save_state()

    #
    # watchers
    #

    @property
    def _keep(self) -> Callable[[int, Floats], None] | None:
        """The sink for rows of logits; None where they are not kept, or are not all of the full model."""
        keeps = self.shared.rows.keeps_all and not self.engine.policy.mode.trusts_slim_tier
        return self.shared.rows.put if keeps else None

    @property
    def _prompt_from(self) -> int | None:
        """The first prompt position whose logits are to be kept but are missing; None to keep none."""
        return self.shared.rows.valid if self._keep is not None else None

    def _watcher(self, request: CompletionRequest) -> TextWatcher:
        prompt, tokens = request.prompt, request.prompt.tokens
        text = prompt.text
        if text is None and (request.echo or request.logprobs is not None):
            text = request.detokenizer.detokenize(tokens).decode("utf-8", "ignore")
        scores_prompt = request.echo and request.logprobs is not None
        return TextWatcher(
            tokens,
            request.detokenizer.pieces(tokens),
            stops=request.stops,
            stop_tokens=request.stop_tokens,
            criteria=request.criteria,
            logprobs=request.logprobs,
            offset=len(text or ""),
            echo=text if request.echo else None,
            skip=int(tokens[0] == self.model.bos),
            prompt_from=0 if scores_prompt else self._prompt_from,
            keep=self._keep,
        )

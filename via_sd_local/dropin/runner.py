"""Runs generations for a `Llama`, and keeps what that object shows of its context true.

llama-cpp-python's users read and write `input_ids` and `n_tokens`, and some decode into the context by themselves
(images, for instance). So both are compared with the verifier's own account before every use, and brought up to date
after every step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ..binding import import_llama_cpp
from ..engine.policy import Mode
from ..engine.steps import Step
from ..engine.watch import Watcher
from ..errors import NativeError
from ..sampling.params import LogitsProcessor, SamplingParams
from ..session.session import Session
from ..tiers.cache import common_prefix
from .logit_rows import LogitRows
from .pieces import Pieces, TokenizerPieces, VocabularyPieces
from .request import Request
from .text_watcher import Criterion, TextDelta, TextWatcher
from .turns import Turn, Turns


@dataclass(frozen=True, slots=True)
class AnswerStep:
    """What a step adds to an answer; at the end also why, and the statistics."""

    deltas: list[TextDelta]
    reason: str | None = None
    stats: dict[str, Any] | None = None


class Runner:
    """The engine of one `Llama`."""

    def __init__(self, llm: Any, session: Session, *, logits_all: bool) -> None:
        self._llm = llm
        self.session = session
        self.engine, self.verifier, self.model = session.engine, session.engine.verifier, session.model
        self.turns = Turns()
        self.rows = LogitRows(self.model.n_vocab, keeps_all=logits_all)

    @property
    def stats(self) -> dict[str, Any]:
        """The statistics of the last generation, and why nothing was drafted, if that needs saying."""
        return {**self.engine.stats.to_json(), "no_drafts": self.engine.why_no_drafts}

    #
    # the two accounts of what the context holds
    #

    def sync(self) -> None:
        """Take over what others did to the context; then the verifier's cells are `input_ids[:n_tokens]`.

        A memory that cannot be rolled back keeps its cells: whoever needs fewer must begin anew.
        """
        llm, verifier = self._llm, self.verifier
        if verifier.is_broken:
            verifier.reset()
            llm.n_tokens = 0
        n = int(llm.n_tokens)
        if not 0 <= n <= len(llm.input_ids):
            raise ValueError(f"n_tokens is {n}; the context holds {len(llm.input_ids)}")
        shown = llm.input_ids[:n].tolist()
        same = common_prefix(verifier.cells, shown)
        if same < n:
            verifier.adopt(shown)
        elif n == 0:
            self.forget()
        elif verifier.can_rewind:
            verifier.rewind(n)
        self.rows.cut(same)

    def forget(self) -> None:
        """Empty the cache."""
        if self.verifier.can_rewind and not self.verifier.is_broken:
            self.verifier.rewind(0)
        else:
            self.verifier.reset()
        self._llm.n_tokens = 0
        self.rows.cut(0)

    def _publish(self, start: int, tokens: Sequence[int]) -> None:
        """Show text from position `start` on, and how much of it the cache holds."""
        self._llm.input_ids[start : start + len(tokens)] = tokens
        self._llm.n_tokens = self.verifier.n_kv
        self._llm._requires_eval = False

    def _settle(self, length: int) -> None:
        """The end of a generation whose text has this length: the cache holds nothing else, by the full model."""
        if self.verifier.is_broken:
            self.forget()
            return
        self.verifier.rewind(min(self.verifier.n_full, length))
        self._llm.n_tokens = self.verifier.n_kv

    #
    # evaluation without generation
    #

    def evaluate(self, tokens: list[int]) -> None:
        """Decode tokens after the first `n_tokens`; ValueError where they do not fit or do not exist."""
        llm, verifier = self._llm, self.verifier
        with self.turns.taken():
            self.sync()
            n = llm.n_tokens
            if n + len(tokens) > len(llm.input_ids):
                raise ValueError(f"{len(tokens)} tokens after {n} exceed the context of {len(llm.input_ids)} (n_ctx)")
            if unknown := [token for token in tokens if not 0 <= token < self.model.n_vocab]:
                raise ValueError(f"token {unknown[0]} is none of the model's 0 to {self.model.n_vocab - 1}")
            if verifier.n_kv > n:
                raise NativeError(f"{self.model.path.name}: this model's memory cannot be rolled back; call reset()")
            size = verifier.context.n_batch
            for start in range(0, len(tokens), size):
                batch = tokens[start : start + size]
                rows = len(batch) if self.rows.keeps_all else int(start + size >= len(tokens))
                logits = verifier.full(batch, rows, "prefill")
                if rows:
                    self.rows.put(n + start + len(batch) - rows, logits)
                self._publish(n + start, batch)

    #
    # generation
    #

    def check_open(self) -> None:
        """ValueError if the object has been closed."""
        _ = self.model.handle

    def check(self, request: Request) -> None:
        """ValueError for what cannot be done with this object, before anything is computed."""
        n, n_ctx = len(request.prompt.tokens), self.verifier.context.n_ctx
        if n > n_ctx or (n == n_ctx and request.max_tokens != 0):
            raise ValueError(
                f"Requested tokens ({n}) exceed context window of {n_ctx}: at least one must be left for the answer; "
                "shorten the prompt, or load the model with a larger n_ctx"
            )
        if request.logprobs is not None and self.engine.policy.mode is Mode.TIERED:
            raise ValueError(
                "logprobs are not to be had in mode tiered: tokens that the slim tier decides have no "
                "log-probabilities of the full model; use mode 'sd' or 'exact'"
            )

    def answer(self, request: Request) -> Generator[AnswerStep, None, None]:
        """The answer step by step; the object is free again when the last step is out."""
        turn = self.turns.begin()
        length = len(request.prompt.tokens)
        try:
            self.sync()
            self._restore(request.prompt.tokens)
            watcher = self._watcher(request)
            sampling = replace(request.sampling, seed=self._llm._call_seed(request.seed))
            steps = self._steps(request.prompt.tokens, sampling, request.processors, watcher, request.max_tokens)
            with closing(steps):
                for step in steps:
                    length += len(step.tokens)
                    deltas = watcher.take(finished=step.finish_reason is not None)
                    if step.finish_reason is not None:
                        break
                    if deltas:
                        self.turns.pause(turn)
                        yield AnswerStep(deltas)
                        self.turns.resume(turn)
            if request.prompt.appended:
                deltas.append(TextDelta(request.prompt.appended))
            self._settle(length)
            if self._llm.cache is not None:
                self._llm.cache[self._llm.input_ids[:length].tolist()] = self._llm._state()
            last = AnswerStep(deltas, "stop" if watcher.stopped else step.finish_reason, self.stats)
        finally:
            self._end(turn, length)
        yield last

    def tokens(
        self,
        text: list[int],
        sampling: SamplingParams,
        processors: Sequence[LogitsProcessor],
        criteria: Criterion | None,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Token by token, end tokens like others, to the end of the context; what is sent in follows the token."""
        turn = self.turns.begin()
        try:
            sampling = replace(sampling, seed=self._llm._call_seed(None))
            sent: list[int] | None = []
            while sent is not None:
                text += sent
                self.sync()
                watcher = TextWatcher(
                    text, self.pieces(text), criteria=criteria, prompt_from=self._prompt_from, keep=self._keep
                )
                steps = self._steps(text, sampling, processors, watcher, None, stops_at_end=False)
                with closing(steps):
                    sent = yield from self._passed_on(turn, steps, text)
        finally:
            self._end(turn, len(text))

    def _passed_on(
        self, turn: Turn, steps: Iterator[Step], text: list[int]
    ) -> Generator[int, Sequence[int] | None, list[int] | None]:
        for step in steps:
            for token in step.tokens:
                text.append(token)
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
        """The engine's steps, shown to the outside as they come."""
        steps = self.engine.generate(
            prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            logits_processors=processors,
            watcher=watcher,
            stops_at_end=stops_at_end,
        )
        with closing(steps):
            position = 0
            tokens: Sequence[int] = prompt
            for step in steps:
                self._publish(position, [*tokens, *step.tokens])
                position += len(tokens) + len(step.tokens)
                tokens = ()
                yield step

    def _end(self, turn: Turn, length: int) -> None:
        if self.turns.is_current(turn):
            try:
                self._settle(length)
            finally:
                self.turns.end(turn)

    def _restore(self, prompt: list[int]) -> None:
        """Load a state of the user's cache if it holds more of the prompt than the context does."""
        llm = self._llm
        if llm.cache is None:
            return
        try:
            state = llm.cache[prompt]
        except KeyError:
            return
        held = common_prefix(state.input_ids[: state.n_tokens].tolist(), prompt)
        if held > common_prefix(self.verifier.cells, prompt):
            llm._restore(state)

    #
    # watchers
    #

    @property
    def _keep(self) -> Any:
        keeps = self.rows.keeps_all and self.engine.policy.mode is not Mode.TIERED
        return self.rows.put if keeps else None

    @property
    def _prompt_from(self) -> int | None:
        return self.rows.valid if self._keep is not None else None

    @property
    def uses_vocabulary(self) -> bool:
        """Whether texts are made by the model's own vocabulary, not by a tokenizer that the user gave."""
        return type(self._llm.tokenizer_) is import_llama_cpp("llama_tokenizer").LlamaTokenizer

    def pieces(self, before: Sequence[int]) -> Pieces:
        """How tokens become text."""
        return VocabularyPieces(self.model) if self.uses_vocabulary else TokenizerPieces(self._llm.tokenizer_, before)

    def _watcher(self, request: Request) -> TextWatcher:
        prompt, tokens = request.prompt, request.prompt.tokens
        text = prompt.text
        if text is None and (request.echo or request.logprobs is not None):
            text = self._llm.detokenize(tokens).decode("utf-8", "ignore")
        scores = request.echo and request.logprobs is not None
        return TextWatcher(
            tokens,
            self.pieces(tokens),
            stops=request.stops,
            stop_tokens=request.stop_tokens,
            criteria=request.criteria,
            logprobs=request.logprobs,
            offset=len(text or ""),
            echo=text if request.echo else None,
            skip=int(tokens[0] == self.model.bos),
            prompt_from=0 if scores else self._prompt_from,
            keep=self._keep,
        )

"""A conversation with a loaded model: questions in, pieces of answers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from ..engine.steps import FinishReason, Step, Tier
from ..runtime.chat_format import ChatFormat
from ..sampling.params import SamplingParams
from ..sampling.recommended import ChosenSampling, recommended
from ..session.session import Session
from ..session.settings import Settings
from ..session.text_steps import Piece, text_steps
from ..tiers.cache import common_prefix
from .conversation import ChatPrompt, Conversation
from .opening import OpenModel

LONG = 64  # new tokens of a prompt from which on the user is told to wait


class Dialogue:
    """Generates the answers of a conversation; keeps the pieces of the last answer."""

    def __init__(
        self,
        opened: OpenModel,
        conversation: Conversation,
        sampling: ChosenSampling,
        max_tokens: int | None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        """Talk with this model, and close it at the end; `max_tokens` limits an answer (None: to the context's end).

        `waiting` is told what the user waits for, before a prompt is read that is not short.
        """
        self._waiting = waiting or _say_nothing
        self.conversation = conversation
        self.sampling = sampling
        self.max_tokens = max_tokens
        self._use(opened)

    def _use(self, opened: OpenModel) -> None:
        """Go on with this model; the last answer of another one cannot be continued token by token."""
        self._opened = opened
        self.sampling = self.sampling.for_model(recommended(opened.session.model.metadata))
        self.pieces: list[Piece] = []
        self.finish_reason: FinishReason | None = None  # of the last answer; None if it was interrupted
        self._steps: list[Step] = []
        self._last: _Answer | None = None
        self._left_out = 0  # messages that the last prompt had no room for

    @property
    def session(self) -> Session:
        """The models that are loaded."""
        return self._opened.session

    @property
    def form(self) -> ChatFormat:
        """The format of the prompts."""
        return self._opened.form

    def change_model(self, settings: Settings, on_stage: Callable[[str], None]) -> None:
        """Close the present model and load another one; the conversation stays.

        If the other one cannot be loaded, the present one is loaded again, and the exception is raised.
        """
        before = self._opened
        before.close()  # first, since the two might not fit into memory together
        try:
            opened = OpenModel.load(settings, on_stage=on_stage)
        except BaseException:
            self._use(OpenModel.load(before.session.settings, before.template, on_stage))
            raise
        self._use(opened)

    def close(self) -> None:
        """Free the models."""
        self._opened.close()

    @property
    def n_ctx(self) -> int:
        """The context length in tokens."""
        return self.session.engine.verifier.context.n_ctx

    def shares(self) -> dict[Tier, float]:
        """Return the share of the last answer's tokens that each tier decided, 0 to 1; empty without an answer."""
        counts = Counter(piece.tier for piece in self.pieces)
        return {tier: counts[tier] / len(self.pieces) for tier in Tier if self.pieces}

    def answer(
        self, text: str, *, note: Callable[[str], None], sampling: SamplingParams | None = None
    ) -> Generator[Sequence[Piece], None, None]:
        """Yield the answer to `text`, the pieces of one step at a time; `note` is called when old turns no longer fit.

        Question and answer become turns, even if the iterator is closed early, unless it yielded nothing yet.
        Raises ValueError or ModelError, with nothing changed, if the message does not fit or cannot be rendered.
        """
        prompt = self.conversation.prompt_for(text, self.form.tokens, self.n_ctx)
        steps = self._generate(prompt.tokens, [], sampling or self.sampling.params)
        self._announce(prompt, note)
        complete = False
        try:
            yield from self._decode(steps, ())
            complete = True
        finally:
            if complete or self.pieces:
                self._finish(text, self.conversation.add)

    def go_on(self, *, note: Callable[[str], None]) -> Generator[Sequence[Piece], None, None]:
        """Yield the rest of the last answer, which was stopped or cut short; otherwise as `answer`.

        Raises ValueError if there is no answer, if the model had ended it, or if a grammar constrains it.
        """
        question, answer = self.conversation.last
        params = self.sampling.params
        if params.grammar is not None or params.json_schema is not None:
            raise ValueError("/continue cannot go on within a grammar; /set max_tokens N and /regen answer at length")
        last = self._last if self._last is not None and self._last.matches(question, answer) else None
        if last is not None and last.finish_reason == "stop":
            raise ValueError("the last answer is complete: the model ended it; /regen generates another one")
        begun = last.steps if last is not None else self._steps_of(answer)
        tokens = [token for step in begun for token in step.tokens]
        prompt = self.conversation.before_last().prompt_for(question, self.form.tokens, self.n_ctx - len(tokens))
        steps = self._generate(prompt.tokens, tokens, params)
        self._announce(prompt, note)
        try:
            yield from self._decode(steps, begun)
        finally:
            self._finish(question, lambda _question, answer: self.conversation.extend_last(answer))

    def _steps_of(self, answer: str) -> tuple[Step]:
        """Return the tokens of an answer that another process has generated."""
        model = self.session.model
        # after a line break, since some tokenizers put a space before the first word of a text
        tokens, head = (model.tokenize(text, add_special=False) for text in (f"\n{answer}", "\n"))
        if tokens[: len(head)] == head and model.detokenize(tokens[len(head) :]) == answer:
            tokens = tokens[len(head) :]
        else:
            tokens = model.tokenize(answer, add_special=False)
        return (Step(tuple(tokens), (Tier.FULL,) * len(tokens)),)

    def _generate(self, prompt: list[int], begun: list[int], params: SamplingParams) -> Generator[Step, None, None]:
        """Start a generation after a prompt and the tokens that the answer begins with."""
        watcher = self._opened.make_watcher() if self._opened.make_watcher is not None else None
        if watcher is not None:
            for token in begun:
                watcher.see_token(token, np.empty(0, np.float32))
        return self.session.engine.generate(
            prompt + begun, max_tokens=self.max_tokens, sampling=params, watcher=watcher
        )

    def _announce(self, prompt: ChatPrompt, note: Callable[[str], None]) -> None:
        """Tell of messages that no longer fit, and of a long wait."""
        if prompt.dropped > self._left_out:
            note(f"(the context is full: the model no longer sees the {prompt.dropped} oldest messages)")
        self._left_out = prompt.dropped
        new_tokens = len(prompt.tokens) - common_prefix(self.session.engine.verifier.cells, prompt.tokens)
        if new_tokens > LONG:
            self._waiting(f"reading {new_tokens} tokens; Ctrl-C stops it")

    def _decode(
        self, steps: Generator[Step, None, None], begun: tuple[Step, ...]
    ) -> Generator[Sequence[Piece], None, None]:
        """Yield the pieces of the steps after `begun`, and keep all pieces and steps of the answer."""
        pieces: list[Piece] = []
        self.pieces, self.finish_reason = pieces, None
        self._steps = [*begun]

        def recorded() -> Generator[Step, None, None]:
            with closing(steps):
                yield from begun
                for step in steps:
                    self._steps.append(step)
                    yield step

        with closing(text_steps(recorded(), self.session.model.piece)) as decoded:
            for _ in begun:
                pieces += next(decoded).pieces
            for step in decoded:
                pieces += step.pieces
                self.finish_reason = step.finish_reason
                yield step.pieces

    def _finish(self, question: str, keep: Callable[[str, str], None]) -> None:
        """Keep question and answer in the conversation, and the answer's tokens for `go_on`."""
        answer = "".join(piece.text for piece in self.pieces)
        keep(question, answer)
        self._last = _Answer(question, answer, tuple(self._steps), self.finish_reason)


def _say_nothing(_text: str) -> None:
    """Let the user wait without a word."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, the question, the steps of the answer, and why it ended."""

    question: str
    text: str
    steps: tuple[Step, ...]
    finish_reason: FinishReason | None

    def matches(self, question: str, text: str) -> bool:
        """Whether this is that answer to that question."""
        return (self.question, self.text) == (question, text)

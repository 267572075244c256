"""A conversation with a loaded model: questions in, pieces of answers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from ..engine.steps import FinishReason, Tier
from ..engine.watch import Watcher
from ..runtime.chat_format import ChatFormat
from ..sampling.params import SamplingParams
from ..sampling.recommended import ChosenSampling
from ..session.session import Session
from ..session.text_steps import Piece, text_steps
from ..tiers.cache import common_prefix
from .conversation import Conversation

LONG = 1000  # new tokens of a prompt from which on the user is told to wait


class Dialogue:
    """Generates the answers of a conversation; keeps the pieces of the last answer."""

    def __init__(
        self,
        session: Session,
        form: ChatFormat,
        conversation: Conversation,
        sampling: ChosenSampling,
        max_tokens: int | None,
        make_watcher: Callable[[], Watcher] | None = None,
    ) -> None:
        """`max_tokens` limits an answer (None: to the end of the context); `make_watcher` is called once per answer."""
        self.session = session
        self.form = form
        self.conversation = conversation
        self.sampling = sampling
        self.max_tokens = max_tokens
        self._make_watcher = make_watcher
        self.pieces: list[Piece] = []
        self.finish_reason: FinishReason | None = None  # of the last answer; None if it was interrupted

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
        """Yield the answer to `text`, the pieces of one step at a time; `note` is called when old turns are dropped.

        Question and answer become turns, even if the iterator is closed early, unless it yielded nothing yet.
        Raises ValueError or ModelError, with nothing changed, if the message does not fit or cannot be rendered.
        """
        prompt = self.conversation.prompt_for(text, self.form.tokens, self.n_ctx)
        steps = self.session.engine.generate(
            prompt.tokens,
            max_tokens=self.max_tokens,
            sampling=sampling or self.sampling.params,
            watcher=self._make_watcher() if self._make_watcher is not None else None,
        )
        if prompt.dropped:
            self.conversation.forget(prompt.dropped)
            note(f"(the context is full: the {prompt.dropped} oldest messages were dropped)")
        new_tokens = len(prompt.tokens) - common_prefix(self.session.engine.verifier.cells, prompt.tokens)
        if new_tokens > LONG:
            note(f"(reading {new_tokens} tokens; Ctrl-C stops it)")
        pieces: list[Piece] = []
        self.pieces = pieces
        self.finish_reason = None
        complete = False
        try:
            with closing(text_steps(steps, self.session.model.piece)) as decoded:
                for step in decoded:
                    pieces += step.pieces
                    self.finish_reason = step.finish_reason
                    yield step.pieces
            complete = True
        finally:
            if complete or pieces:
                self.conversation.add(text, "".join(piece.text for piece in pieces))

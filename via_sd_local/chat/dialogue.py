"""A conversation with a loaded model: questions in, pieces of answers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from ..engine.steps import FinishReason, Tier
from ..engine.watch import Watcher
from ..runtime.chat_format import ChatFormat
from ..sampling.sampler import SamplingParams
from ..session.session import Session
from ..session.text_steps import Piece, text_steps
from ..tiers.verifier import common_prefix
from .conversation import Conversation

LONG = 1000  # tokens of a message that take a while to read


class Dialogue:
    """Asks the session's engine what a conversation asks; keeps the last answer as it was decided."""

    def __init__(
        self,
        session: Session,
        form: ChatFormat,
        conversation: Conversation,
        sampling: SamplingParams,
        max_tokens: int | None,
        make_watcher: Callable[[], Watcher] | None = None,
    ) -> None:
        """`max_tokens` of an answer; None: to the end of the context. `make_watcher` makes one for each answer."""
        self.session = session
        self.form = form
        self.conversation = conversation
        self.sampling = sampling
        self.max_tokens = max_tokens
        self._make_watcher = make_watcher
        self.pieces: list[Piece] = []
        self.finish_reason: FinishReason | None = None  # of the last answer; None if it was stopped

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self.session.engine.verifier.context.n_ctx

    def shares(self) -> dict[Tier, float]:
        """What part of the last answer's tokens each tier decided; empty without an answer."""
        counts = Counter(piece.tier for piece in self.pieces)
        return {tier: counts[tier] / len(self.pieces) for tier in Tier if self.pieces}

    def answer(
        self, text: str, *, note: Callable[[str], None], sampling: SamplingParams | None = None
    ) -> Generator[Sequence[Piece], None, None]:
        """The answer to `text` as it comes, a step at a time; `note` is told when old turns had to go.

        Question and answer become turns, also if the answer is not read to its end, but not where nothing came.
        Raises ValueError or ModelError before anything changes, if the message cannot be asked.
        """
        prompt = self.conversation.prompt_for(text, self.form.tokens, self.n_ctx)
        steps = self.session.engine.generate(
            prompt.tokens,
            max_tokens=self.max_tokens,
            sampling=sampling or self.sampling,
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

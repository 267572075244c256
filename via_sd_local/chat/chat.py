"""A conversation on display: what the loop drives and the slash commands act on."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..interrupts import interrupts_after
from ..sampling.params import SamplingParams
from ..session.text_steps import Piece
from .attachment import Attachment, with_attachments
from .baseline import PlainSpeed
from .dialogue import Dialogue
from .display import Display
from .shade import shares_of
from .status import is_comparable, status_line
from .switches import Switches
from .terminal import echo_off


class Chat:
    """A dialogue, the display that shows it, and what the slash commands have set so far.

    Attributes:
        dialogue: The conversation, its session and its sampling parameters.
        display: Shows answers, notes and errors.
        switches: The settings that `/mode` and `/draft` change.
        colors: Whether tokens are coloured by who decided them, and whether they were drafted.
        file: The file of the last `/save` or `/load`.
        attachments: The files that go with the next message.
        regenerated: The number of `/regen` commands that drew with a seed; each draws with a different one.
        interrupted: Whether Ctrl-C was the last thing the user did; a second one in a row leaves the chat.
    """

    def __init__(self, dialogue: Dialogue, display: Display, switches: Switches) -> None:
        self.dialogue = dialogue
        self.display = display
        self.switches = switches
        self.colors = False
        self.file: Path | None = None
        self.attachments: list[Attachment] = []
        self.regenerated = 0
        self.interrupted = False
        self._plain = PlainSpeed()
        self._saved: str | None = None  # the conversation as it is in a file

    @property
    def is_unsaved(self) -> bool:
        """Whether there are messages that no file holds."""
        conversation = self.dialogue.conversation
        return bool(conversation.turns) and conversation.to_json() != self._saved

    def mark_saved(self) -> None:
        """Take note that a file holds the conversation."""
        self._saved = self.dialogue.conversation.to_json()

    def ask(self, text: str, sampling: SamplingParams | None = None) -> None:
        """Ask the model, and show its answer and a status line; files that were read go with the message.

        Ctrl-C stops the answer; the part that was shown stays in the conversation. Raises ValueError or ViaSdError
        if the message cannot be asked; the files then wait for the next one.
        """
        message = with_attachments(self.attachments, text)
        self._show(self.dialogue.answer(message, note=self.display.note, sampling=sampling))
        self.attachments.clear()

    def go_on(self) -> None:
        """Continue the last answer, and show the rest of it; otherwise as `ask`."""
        self._show(self.dialogue.go_on(note=self.display.note))

    def _show(self, answer: Generator[Sequence[Piece], None, None]) -> None:
        with echo_off(), _warnings_after(self.display):
            self.display.begin(colors=self.colors)
            try:
                with closing(answer):
                    for pieces in answer:
                        with interrupts_after():
                            self.display.push(pieces)
            except KeyboardInterrupt:
                self.interrupted = True
            with interrupts_after():
                self.display.end(stopped=self.interrupted)
                if self.dialogue.pieces or not self.interrupted:
                    self._show_status()

    def _show_status(self) -> None:
        dialogue, engine = self.dialogue, self.dialogue.session.engine
        stats = engine.stats
        if dialogue.finish_reason == "length":
            full = stats.prompt_tokens + stats.completion_tokens >= dialogue.n_ctx
            self.display.note(
                "(cut short: the context is full)" if full else "(cut short by --max-tokens; /continue goes on)"
            )
        if self.colors:
            self.display.legend(shares_of(dialogue.pieces, engine.policy.mode))
        plain = None
        if is_comparable(stats):
            with suppress(KeyboardInterrupt):  # it is heard when the line has been written
                plain = self._plain.tokens_per_second(engine.verifier)
        reasons = (engine.why_no_drafts, engine.why_no_slim)
        self.display.note(status_line(stats, dialogue.shares(), dialogue.n_ctx, plain, *reasons))


@contextmanager
def _warnings_after(display: Display) -> Iterator[None]:
    """Hold warnings back until the answer is complete, so that they do not appear in the middle of its text."""
    held: list[str] = []
    before = warnings.showwarning
    warnings.showwarning = lambda message, *_args, **_kwargs: held.append(str(message))
    try:
        yield
    finally:
        warnings.showwarning = before
        for text in held:
            display.note(f"warning: {text}")

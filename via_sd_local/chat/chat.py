"""A conversation on display: what the loop drives and the slash commands act on."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from ..engine.steps import Tier
from ..interrupts import interrupts_after
from ..sampling.params import SamplingParams
from ..session.text_steps import Piece
from .archive import Journal
from .attachment import Attachment, with_attachments
from .baseline import PlainSpeed
from .conversation import Conversation
from .dialogue import Dialogue
from .display import Display
from .excerpt import excerpt
from .held_warnings import warnings_after
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
        interrupted: Whether the last thing was Ctrl-C at an empty prompt; a second one in a row leaves the chat.
        journal: Keeps the conversation as it goes; None if it is not kept.
    """

    def __init__(
        self, dialogue: Dialogue, display: Display, switches: Switches, journal: Journal | None = None
    ) -> None:
        self.dialogue = dialogue
        self.display = display
        self.switches = switches
        self.colors = False
        self.file: Path | None = None
        self.attachments: list[Attachment] = []
        self.regenerated = 0
        self.interrupted = False
        self.journal = journal
        self._problem: str | None = None
        self._plain = PlainSpeed()
        self._saved: str | None = None  # the conversation as it is in a file

    @property
    def is_unsaved(self) -> bool:
        """Whether there are messages that no file holds, not even one of the archive."""
        if self.journal is not None and self.journal.problem is None:
            return False
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
        before = self.dialogue.conversation.copy()
        if self.journal is not None:
            self.journal.write(before.with_exchange(message, ""))
        self._show(self.dialogue.answer(message, note=self.display.note, sampling=sampling), before, message)
        self.attachments.clear()

    def go_on(self) -> None:
        """Continue the last answer, and show the rest of it; otherwise as `ask`."""
        conversation = self.dialogue.conversation
        before, (question, _) = conversation.before_last(), conversation.last
        self._show(self.dialogue.go_on(note=self.display.note), before, question)

    def show_end(self, unanswered: str | None = None) -> None:
        """Show the system message and the last exchange, so that the user sees where the conversation stands.

        `unanswered` is a later message that had no answer.
        """
        system = self.dialogue.conversation.system
        if system:
            self.display.note(f"(system message: {excerpt(system)})")
        if self.dialogue.conversation.turns:
            question, answer = self.dialogue.conversation.last
            self.display.note(f"> {excerpt(question)}")
            self.display.begin()
            self.display.push([Piece(answer, Tier.FULL)])
            self.display.end()
        if unanswered is not None:
            self.display.note(f"(never answered, and left out: {unanswered})")

    def keep(self) -> None:
        """Write the conversation to its file, and say once if that fails."""
        if self.journal is None:
            return
        self.journal.write(self.dialogue.conversation)
        problem = self.journal.problem
        if problem is not None and problem != self._problem:
            self.display.note(f"(this conversation is not kept: {problem})")
        self._problem = problem

    def _show(self, answer: Generator[Sequence[Piece], None, None], before: Conversation, question: str) -> None:
        """Show an answer to `question`, which follows the conversation `before`, and keep what there is of it."""
        stopped = False
        with echo_off(), warnings_after(self.display):
            self.display.begin(colors=self.colors)
            try:
                with closing(answer):
                    for pieces in answer:
                        with interrupts_after():
                            self.display.push(pieces)
                            if self.journal is not None and self.journal.is_due():
                                text = "".join(piece.text for piece in self.dialogue.pieces)
                                self.journal.write(before.with_exchange(question, text))
            except KeyboardInterrupt:
                stopped = True
            with interrupts_after():
                self.display.end(stopped=stopped)
                if self.dialogue.pieces or not stopped:
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

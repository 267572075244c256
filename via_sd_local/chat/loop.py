"""The conversation in a terminal: read, answer, until the user leaves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import ViaSdError
from ..interrupts import interrupts_after
from ..sampling.sampler import SamplingParams
from .baseline import PlainSpeed
from .commands import Leave, carry_out, is_command
from .dialogue import Dialogue
from .display import Display
from .reader import Discarded, Reader, typing_hidden
from .status import comparable, status_line
from .switches import Switches


class Chat:
    """Joins what is said, how it is shown and where it comes from."""

    def __init__(self, dialogue: Dialogue, display: Display, reader: Reader, switches: Switches) -> None:
        self.dialogue = dialogue
        self.display = display
        self.reader = reader
        self.switches = switches
        self.colors = False
        self.file: Path | None = None  # of the last /save or /load
        self.regenerated = 0
        self._plain = PlainSpeed()
        self._stopped = False  # by a Ctrl-C; the next one leaves

    def run(self) -> int:
        """Talk until /exit, the end of input, or Ctrl-C twice; returns the exit status."""
        session = self.dialogue.session
        self.display.note(f"{session.model.path.name}, {session.engine.policy.mode.value} mode; /help for commands")
        while True:
            try:
                text = self.reader.read().strip()
            except EOFError:
                print()
                return 0
            except Discarded:
                self._stopped = False
                continue
            except KeyboardInterrupt:
                if self._stopped:
                    raise
                self._stopped = True
                self.display.note("(Ctrl-C again, Ctrl-D or /exit leaves)")
                continue
            self._stopped = False
            if not text:
                continue
            try:
                if is_command(text):
                    with typing_hidden():
                        carry_out(self, text)
                else:
                    self.ask(text)
            except Leave:
                return 0
            except (ValueError, ViaSdError) as error:
                self.display.error(" ".join(str(error).split()))
            except KeyboardInterrupt:
                if self._stopped:
                    raise
                self._stopped = True
                self.display.note("[stopped]")

    def ask(self, text: str, sampling: SamplingParams | None = None) -> None:
        """Ask the model and show its answer; ValueError or ViaSdError where that is not possible."""
        answer = self.dialogue.answer(text, note=self.display.note, sampling=sampling)
        with typing_hidden(), _warnings_after(self.display):
            self.display.begin(colors=self.colors)
            try:
                with closing(answer):  # type: ignore[type-var]  # it is a generator
                    for pieces in answer:
                        with interrupts_after():
                            self.display.push(pieces)
            except KeyboardInterrupt:
                self._stopped = True
            with interrupts_after():
                self.display.end(stopped=self._stopped)
                if self.dialogue.pieces or not self._stopped:
                    self._say_status()

    def _say_status(self) -> None:
        dialogue, engine = self.dialogue, self.dialogue.session.engine
        stats = engine.stats
        if dialogue.finish_reason == "length":
            full = stats.prompt_tokens + stats.completion_tokens >= dialogue.n_ctx
            self.display.note("(cut: the context is full)" if full else "(cut: --max-tokens)")
        if self.colors:
            self.display.legend(dialogue.shares())
        plain = None
        if comparable(stats):
            with suppress(KeyboardInterrupt):  # it is heard when the line has been written
                plain = self._plain.tokens_per_second(engine.verifier)
        self.display.note(status_line(stats, dialogue.shares(), dialogue.n_ctx, plain, engine.why_no_drafts))


@contextmanager
def _warnings_after(display: Display) -> Iterator[None]:
    """Show warnings at the end: in an answer, they would be where its own text belongs."""
    held: list[str] = []
    before = warnings.showwarning
    warnings.showwarning = lambda message, *_args, **_kwargs: held.append(str(message))
    try:
        yield
    finally:
        warnings.showwarning = before
        for text in held:
            display.note(f"warning: {text}")

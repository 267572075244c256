"""The prompt: line editing, history, pastes of many lines, completion of commands (prompt_toolkit)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, create_output

from ..files import cache_folder
from ..visible import unguarded
from .commands.registry import completions
from .reader import PROMPT, Discarded
from .screen import Printable
from .terminal import no_color
from .wrapping import wrap_rows


class PromptReader:
    """Read messages with line editing, history and completion.

    Enter sends a message and Alt-Enter starts a new line; the lines of a paste are one message.
    """

    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            output=create_output(unguarded(sys.stdout)),
            history=_history(),
            completer=CommandCompleter(),
            complete_while_typing=Condition(self._is_command),
            key_bindings=_bindings(),
            color_depth=ColorDepth.DEPTH_1_BIT if no_color() else None,
            enable_suspend=True,
            reserve_space_for_menu=4,
        )
        # what was typed is written anew when it is complete: of a message that is taller than the window, the editor
        # leaves only a part, and nothing in the scrollback
        self._session.app.erase_when_done = True

    def read(self) -> str:
        """Return the next message; see `Reader.read`."""
        try:
            text = _valid_unicode(self._session.prompt(PROMPT))
        except Discarded as error:
            self._write(f"{error}^C")
            raise
        except KeyboardInterrupt:
            self._write("")
            raise
        except EOFError:
            print(PROMPT, end="")
            raise
        self._write(text)
        return text

    def _write(self, message: str) -> None:
        """Write a message as it looked while it was typed."""
        width = max(self._session.app.output.get_size().columns - len(PROMPT), 1)
        rows = [row for line in Printable().push(message).split("\n") for row in wrap_rows(line, width)]
        print(PROMPT + f"\n{' ' * len(PROMPT)}".join(rows), flush=True)

    def _is_command(self) -> bool:
        return self._session.default_buffer.text.startswith("/")


class CommandCompleter(Completer):
    """Complete slash commands and their arguments."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and "\n" not in before:
            for start, text in completions(before):
                yield Completion(text, start_position=start)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()
    marks_pastes = False  # whether the terminal is known to mark pastes (bracketed paste)

    @bindings.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        nonlocal marks_pastes
        marks_pastes = True
        event.current_buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n"))

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        # from a terminal that does not mark them, the lines of a paste arrive as if they were typed, all at once
        if not marks_pastes and any(press.key != Keys.CPRResponse for press in event.app.key_processor.input_queue):
            event.current_buffer.newline(copy_margin=False)
        else:
            event.current_buffer.validate_and_handle()

    @bindings.add("c-j")
    def _(event: KeyPressEvent) -> None:  # ends lines that were typed during an answer
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        text = _valid_unicode(event.current_buffer.text)
        event.current_buffer.append_to_history()  # arrow up brings it back
        event.app.exit(exception=Discarded(text) if text else KeyboardInterrupt, style="class:aborting")

    return bindings


class _History(FileHistory):
    """A history file whose errors do not end the chat."""

    def load_history_strings(self) -> Iterable[str]:
        with contextlib.suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(_valid_unicode(string))


def _history() -> History:
    """Return the history of messages: a file in the cache folder that only the user can read, else in memory."""
    path = cache_folder() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return _History(str(path))


def _valid_unicode(text: str) -> str:
    """Replace bytes that are not UTF-8, which arrive as lone surrogates, by U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

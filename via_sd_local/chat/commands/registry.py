"""The list of all slash commands: how one is recognised, carried out and completed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..chat import Chat
from .command import Command, Leave
from .exchange import COPY, READ
from .files import LOAD, SAVE
from .help import help_text
from .models import MODEL
from .modes import DRAFT, MODE
from .parameters import SET, SHOW
from .resume import RESUME
from .turns import CLEAR, CONTINUE, REGEN, SYSTEM, UNDO
from .view import COLORS, STATS


def is_command(text: str) -> bool:
    """Return whether a message is meant as a command.

    It is a single line that begins with a word such as `/help`, or `/?`, or a name without a slash that stands alone.
    """
    return text in _BARE_NAMES or re.fullmatch(r"/([A-Za-z]*|\?)( [^\n]*)?", text) is not None


def carry_out(chat: Chat, text: str) -> None:
    """Carry out a command line.

    Raises ValueError for an unknown command or a bad argument, ViaSdError if the command fails, and Leave for `/exit`.
    """
    name, _, argument = text.partition(" ")
    command = _find(name)
    if command is None:
        raise ValueError(f"unknown command {name}; /help lists the commands")
    if argument.strip() and not command.arguments:
        raise ValueError(f"{name} takes no argument, but was given {argument.strip()!r}")
    command.run(chat, argument.strip())


def completions(text: str) -> Iterator[tuple[int, str]]:
    """Yield the possible completions of a command line as `(start, replacement)`.

    `start` is the position at which the replacement begins, counted back from the end of `text` (0 or negative).
    """
    name, space, argument = text.partition(" ")
    if not space:
        names = [command.name for command in COMMANDS if command.name.startswith(name)]
        names = names or [alias for command in COMMANDS for alias in command.aliases if alias.startswith(name)]
        yield from ((-len(name), completion) for completion in names)
    elif (command := _find(name)) is not None:
        yield from ((-len(argument), completion) for completion in command.complete(argument))


def _find(name: str) -> Command | None:
    return next((command for command in COMMANDS if name == command.name or name in command.aliases), None)


def _help(chat: Chat, _argument: str) -> None:
    chat.display.show(help_text(COMMANDS, chat.display.width))


def _exit(_chat: Chat, _argument: str) -> None:
    raise Leave


HELP = Command("/help", "", "show this list (also /?)", _help, aliases=("/?",))
EXIT = Command("/exit", "", "leave the chat (also /bye, /quit, exit)", _exit, aliases=("/bye", "/quit", "exit", "quit"))

COMMANDS = (
    *(SHOW, SET, MODEL, MODE, DRAFT, SYSTEM),
    *(REGEN, CONTINUE, UNDO, READ, COPY),
    *(SAVE, LOAD, RESUME, CLEAR, STATS, COLORS, HELP, EXIT),
)
_BARE_NAMES = tuple(alias for command in COMMANDS for alias in command.aliases if not alias.startswith("/"))

"""The text of `/help`."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from .command import Command

_KEYS = (
    "Enter sends, Alt-Enter starts a new line; several lines pasted at once are one message.",
    "Ctrl-C stops an answer, and leaves when pressed twice at an empty prompt.",
    "Ctrl-D leaves.",
)


def help_text(commands: Sequence[Command], width: int) -> str:
    """Return a list of the commands and keys, in lines of at most `width` columns unless a single word is longer."""
    names = [f"{command.name} {command.arguments}".rstrip() for command in commands]
    indent = max(map(len, names)) + 2
    lines: list[str] = []
    for name, command in zip(names, commands, strict=True):
        if width >= 2 * indent:
            lines += wrap(command.help, width, initial_indent=f"{name:<{indent}}", subsequent_indent=" " * indent)
        else:
            lines += [name, *wrap(command.help, width, initial_indent="  ", subsequent_indent="  ")]
    for keys in _KEYS:
        lines += wrap(keys, width)
    return "\n".join(lines)

"""What a slash command is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..chat import Chat


def no_completions(_argument: str) -> Iterable[str]:
    """Complete nothing: the default of commands whose argument is free text."""
    return ()


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: its name with the slash, its arguments and its purpose for `/help`, and what it does.

    `run(chat, argument)` raises ValueError or ViaSdError if the command cannot be carried out. `complete(argument)`
    returns the arguments that begin with what has been typed. A command with empty `arguments` takes none. `aliases`
    are other names for it, such as those that other programs use.
    """

    name: str
    arguments: str
    help: str
    run: Callable[[Chat, str], None]
    complete: Callable[[str], Iterable[str]] = no_completions
    aliases: tuple[str, ...] = ()


class Leave(Exception):
    """The user wants to leave the chat."""

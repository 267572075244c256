"""`/save` and `/load`: keep a conversation in a file."""

from __future__ import annotations

import os
from pathlib import Path

from ...files import user_path
from ..chat import Chat
from ..conversation import Conversation
from ..conversation_file import load, save
from .command import Command


def _save(chat: Chat, argument: str) -> None:
    path = _path(chat, argument, "/save")
    save(chat.dialogue.conversation, path)
    chat.file = path
    chat.mark_saved()
    chat.display.note(f"(saved to {path})")


def _load(chat: Chat, argument: str) -> None:
    path = _path(chat, argument, "/load")
    loaded = load(path)
    if chat.is_unsaved:
        number = _exchanges(chat.dialogue.conversation)
        raise ValueError(f"the present conversation ({number}) is not saved; /save FILE keeps it, /clear drops it")
    chat.dialogue.conversation = loaded
    chat.file = path
    if chat.journal is not None:
        chat.journal.begin()
    chat.mark_saved()
    chat.display.note(f"(loaded {_exchanges(chat.dialogue.conversation)} from {path})")
    chat.show_end()


def _exchanges(conversation: Conversation) -> str:
    number = len(conversation.turns) // 2
    return f"{number} exchange{'' if number == 1 else 's'}"


def _path(chat: Chat, argument: str, command: str) -> Path:
    """Return the file that the argument names, else that of the last `/save` or `/load`."""
    if argument:
        return user_path(argument)
    if chat.file is None:
        raise ValueError(f"{command} needs a file name: {command} NAME.json")
    return chat.file


def path_completions(argument: str) -> list[str]:
    """Return the paths that begin with what has been typed."""
    folder, prefix = os.path.split(argument)
    try:
        names = sorted(os.listdir(os.path.expanduser(folder) or "."))
    except OSError:
        return []
    shown = (name for name in names if name.startswith(prefix) and (prefix or not name.startswith(".")))
    return [os.path.join(folder, name) for name in shown]


SAVE = Command("/save", "[FILE]", "save the conversation to a file", _save, path_completions)
LOAD = Command("/load", "[FILE]", "load a saved conversation and continue it", _load, path_completions)

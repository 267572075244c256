"""`/resume`: go on with an earlier conversation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ..archive import Entry
from ..chat import Chat
from ..conversation_file import load
from .command import Command

_LISTED = 20


def _resume(chat: Chat, argument: str) -> None:
    journal = chat.journal
    if journal is None:
        raise ValueError("there are no earlier conversations: this one is not kept")
    entries = [entry for entry in journal.archive.entries() if entry.path != journal.path]
    if not entries:
        raise ValueError("there is no earlier conversation")
    if not argument:
        chat.display.show("\n".join(_lines(entries[:_LISTED])))
        chat.display.note("(/resume N goes on with one of them)")
        return
    entry = _chosen(entries, argument)
    chat.display.note(f"(resumed: {entry.title})")
    reopen(chat, entry.path)


def reopen(chat: Chat, path: Path) -> None:
    """Go on with the conversation in a file of the archive, and show its end; raises ValueError if it is unreadable."""
    conversation = load(path)
    unanswered = conversation.take_unanswered()
    if chat.journal is not None:
        chat.journal.begin(path)
    chat.dialogue.conversation = conversation
    chat.show_end(unanswered)


def _chosen(entries: Sequence[Entry], argument: str) -> Entry:
    """Return the entry with a number, counted from 1, or the only one with these words in its title."""
    if argument.isdecimal():
        number = int(argument)
        if not 1 <= number <= len(entries):
            raise ValueError(f"there is no conversation {argument}; /resume lists them")
        return entries[number - 1]
    found = [entry for entry in entries if argument.lower() in entry.title.lower()]
    if len(found) != 1:
        how_many = f"{len(found)} conversations have" if found else "no conversation has"
        raise ValueError(f"{how_many} {argument!r} in the title; /resume lists them, /resume N takes one")
    return found[0]


def _lines(entries: Sequence[Entry]) -> list[str]:
    width = len(str(len(entries)))
    return [
        f"{number:>{width}}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(entry.written))}  {entry.title}"
        for number, entry in enumerate(entries, 1)
    ]


RESUME = Command("/resume", "[N]", "list earlier conversations, or go on with number N", _resume)

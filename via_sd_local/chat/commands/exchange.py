"""`/read` and `/copy`: text from a file into a message, and an answer to the clipboard."""

from __future__ import annotations

from ..attachment import read_attachment
from ..chat import Chat
from .command import Command
from .files import path_completions


def _read(chat: Chat, argument: str) -> None:
    if not argument:
        raise ValueError("/read needs a file name: /read FILE; /read none takes files back")
    if argument == "none":
        chat.attachments.clear()
        chat.display.note("(no file goes with the next message)")
        return
    dialogue = chat.dialogue
    attachment = read_attachment(argument, dialogue.session.model.tokenize, dialogue.n_ctx)
    chat.attachments.append(attachment)
    chat.display.note(f"({attachment.name}, {attachment.n_tokens} tokens, goes with the next message)")


def _copy(chat: Chat, _argument: str) -> None:
    turns = chat.dialogue.conversation.turns
    if not turns:
        raise ValueError("there is no answer yet")
    text = turns[-1]["content"]
    chat.display.copy(text)
    chat.display.note(f"(sent {len(text)} characters to the terminal, which puts them on the clipboard if it can)")


READ = Command("/read", "FILE", "read a text file into the next message; none takes it back", _read, path_completions)
COPY = Command("/copy", "", "copy the last answer to the clipboard, in terminals that allow it (OSC 52)", _copy)

"""`/system`, `/regen`, `/continue`, `/undo` and `/clear`: change what has been said."""

from __future__ import annotations

from dataclasses import replace

from ..chat import Chat
from ..conversation import Conversation
from ..excerpt import excerpt
from .command import Command


def _system(chat: Chat, argument: str) -> None:
    conversation = chat.dialogue.conversation
    if argument:
        conversation.system = None if argument == "none" else argument
    chat.display.note(f"(system message: {conversation.system})" if conversation.system else "(no system message)")


def _regen(chat: Chat, argument: str) -> None:
    sampling = chat.dialogue.sampling.params
    if argument:
        try:
            temperature = float(argument)
        except ValueError:
            raise ValueError(f"temperature is {argument!r}; it must be a number, 0 or larger") from None
        sampling = chat.dialogue.sampling.with_value("temperature", temperature).params
    if sampling.temperature == 0:
        chat.display.note("(at temperature 0 the answer will be much the same; /regen 0.8 samples a new one)")
    elif sampling.seed is not None:
        chat.regenerated += 1
        sampling = replace(sampling, seed=sampling.seed + chat.regenerated)
    conversation = chat.dialogue.conversation
    question, answer = conversation.take_back()
    previous = conversation.turns[-1] if conversation.turns else None
    try:
        chat.ask(question, sampling)
    finally:
        if not conversation.turns or conversation.turns[-1] is previous:  # there is no new answer: restore the old one
            conversation.add(question, answer)


def _continue(chat: Chat, _argument: str) -> None:
    chat.go_on()


def _undo(chat: Chat, _argument: str) -> None:
    question, _ = chat.dialogue.conversation.take_back()
    chat.display.note(f"(removed: {excerpt(question)})")


def _clear(chat: Chat, _argument: str) -> None:
    chat.dialogue.conversation = Conversation(chat.dialogue.conversation.system)
    if chat.journal is None:
        chat.display.note("(conversation cleared)")
    else:
        chat.journal.begin()
        chat.display.note("(conversation cleared; /resume brings it back)")


SYSTEM = Command("/system", "[TEXT]", "show or set the system message; none removes it", _system)
REGEN = Command("/regen", "[TEMPERATURE]", "answer the last message again (also /retry)", _regen, aliases=("/retry",))
CONTINUE = Command("/continue", "", "go on with the last answer, which was stopped or cut short", _continue)
UNDO = Command("/undo", "", "remove the last message and its answer", _undo)
CLEAR = Command("/clear", "", "forget all messages but the system message", _clear)

"""The chat's / commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from ..engine.policy import Mode
from ..files import replacing
from ..session.settings import MODES, Settings
from .conversation import Conversation
from .status import flat

if TYPE_CHECKING:
    from .chat import Chat


class Leave(Exception):
    """The user wants to leave."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a command is called, takes, does (for /help), and how."""

    name: str
    arguments: str
    help: str
    run: Callable[[Chat, str], None]


def is_command(text: str) -> bool:
    """Whether a message is meant as a command: one line that begins with a word like /this."""
    return re.fullmatch(r"/[A-Za-z]*( [^\n]*)?", text) is not None


def carry_out(chat: Chat, text: str) -> None:
    """Carry out a command; ValueError for one that does not exist or that cannot be done, Leave for /exit."""
    name, _, argument = text.partition(" ")
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        raise ValueError(f"{name} is no command; /help lists them")
    if argument.strip() and not command.arguments:
        raise ValueError(f"{name} takes nothing after it, not {argument.strip()!r}")
    command.run(chat, argument.strip())


def completions(text: str) -> Iterator[tuple[int, str]]:
    """What may stand in place of the end of a command line: where that begins (a number below 0), and the text."""
    name, space, argument = text.partition(" ")
    if not space:
        for command in COMMANDS:
            if command.name.startswith(name):
                yield -len(name), command.name
    elif name == "/mode":
        yield from ((-len(argument), mode) for mode in MODES if mode.startswith(argument))
    elif name == "/draft":
        yield from ((-len(argument), draft) for draft in _drafts() if draft.startswith(argument))
    elif name in ("/save", "/load"):
        yield from ((-len(argument), path) for path in _paths(argument))


def _drafts() -> list[str]:
    from ..catalog.inventory import listing

    return ["lookup", "none", *(entry.name for entry in listing() if entry.path)]


def _paths(begun: str) -> list[str]:
    folder, name = os.path.split(begun)
    try:
        found = sorted(os.listdir(os.path.expanduser(folder) or "."))
    except OSError:
        return []
    return [os.path.join(folder, entry) for entry in found if entry.startswith(name) and (name or entry[0] != ".")]


#
# the commands
#


def _help(chat: Chat, _argument: str) -> None:
    chat.display.show(help_text(chat.display.width))


_KEYS = (
    "Enter sends, Alt-Enter begins another line; a paste of many lines is one message.",
    "Ctrl-C stops an answer, and leaves when pressed again; Ctrl-D leaves.",
)


def help_text(width: int) -> str:
    """The commands and keys, in lines of at most so many columns (as far as the words permit)."""
    names = [f"{command.name} {command.arguments}".rstrip() for command in COMMANDS]
    indent = max(map(len, names)) + 2
    lines: list[str] = []
    for name, command in zip(names, COMMANDS, strict=True):
        if width >= 2 * indent:
            lines += wrap(command.help, width, initial_indent=f"{name:<{indent}}", subsequent_indent=" " * indent)
        else:
            lines += [name, *wrap(command.help, width, initial_indent="  ", subsequent_indent="  ")]
    for keys in _KEYS:
        lines += wrap(keys, width)
    return "\n".join(lines)


def _stats(chat: Chat, _argument: str) -> None:
    chat.display.show("\n".join(flat(chat.dialogue.session.engine.stats.to_json())))


def _mode(chat: Chat, argument: str) -> None:
    if argument:
        mode, _, mask = argument.partition(" ")
        _switch(chat, chat.switches.with_mode(mode, mask.strip() or None))
    _say_mode(chat)


def _draft(chat: Chat, argument: str) -> None:
    if argument:
        _switch(chat, chat.switches.with_drafter(argument))
    _say_mode(chat)


def _switch(chat: Chat, settings: Settings) -> None:
    chat.dialogue.session.switch(settings)
    chat.switches.use(settings)


def _say_mode(chat: Chat) -> None:
    settings = chat.switches.settings
    engine = chat.dialogue.session.engine
    parts = [f"mode {engine.policy.mode.value}"]
    if engine.policy.mode is not Mode.PLAIN:
        names = {"model": settings.draft, "self": f"the verifier without {settings.draft_mask}"}
        drafters = [names.get(kind.value) or kind.value for kind in settings.drafter_kinds]
        parts.append(f"drafts by {', then '.join(drafters)}")
    if engine.policy.mode in (Mode.EXACT, Mode.TIERED):
        parts.append(f"the slim tier skips {engine.verifier.mask}")
    chat.display.note(f"({', '.join(parts)})")


def _system(chat: Chat, argument: str) -> None:
    conversation = chat.dialogue.conversation
    if argument:
        conversation.system = None if argument == "none" else argument
    chat.display.note(f"(system message: {conversation.system})" if conversation.system else "(no system message)")


def _regen(chat: Chat, argument: str) -> None:
    sampling = chat.dialogue.sampling
    if argument:
        try:
            temperature = float(argument)
        except ValueError:
            raise ValueError(f"the temperature is {argument!r}; it is a number, 0 or larger") from None
        sampling = replace(sampling, temperature=temperature)
    if sampling.temperature == 0:
        chat.display.note("(at temperature 0 an answer hardly changes; /regen 0.8 draws one)")
    elif sampling.seed is not None:
        chat.regenerated += 1
        sampling = replace(sampling, seed=sampling.seed + chat.regenerated)
    conversation = chat.dialogue.conversation
    question, answer = conversation.take_back()
    before = conversation.turns[-1] if conversation.turns else None
    try:
        chat.ask(question, sampling)
    finally:
        if not conversation.turns or conversation.turns[-1] is before:  # no other answer came
            conversation.add(question, answer)


def _undo(chat: Chat, _argument: str) -> None:
    question, _ = chat.dialogue.conversation.take_back()
    first = question.strip().splitlines()[0] if question.strip() else ""
    chat.display.note(f"(taken back: {first[:60]}{'…' if first[60:] or chr(10) in question.strip() else ''})")


def _save(chat: Chat, argument: str) -> None:
    path = _path(chat, argument, "/save")
    try:
        if path.exists():
            Conversation.from_json(path.read_text(encoding="utf-8"))  # another kind of file is not overwritten
    except (ValueError, OSError):
        raise ValueError(f"{path} exists and is no saved conversation; choose another name") from None
    try:
        with replacing(path) as file:
            file.write(chat.dialogue.conversation.to_json())
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
    chat.file = path
    chat.display.note(f"(saved to {path})")


def _load(chat: Chat, argument: str) -> None:
    path = _path(chat, argument, "/load")
    try:
        conversation = Conversation.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: this is no saved conversation: it is not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    chat.dialogue.conversation = conversation
    chat.file = path
    chat.display.note(f"(loaded {len(conversation.turns) // 2} exchanges from {path})")


def _path(chat: Chat, argument: str, command: str) -> Path:
    if argument:
        return Path(argument).expanduser()
    if chat.file is None:
        raise ValueError(f"{command} needs the name of a file: {command} NAME.json")
    return chat.file


def _clear(chat: Chat, _argument: str) -> None:
    chat.dialogue.conversation.turns.clear()
    chat.display.note("(the conversation is forgotten)")


def _colors(chat: Chat, _argument: str) -> None:
    if not chat.display.can_color:
        raise ValueError("there are no colours here: TERM=dumb, NO_COLOR, or standard output is no terminal")
    chat.colors = not chat.colors
    if not chat.colors:
        chat.display.note("(no colours)")
    else:
        chat.display.note("(colours: a draft kept by the slim tier, the slim tier's own token, the full model's)")
        if chat.dialogue.pieces:
            chat.display.begin(colors=True)
            chat.display.push(chat.dialogue.pieces)
            chat.display.end()
        chat.display.legend(chat.dialogue.shares())


def _exit(_chat: Chat, _argument: str) -> None:
    raise Leave


COMMANDS = (
    Command("/stats", "", "figures of the last answer", _stats),
    Command(
        "/mode",
        "[MODE [LAYERS]]",
        "plain, sd, exact, tiered, or auto (what the profile says); LAYERS: what the slim tier skips",
        _mode,
    ),
    Command("/draft", "[DRAFTER]", "a model, lookup (from the text itself), lookup+MODEL, self LAYERS, none", _draft),
    Command("/colors", "", "tokens in the colour of the tier that decided them, on or off", _colors),
    Command("/system", "[TEXT]", "the system message; none: without one", _system),
    Command("/regen", "[TEMPERATURE]", "answer the last message again", _regen),
    Command("/undo", "", "take the last message and its answer back", _undo),
    Command("/save", "[FILE]", "keep the conversation in a file", _save),
    Command("/load", "[FILE]", "go on with a saved conversation", _load),
    Command("/clear", "", "forget the conversation", _clear),
    Command("/help", "", "this list", _help),
    Command("/exit", "", "leave", _exit),
)

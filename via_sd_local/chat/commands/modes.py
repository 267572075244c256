"""`/mode` and `/draft`: change the mode and the drafter during a conversation."""

from __future__ import annotations

from collections.abc import Iterator

from ...session.settings import MODES, Settings
from ..chat import Chat
from ..overview import mode_text
from .command import Command


def _mode(chat: Chat, argument: str) -> None:
    if argument:
        mode, _, mask = argument.partition(" ")
        _switch(chat, chat.switches.with_mode(mode, mask.strip() or None))
    _show_mode(chat)


def _draft(chat: Chat, argument: str) -> None:
    if argument:
        _switch(chat, chat.switches.with_drafter(argument))
    _show_mode(chat)


def _switch(chat: Chat, settings: Settings) -> None:
    chat.dialogue.session.switch(settings)
    chat.switches.use(settings)


def _show_mode(chat: Chat) -> None:
    chat.display.note(f"(mode {mode_text(chat)})")


def _mode_completions(argument: str) -> Iterator[str]:
    return (mode for mode in MODES if mode.startswith(argument))


def _draft_completions(argument: str) -> Iterator[str]:
    from ...catalog.inventory import listing

    drafters = ["lookup", "none", *(entry.name for entry in listing() if entry.path)]
    return (drafter for drafter in drafters if drafter.startswith(argument))


MODE = Command(
    "/mode",
    "[MODE [LAYERS | BUDGET]]",
    "show or set the mode: plain, sd, exact, lenient, tiered, viasd, or auto (the profile's choice); LAYERS: what the "
    "slim tier skips; BUDGET: the share of tokens that may deviate in lenient",
    _mode,
    _mode_completions,
)
DRAFT = Command(
    "/draft",
    "[DRAFTER]",
    "show or set the drafter: a model, lookup (repeats from the text so far), lookup+MODEL, self LAYERS, or none",
    _draft,
    _draft_completions,
)

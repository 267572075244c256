"""`/stats` and `/colors`: look closer at the last answer."""

from __future__ import annotations

from ..chat import Chat
from ..status import counter_lines
from .command import Command


def _stats(chat: Chat, _argument: str) -> None:
    chat.display.show("\n".join(counter_lines(chat.dialogue.session.engine.stats.to_json())))


def _colors(chat: Chat, _argument: str) -> None:
    if not chat.display.can_color:
        raise ValueError(
            "colours are not available here: NO_COLOR is set, TERM is dumb, or standard output is not a terminal"
        )
    chat.colors = not chat.colors
    if not chat.colors:
        chat.display.note("(colours off)")
        return
    chat.display.note("(colours on: draft tokens that the slim tier accepted, the slim tier's own, the full model's)")
    if chat.dialogue.pieces:
        chat.display.begin(colors=True)
        chat.display.push(chat.dialogue.pieces)
        chat.display.end()
    chat.display.legend(chat.dialogue.shares())


STATS = Command("/stats", "", "show statistics of the last answer", _stats)
COLORS = Command("/colors", "", "colour tokens by the tier that decided them, on or off", _colors)

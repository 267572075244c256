"""`/stats` and `/colors`: look closer at the last answer."""

from __future__ import annotations

import json

from ..chat import Chat
from ..report import report
from ..shade import shades_of, shares_of
from .command import Command


def _stats(chat: Chat, argument: str) -> None:
    dialogue = chat.dialogue
    engine = dialogue.session.engine
    if argument == "--json":
        chat.display.show(json.dumps(engine.stats.to_json(), indent=2))
    elif argument:
        raise ValueError(f"/stats takes --json, or no argument; it was given {argument!r}")
    elif engine.stats.prompt_tokens == 0:
        raise ValueError("there is no answer yet")
    else:
        lines = report(engine.stats, dialogue.shares(), dialogue.n_ctx, engine.why_no_drafts, chat.display.width)
        chat.display.show("\n".join(lines))


def _colors(chat: Chat, _argument: str) -> None:
    if not chat.display.can_color:
        raise ValueError(
            "colours are not available here: NO_COLOR is set, TERM is dumb, or standard output is not a terminal"
        )
    chat.colors = not chat.colors
    if not chat.colors:
        chat.display.note("(colours off)")
        return
    dialogue = chat.dialogue
    mode = dialogue.session.engine.policy.mode
    meanings = [f"{shade.value}: {shade.meaning}" for shade in shades_of(mode)]
    chat.display.note(f"(colours on; {', '.join(meanings)})")
    if dialogue.pieces:
        chat.display.begin(colors=True)
        chat.display.push(dialogue.pieces)
        chat.display.end()
        chat.display.legend(shares_of(dialogue.pieces, mode))


STATS = Command(
    "/stats",
    "[--json]",
    "show statistics of the last answer; --json: all counters",
    _stats,
    lambda argument: [option for option in ("--json",) if option.startswith(argument)],
)
COLORS = Command("/colors", "", "colour tokens by who decided them, and accepted drafts, on or off", _colors)

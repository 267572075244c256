"""Markdown rendered by rich without losing text: line breaks are kept, and HTML is shown as text."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.markdown import Markdown

_PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "hardbreak"}


def rendered(text: str) -> Markdown | None:
    """Return the text as a rich renderable, or None if it has no markup and is best left as it is."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    tokens = parser.parse(text)
    flat = list(_flat(tokens))
    if all(token.type in _PLAIN for token in flat):
        return None
    for token in flat:
        if token.type == "softbreak":
            token.type = "hardbreak"  # CommonMark joins lines, but a line break in an answer is intended
    markdown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    markdown.parsed = tokens
    return markdown


def _flat(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or ())

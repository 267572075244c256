"""Markdown as rich renders it, without loss: line breaks stay, and HTML is text."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.markdown import Markdown

_PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "hardbreak"}


def rendered(text: str) -> Markdown | None:
    """The renderable of a text; None for one without any markup, which is best left as it is."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    tokens = parser.parse(text)
    flat = list(_flat(tokens))
    if all(token.type in _PLAIN for token in flat):
        return None
    for token in flat:
        if token.type == "softbreak":
            token.type = "hardbreak"  # in an answer, a line break is meant
    markdown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    markdown.parsed = tokens
    return markdown


def _flat(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or ())

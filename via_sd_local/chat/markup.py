"""Markdown rendered by rich without losing text: what is not clearly markup is shown as it was written.

Backslashes, underscores, HTML, entities and line breaks are text. Where something would be lost all the same, as in a
table that has more columns than the terminal, nothing is rendered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.syntax import Syntax

_PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "hardbreak"}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_OPENING = {"em_open": "em_close", "strong_open": "strong_close"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text as rich renders it, and the characters that must be on the screen."""

    markdown: Markdown
    needed: Counter[str]

    def is_whole_in(self, output: str) -> bool:
        """Return whether all characters are in what a terminal is to show."""
        return self.needed <= _characters(re.sub(r"\x1b\[[\d;]*m", "", output))


def rendered(text: str) -> Rendered | None:
    """Return the text rendered, or None if it has no markup, or markup that would lose some of it."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    parser.disable(["entity", "reference", "lheading"])
    parser.inline.ruler.at("escape", _keep_backslash)
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.normalizeLinkText = lambda link: link  # type: ignore[method-assign]
    tokens = parser.parse(text)
    _show_hidden(tokens)
    flat = list(_flat(tokens))
    if all(token.type in _PLAIN for token in flat):
        return None
    shown, hidden = Counter[str](), Counter[str]()
    for token in flat:
        if token.type == "softbreak":
            token.type = "hardbreak"  # CommonMark joins lines, but a line break in an answer is intended
        shown += _characters("" if token.type == "inline" else token.content) + _characters(token.attrs.get("href", ""))
        hidden += _characters(token.info)  # the language of code, the number of a list item
    if _characters(text) - shown - hidden:
        return None
    markdown = _Markdown("", code_theme="ansi_dark", hyperlinks=False)
    markdown.parsed = tokens
    return Rendered(markdown, shown)


def _characters(text: object) -> Counter[str]:
    """Count the letters, digits, signs that are no markup, and everything beyond ASCII but spaces."""
    return Counter(
        char for char in str(text) if char.isalnum() or char in "\\$%&@^{}" or not (char.isascii() or char.isspace())
    )


def _keep_backslash(state: StateInline, silent: bool) -> bool:
    """Take a backslash and the punctuation that it protects from being markup for text (a rule of markdown-it)."""
    at = state.pos
    if state.src[at] != "\\" or at + 1 >= state.posMax or state.src[at + 1] not in _PUNCTUATION:
        return False
    if not silent:
        state.pending += state.src[at : at + 2]
    state.pos += 2
    return True


def _show_hidden(tokens: Sequence[Token]) -> None:
    """Turn markup that might be meant as text into text, in the children of all tokens."""
    for token in tokens:
        if token.children:
            token.children = _with_marks(list(map(_as_text, token.children)))


def _as_text(token: Token) -> Token:
    """Return an image as its source, and a link with its title."""
    title = token.attrs.get("title")
    quoted = f' "{title}"' if title else ""
    if token.type == "image":
        return Token("text", "", 0, content=f"![{token.content}]({token.attrs.get('src', '')}{quoted})")
    if token.type == "link_open":
        token.attrs["href"] = f"{token.attrs.get('href', '')}{quoted}"
    return token


def _with_marks(tokens: list[Token]) -> list[Token]:
    """Show the marks of emphasis that may be no emphasis: underscores (`__init__`), and stars in a word (`2*3*4`)."""
    marks: dict[int, str] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.type in _OPENING:
            opened.append(at)
        elif token.type in _OPENING.values():
            begin = opened.pop()
            before, after = _text(tokens, begin - 1)[-1:], _text(tokens, at + 1)[:1]
            if token.markup.startswith("_") or before.isalnum() or after.isalnum():
                marks[begin] = marks[at] = token.markup
    shown: list[Token] = []
    for at, token in enumerate(tokens):
        mark = [Token("text", "", 0, content=marks[at])] if at in marks else []
        shown += [token, *mark] if token.type in _OPENING else [*mark, token]
    return shown


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].content if 0 <= at < len(tokens) and tokens[at].type == "text" else ""


def _flat(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or ())


class _Code(CodeBlock):
    """Code as it is: without a margin, and with lines that the terminal wraps, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax("", self.lexer_name, theme=self.theme, background_color="default").highlight(str(self.text))
        code.rstrip()
        if options.max_width == console.width:
            code.no_wrap, code.overflow = True, "ignore"
        else:  # inside of a list or a quotation, whose margin each row has
            code.no_wrap, code.overflow = False, "fold"
        yield code


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "fence": _Code, "code_block": _Code}

"""GBNF grammars in llama.cpp: what its parser cannot bear is refused before it sees it, and its reasons are kept."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..binding import llama
from ..native_log import take_errors
from .gbnf_limits import MAX_DEPTH, MAX_REPETITIONS, MAX_RULES

# comments, literals, character classes and tokens, in which nothing counts; then what does
_PARTS = re.compile(
    r'#[^\n]*|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|<[^>]*>'
    r"|(?P<open>\()|(?P<close>\))|(?P<rule>::=)|\{\s*(?P<least>[0-9]+)\s*(?:,\s*(?P<most>[0-9]+)\s*)?\}",
    re.DOTALL,
)
_redirection = threading.Lock()


def open_grammar(vocab: int, text: str) -> Any:
    """Return llama.cpp's sampler for a grammar with a rule named `root`; the caller frees it.

    `vocab` is llama.cpp's vocabulary pointer. Raises ValueError, with llama.cpp's reason, for a text that is no grammar
    or exceeds the limits of `gbnf_limits`.
    """
    check_grammar(text)
    take_errors()
    with _standard_error() as printed:
        sampler = llama.llama_sampler_init_grammar(vocab, text.encode(), b"root")
    if not sampler:
        from_parser = [line.partition("error parsing grammar: ")[2] for line in printed]
        raise _refusal(text, next(filter(None, [*from_parser, *take_errors()]), "llama.cpp gave no reason"))
    return sampler


def check_grammar(text: str) -> None:
    """Raise ValueError for a grammar that would exhaust llama.cpp's stack or memory, or that it would misread."""
    if not text.strip():  # which llama.cpp takes as no grammar
        raise _refusal(text, "it is empty")
    if "\0" in text:
        raise _refusal(text, "it has a NUL character, at which llama.cpp would stop reading; write \\x00")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _refusal(text, f"its character {error.start} is half of a surrogate pair") from None
    depth = rules = 0
    for part in _PARTS.finditer(text):
        depth += (part["open"] is not None) - (part["close"] is not None)
        rules += part["open"] is not None or part["rule"] is not None
        if depth > MAX_DEPTH:
            raise _refusal(text, f"it nests more than {MAX_DEPTH} parentheses")
        if rules > MAX_RULES:
            raise _refusal(text, f"it has more than {MAX_RULES} rules and groups")
        if part["most"] is not None and int(part["most"]) < int(part["least"]):
            raise _refusal(text, f"the repetition {part[0]} ends before it begins")
        for bound in (part["least"], part["most"]):
            if bound is not None and (len(bound) > 9 or int(bound) > MAX_REPETITIONS):
                raise _refusal(text, f"the repetition {part[0]:.40} is above {MAX_REPETITIONS}")


def _refusal(text: str, reason: str) -> ValueError:
    shown = " ".join(reason.split())
    shown = shown if len(shown) <= 120 else shown[:120] + "…"
    return ValueError(f"the grammar does not parse as GBNF with a rule named root: {shown} ({text[:60]!r})")


@contextmanager
def _standard_error() -> Iterator[list[str]]:
    """Collect what native code prints to standard error inside the `with` block, for which it asks no logger."""
    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(_redirection)
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            before = os.dup(2)
        except OSError:  # there is no standard error, or no folder for temporary files
            yield lines
            return
        stack.callback(os.close, before)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
        file.seek(0)
        lines += file.read().decode("utf-8", "replace").splitlines()

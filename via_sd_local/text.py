"""From bytes of tokens to text that can be shown at once."""

from __future__ import annotations

import codecs
from collections.abc import Iterable


class Utf8Stream:
    """Joins pieces of UTF-8 and hands out whole characters; a character may span several tokens."""

    def __init__(self, errors: str = "replace") -> None:
        """`errors` is what becomes of bytes that are no UTF-8: "replace" shows U+FFFD, "ignore" drops them."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, data: bytes) -> str:
        """The characters that are complete now."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left at the end: U+FFFD (if not ignored) for a character that never became whole, else nothing."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Finds the stop string that begins first in a text that grows; holds back what may be the beginning of one.

    Which one that is does not depend on how the text is cut into pieces: a stop that is complete waits while one that
    began earlier is still possible.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        """Empty strings are left out."""
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._firsts = tuple({stop[0] for stop in self._stops})
        self._held = ""
        self.found = False  # whether the text ends at a stop

    def push(self, text: str) -> tuple[str, bool]:
        """What can be shown now, and whether a stop was found; it and what follows it are not shown."""
        if not self._stops:
            return text, False
        text = self._held + text
        stop = self._first_stop(text)
        possible = self._first_beginning(text)
        if stop is not None and stop <= possible:
            self._held, self.found = "", True
            return text[:stop], True
        self._held = text[possible:]
        return text[:possible], False

    def _first_stop(self, text: str) -> int | None:
        """Where the first whole stop begins."""
        found = [position for stop in self._stops if (position := text.find(stop)) >= 0]
        return min(found) if found else None

    def _first_beginning(self, text: str) -> int:
        """Where the first stop begins that more text may complete; the text's length if there is none."""
        for begin in range(max(0, len(text) - self._longest + 1), len(text)):
            if text.startswith(self._firsts, begin):
                rest = text[begin:]
                if any(len(stop) > len(rest) and stop.startswith(rest) for stop in self._stops):
                    return begin
        return len(text)

    def finish(self) -> str:
        """What was held back and turned out to be no stop."""
        held, self._held = self._held, ""
        stop = self._first_stop(held)
        self.found = self.found or stop is not None
        return held[:stop]

"""Turns the bytes of tokens into text that can be shown at once, and finds stop strings in it."""

from __future__ import annotations

import codecs
from collections.abc import Iterable


class Utf8Stream:
    """Decodes UTF-8 piece by piece into whole characters; a character may span several tokens."""

    def __init__(self, errors: str = "replace") -> None:
        """Decode invalid bytes as `errors` says: "replace" turns them into U+FFFD, "ignore" drops them."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, data: bytes) -> str:
        """Add bytes, and return the characters that are now complete."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return the rest at the end of the text: U+FFFD (unless ignored) for an incomplete character, or nothing."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Finds the stop string that begins first in a growing text, and holds back text that may be the start of one.

    The result does not depend on how the text is cut into pieces: a complete stop string is not reported while one that
    begins earlier may still be completed.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        """Look for any of `stops`; empty strings are ignored."""
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._firsts = tuple({stop[0] for stop in self._stops})
        self._held = ""
        self.found = False  # whether a stop string ended the text

    def push(self, text: str) -> tuple[str, bool]:
        """Add text; return the text that can be shown now, and whether a stop string was found.

        The stop string and the text after it are never shown.
        """
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
        """Return where the first complete stop string begins; None if there is none."""
        positions = [position for stop in self._stops if (position := text.find(stop)) >= 0]
        return min(positions, default=None)

    def _first_beginning(self, text: str) -> int:
        """Return where the first stop string begins that more text may complete; the text's length if there is none."""
        for begin in range(max(0, len(text) - self._longest + 1), len(text)):
            if text.startswith(self._firsts, begin):
                rest = text[begin:]
                if any(len(stop) > len(rest) and stop.startswith(rest) for stop in self._stops):
                    return begin
        return len(text)

    def finish(self) -> str:
        """Return the text held back at the end, up to a stop string that it completes."""
        held, self._held = self._held, ""
        stop = self._first_stop(held)
        self.found = self.found or stop is not None
        return held[:stop]

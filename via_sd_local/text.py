"""From bytes of tokens to text that can be shown at once."""

from __future__ import annotations

import codecs


class Utf8Stream:
    """Joins pieces of UTF-8 and hands out whole characters; a character may span several tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The characters that are complete now."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that never became whole, else nothing."""
        return self._decoder.decode(b"", final=True)

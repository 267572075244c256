"""From bytes of tokens to text that can be shown at once."""

from __future__ import annotations

import codecs
from pathlib import Path

from .errors import ModelError


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


def read_text(path: str, what: str) -> str:
    """The text of a UTF-8 file; ModelError, naming what it should have been, if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError(f"the {what} file {path} is not UTF-8 text") from None
    except OSError as error:
        raise ModelError(f"the {what} file {path} cannot be read: {error.strerror}") from None

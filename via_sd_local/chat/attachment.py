"""Text files that go with a message."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_BYTES_PER_TOKEN = 64  # more than any text has; a file beyond it need not be read to know that it does not fit


@dataclass(frozen=True, slots=True)
class Attachment:
    """The name of a file, its text, and the number of tokens of the text."""

    name: str
    text: str
    n_tokens: int


def read_attachment(name: str, tokenize: Callable[[str], Sequence[int]], n_ctx: int) -> Attachment:
    """Read a text file; ValueError if it cannot be read, is no UTF-8 text, or is larger than the context."""
    path = Path(os.path.expanduser(name))
    try:
        if not path.is_file():
            raise ValueError(f"{name} {'is not a file' if path.exists() else 'does not exist'}; check the path")
        size = path.stat().st_size
        if size > n_ctx * _BYTES_PER_TOKEN:
            raise ValueError(f"{name} has {size} bytes; that does not fit the context of {n_ctx} tokens (--n-ctx)")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not UTF-8 text") from None
    n_tokens = len(tokenize(text))
    if n_tokens >= n_ctx:
        raise ValueError(f"{name} has {n_tokens} tokens; the context holds {n_ctx} (--n-ctx)")
    return Attachment(path.name, text, n_tokens)


def with_attachments(attachments: Sequence[Attachment], message: str) -> str:
    """Return a message that begins with files, each in a fenced block."""
    return "\n\n".join([*map(_block, attachments), message])


def _block(attachment: Attachment) -> str:
    runs = re.findall("`{3,}", attachment.text)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    return f"{attachment.name}:\n{fence}\n{attachment.text.rstrip()}\n{fence}"

"""The content of model files: its hash, and the disk space that it needs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import ModelError
from ..progress import byte_bar

CHUNK = 1 << 20
LEFTOVERS_AGE = 86400.0  # seconds after which files that a killed process left are removed


class WrongContentError(ModelError):
    """The content from a source is not the model's file; it must not be kept for the next pull."""


def file_sha256(path: Path, *, progress: bool) -> str:
    """Return the SHA-256 of a file as hex digits; raises OSError where it cannot be read."""
    digest = hashlib.sha256()
    with byte_bar(path.stat().st_size, f"checking {path.name}", progress) as bar:
        for chunk in chunks(path):
            digest.update(chunk)
            bar.advance(len(chunk))
    return digest.hexdigest()


def require_space(folder: Path, needed: int) -> None:
    """Raise ModelError where `folder`'s disk has fewer than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{needed} bytes are needed in {folder} and its disk has {free} free; free some, or set VIA_SD_HOME"
        )


def chunks(path: Path) -> Iterator[bytes]:
    """Iterate over a file's content in pieces of `CHUNK` bytes."""
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk

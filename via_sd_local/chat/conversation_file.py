"""Conversations in files: saved whole or not at all, and never over a file of another kind."""

from __future__ import annotations

from pathlib import Path

from ..files import replacing
from .conversation import Conversation


def save(conversation: Conversation, path: Path) -> None:
    """Write the conversation to a file, replacing an earlier conversation in it.

    Raises ValueError if the file holds anything else or cannot be written.
    """
    try:
        if path.exists():
            Conversation.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        raise ValueError(f"{path} exists and is not a saved conversation; choose another name") from None
    try:
        with replacing(path) as file:
            file.write(conversation.to_json())
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None


def load(path: Path) -> Conversation:
    """Return the conversation in a file; raises ValueError if the file cannot be read or holds anything else."""
    try:
        return Conversation.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a saved conversation: the file is not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None

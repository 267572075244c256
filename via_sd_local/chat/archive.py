"""The conversations of this and earlier chats: one private file each in the cache folder, written as they go."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..files import cache_folder, temporary_path
from .conversation import Conversation
from .conversation_file import load
from .excerpt import excerpt

KEPT = 200  # conversations
_PAUSE = 2.0  # seconds between two writings of an answer that is being generated


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation of the archive: its file, its title (the first words), its length, and when it was written."""

    path: Path
    title: str
    exchanges: int
    written: float  # seconds since the epoch


class Archive:
    """A folder of conversations, of which the newest `kept` stay."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self._folder = folder
        self._kept = kept

    @classmethod
    def of_user(cls) -> Archive:
        """Return the archive in the cache folder."""
        return cls(cache_folder() / "conversations")

    def entries(self) -> list[Entry]:
        """Return the conversations, the newest first; files that hold none are left out."""
        found = []
        for written, path in self._files():
            try:
                conversation = load(path)
            except ValueError:
                continue
            if conversation.turns:
                title = excerpt(conversation.turns[0]["content"])
                found.append(Entry(path, title, len(conversation.turns) // 2, written))
        return found

    def newest(self) -> Path:
        """Return the file of the newest conversation; raises ValueError if there is none."""
        for entry in self.entries():
            return entry.path
        raise ValueError(f"there is no earlier conversation to continue (--continue): {self._folder} has none")

    def new_path(self) -> Path:
        """Return the path for another conversation, which no other chat uses."""
        return self._folder / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{secrets.token_hex(4)}.json"

    def write(self, conversation: Conversation, path: Path) -> None:
        """Write a conversation, for the user's eyes only, and remove the oldest ones; raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with temporary_path(path) as partial:
            number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(number, "w", encoding="utf-8", errors="replace") as file:
                file.write(conversation.to_json())
            os.replace(partial, path)
        for _, old in self._files()[self._kept :]:
            old.unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, Path]]:
        """Return the files with the times at which they were written, the newest first."""
        files = []
        for path in self._folder.glob("[!.]*.json"):
            try:
                files.append((path.stat().st_mtime, path))
            except OSError:
                continue  # another chat has removed it
        return sorted(files, reverse=True)


class Journal:
    """Keeps one conversation in an archive, up to date while it is held.

    Attributes:
        path: The file of the conversation; None before anything was written.
        problem: Why the conversation cannot be kept, if so.
    """

    def __init__(self, archive: Archive, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`path` is the file of an earlier conversation that goes on."""
        self.archive = archive
        self.path = path
        self.problem: str | None = None
        self._clock = clock
        self._text = ""  # what was written last
        self._stamp = _stamp(path)
        self._at = -_PAUSE

    def begin(self, path: Path | None = None) -> None:
        """Go on with another conversation: a new one, or the earlier one in the file `path`."""
        self.path, self._text, self._stamp = path, "", _stamp(path)

    def is_due(self) -> bool:
        """Return whether the last writing is so long ago that an unfinished answer should be written."""
        return self._clock() - self._at >= _PAUSE

    def write(self, conversation: Conversation) -> None:
        """Write the conversation if it has changed; one without turns has no file. Errors become `problem`."""
        self._at = self._clock()
        text = conversation.to_json()
        if text == self._text:
            return
        try:
            if not conversation.turns:
                if self.path is not None:
                    self.path.unlink(missing_ok=True)
                self.begin()
                return
            if self.path is None or _stamp(self.path) != self._stamp:  # another chat goes on with it, too: part company
                self.path = self.archive.new_path()
            self.archive.write(conversation, self.path)
        except OSError as error:
            self.problem = f"{error.filename or self.path}: {error.strerror}"
            return
        self.problem = None
        self._text, self._stamp = text, _stamp(self.path)


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Return what tells one state of a file from another; None if it does not exist."""
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns) if status is not None else None

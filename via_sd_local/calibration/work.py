"""Intermediate results of a calibration, kept in files so that a run that was ended can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

try:
    import fcntl
except ImportError:  # Windows, where two calibrations at once are not told apart
    fcntl = None  # type: ignore[assignment]

from ..errors import ModelError
from ..files import needed_cache_folder, replacing_path

T = TypeVar("T")


class Work:
    """A folder of intermediate results; if it cannot be written, nothing is saved, after one warning.

    Files appear whole or not at all, so a kill at any moment leaves the results that were complete.
    """

    def __init__(self, key: Any) -> None:
        """Name the folder by `key`, JSON data on which all results in it depend."""
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = needed_cache_folder() / "calibration" / digest
        self._warned = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock; raises ModelError if another process holds it."""
        path = self.log(".lock")
        if path is None:
            yield
            return
        with path.open("w") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise ModelError(
                        "another calibration of these models on this text is running; wait for it"
                    ) from None
            yield

    @property
    def exists(self) -> bool:
        """Whether an earlier run saved any result."""
        return any(path.name != ".lock" for path in self.folder.glob("*"))

    def clear(self) -> None:
        """Remove the results of earlier runs."""
        for path in self.folder.glob("*"):
            if path.name != ".lock":
                path.unlink(missing_ok=True)

    def log(self, name: str) -> Path | None:
        """Return the path of a log file to append to; None if no file can be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            self._warn(error)
            return None
        return self.folder / name

    def load(self, name: str, read: Callable[[Path], T]) -> T | None:
        """Return what an earlier run saved; None if it saved nothing, or the file cannot be read."""
        path = self.folder / name
        try:
            return read(path) if path.is_file() else None
        except Exception:  # an unreadable file is recomputed, whatever is wrong with it
            return None

    def save(self, name: str, write: Callable[[Path], object]) -> None:
        """Let `write` fill a temporary file, and rename it to `name`."""
        path = self.log(name)
        if path is None:
            return
        try:
            with replacing_path(path) as partial:
                write(partial)
        except OSError as error:
            self._warn(error)

    def load_json(self, name: str) -> Any:
        """Return JSON data that was saved; None if there is none or it cannot be read."""
        return self.load(name, lambda path: json.loads(path.read_text(encoding="utf-8")))

    def save_json(self, name: str, data: Any) -> None:
        """Save JSON data."""
        self.save(name, lambda path: path.write_text(json.dumps(data), encoding="utf-8"))

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"nothing can be kept in {self.folder} ({error.strerror}): this run could not be resumed",
                RuntimeWarning,
                stacklevel=4,
            )

"""An append-only log of a search: one JSON object a line, the first one says what was searched.

A process may be killed while it writes: what follows the last whole line is cut off when the search goes on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from ...json_form import from_json
from ...mask import LayerMask
from .objective import Score
from .space import Trial

VERSION = 1


@dataclass(frozen=True, slots=True)
class LoggedTrial:
    """A trial and the seconds since the search began, its interruptions left out."""

    trial: Trial
    seconds: float


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the log as JSON has it; `score` is None for a mask that llama.cpp refused."""

    mask: str
    score: Score | None
    seconds: float
    quick: bool = False


class TrialLog:
    """Writes each trial before the next one begins. A file that cannot be written costs one warning, not the search."""

    def __init__(self, path: Path, about: Mapping[str, Any], n_layer: int) -> None:
        """Open a log, or go on with the one that is there; `about` is whatever the trials depend on.

        ValueError, with what differs, if the log is of another search.
        """
        self.path = path
        self.trials: list[LoggedTrial] = []
        self._file: FileIO | None = None  # unbuffered: each line is with the system at once
        header = {"version": VERSION, **json.loads(json.dumps(about))}
        whole = self._read(header, n_layer)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("r+b" if whole else "wb", buffering=0)
            self._file.seek(whole)
            self._file.truncate()
        except OSError as error:
            self._give_up(error)
        if not whole:
            self._write(header)

    def append(self, trial: Trial, seconds: float) -> None:
        """Log a trial."""
        self.trials.append(LoggedTrial(trial, seconds))
        score = None if trial.score is None else trial.score.to_json()
        quick = {"quick": True} if trial.quick else {}
        self._write({"mask": str(trial.mask), "score": score, "seconds": seconds, **quick})

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                self._give_up(error)

    def _read(self, header: Mapping[str, Any], n_layer: int) -> int:
        """Take in the whole lines of an existing log; returns their length in bytes."""
        if self.path.exists() and not self.path.is_file():
            raise ValueError(f"{self.path}: the search's log is to be a file, not a folder or a device")
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise ValueError(f"{self.path}: the search's log cannot be read: {error.strerror}") from None
        length = 0
        for number, line in enumerate(lines):
            try:
                if not line.endswith(b"\n"):
                    break
                data = json.loads(line)
                if number == 0:
                    _compare(self.path, data, header)
                else:
                    self.trials.append(_logged(data, n_layer))
            except ValueError as error:
                if number == 0:
                    raise ValueError(f"{self.path}: this is not the log of this search: {error}") from None
                break
            length += len(line)
        lost = len(lines) - 1 - len(self.trials)
        if length and lost > 1:
            warnings.warn(
                f"{self.path}: the last {lost} lines cannot be read; the search goes on from before them",
                RuntimeWarning,
                stacklevel=4,
            )
        return length

    def _write(self, data: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            _write_line(self._file, json.dumps(data).encode() + b"\n")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        warnings.warn(
            f"{self.path}: the search cannot be logged ({error.strerror}); it goes on, but could not be resumed",
            RuntimeWarning,
            stacklevel=4,
        )


def _write_line(file: FileIO, line: bytes) -> None:
    if file.write(line) != len(line):
        raise OSError(errno.ENOSPC, "only a part of a line could be written")


def _compare(path: Path, found: Any, header: Mapping[str, Any]) -> None:
    if not isinstance(found, dict):
        raise ValueError("its first line is no object")
    for key in {**header, **found}:
        if found.get(key) != header.get(key):
            raise ValueError(
                f"its {key} is {found.get(key)!r}, not {header.get(key)!r}; give another file, or delete this one"
            )


def _logged(data: Any, n_layer: int) -> LoggedTrial:
    line: _Line = from_json(_Line, data)
    return LoggedTrial(Trial(LayerMask.parse(line.mask, n_layer), line.score, line.quick), line.seconds)

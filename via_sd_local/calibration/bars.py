"""The progress of a calibration: a bar a stage on a terminal, a line a stage elsewhere, nothing if so wished."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bars:
    """A context manager around the stages; everything goes to standard error."""

    def __init__(self, *, shown: bool) -> None:
        console = Console(file=sys.stderr, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._lines = shown and not console.is_terminal
        self._task: TaskID | None = None

    def stage(self, name: str, total: float, note: str = "") -> None:
        """The next stage begins; `total` is in whatever `step` counts."""
        self._task = self._progress.add_task(name, total=total, note=note)
        if self._lines:
            print(f"{name}{': ' if note else ' …'}{note}", file=sys.stderr)

    def step(self, by: float = 1.0) -> None:
        """So much more is done."""
        if self._task is not None:
            self._progress.advance(self._task, by)

    def to(self, done: float, note: str | None = None) -> None:
        """So much is done in all."""
        if self._task is not None:
            self._progress.update(self._task, completed=done)
            if note is not None:
                self._progress.update(self._task, note=note)

    def end(self, note: str | None = None) -> None:
        """The stage is over."""
        if self._task is not None:
            task = next(task for task in self._progress.tasks if task.id == self._task)
            self.to(task.total or 0.0, note)
        if self._lines and note:
            print(f"  {note}", file=sys.stderr)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._progress.stop()

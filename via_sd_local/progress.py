"""Progress bars on standard error, drawn only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from .visible import unguarded, visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID


class StageBars:
    """A context manager around stages of work: a bar a stage on a terminal, a line a stage elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        """Prepare the bars; nothing is printed unless `shown`."""
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        # in 80 columns, a long note is what is cut
        times = Column(no_wrap=True, min_width=7)
        rest = Column(no_wrap=True, overflow="ellipsis", max_width=max(Console(file=sys.stderr).width - 39, 1))
        columns = (
            TextColumn("{task.description:<10}", markup=False, table_column=Column(no_wrap=True, min_width=10)),
            BarColumn(bar_width=10, table_column=Column(no_wrap=True, min_width=10)),
            TimeElapsedColumn(table_column=times),
            TimeRemainingColumn(table_column=times.copy()),
            TextColumn("{task.fields[note]}", markup=False, table_column=rest),
        )
        self._progress = _terminal_progress(columns, shown)
        self._prints_lines = shown and not sys.stderr.isatty()
        self._task: TaskID | None = None

    def stage(self, name: str, total: float, note: str = "") -> None:
        """Begin the next stage; `total` is in the units of `step`."""
        self._task = self._progress.add_task(visible(name), total=total, note=visible(note))
        if self._prints_lines:
            print(f"{name}{': ' if note else ' …'}{note}", file=sys.stderr)

    def step(self, by: float = 1.0) -> None:
        """Advance the stage by a number of units."""
        if self._task is not None:
            self._progress.advance(self._task, by)

    def set(self, done: float, note: str | None = None) -> None:
        """Set the number of units that are done, and the note beside the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=done)
            if note is not None:
                self._progress.update(self._task, note=visible(note))

    def end(self, note: str | None = None) -> None:
        """Fill the stage's bar."""
        if self._task is not None:
            task = next(task for task in self._progress.tasks if task.id == self._task)
            self.set(task.total or 0.0, note)
        if self._prints_lines and note:
            print(f"  {note}", file=sys.stderr)

    def __enter__(self) -> StageBars:
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._progress.stop()


class ByteBar:
    """A bar that counts bytes; `byte_bar` yields it."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def advance(self, size: int) -> None:
        """Count `size` more bytes."""
        self._progress.advance(self._task, size)

    def set(self, done: int) -> None:
        """Set the number of bytes that are done."""
        self._progress.update(self._task, completed=done)


@contextmanager
def byte_bar(total: int, text: str, shown: bool) -> Iterator[ByteBar]:
    """Show a bar over `total` bytes while the block runs, if `shown` and standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Column

    room = Column(no_wrap=True, overflow="ellipsis", max_width=max(Console(file=sys.stderr).width - 53, 1))
    whole = Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=room),
        BarColumn(bar_width=16, table_column=whole),
        DownloadColumn(table_column=whole.copy()),
        TransferSpeedColumn(table_column=whole.copy()),
        TimeRemainingColumn(table_column=whole.copy()),
    )
    with _terminal_progress(columns, shown) as progress:
        yield ByteBar(progress, progress.add_task(visible(text), total=total))


def _terminal_progress(columns: tuple[ProgressColumn, ...], shown: bool) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=unguarded(sys.stderr), highlight=False)
    return Progress(*columns, console=console, disable=not (shown and sys.stderr.isatty()))

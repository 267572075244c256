"""Warnings that wait until they disturb nothing on the screen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .display import Display


@contextmanager
def warnings_after(display: Display) -> Iterator[None]:
    """Hold warnings back to the end of the block, where the display is idle again.

    So they appear neither in the middle of an answer nor on the line that says what is being done.
    """
    held: list[str] = []
    before = warnings.showwarning
    warnings.showwarning = lambda message, *_args, **_kwargs: held.append(str(message))
    try:
        yield
    finally:
        warnings.showwarning = before
        display.idle()
        for text in held:
            display.note(f"warning: {text}")

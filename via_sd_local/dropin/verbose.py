"""llama.cpp's log on standard error, as llama-cpp-python shows it with `verbose=True`."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from ..visible import visible


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, which tests and notebooks replace."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is not None:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return visible(text) if self.stream.isatty() else text  # it quotes the model file's metadata


_handler = _Stderr()


def show_log(verbose: bool) -> None:
    """Show or hide llama.cpp's log, for the whole process and from now on."""
    logger = logging.getLogger("via_sd_local.llama_cpp")
    if verbose:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(_handler)
    else:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(_handler)

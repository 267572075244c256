"""llama.cpp's log: its errors become the text of exceptions, and all lines go to `via_sd_local.llama_cpp`'s logger."""

from __future__ import annotations

import logging
import re
from collections import deque

_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}  # ggml_log_level
_FUNCTION_NAMES = re.compile(r"^(?:error loading model: |[\w:~]+: )+")  # at the start of a line

_logger = logging.getLogger("via_sd_local.llama_cpp")
_logger.addHandler(logging.NullHandler())
_logger.propagate = False
_errors: deque[str] = deque(maxlen=16)
_last_level = logging.INFO


def record(level: int, text: bytes) -> None:
    """Log one message; `level` is a `ggml_log_level`, of which 5 continues the previous line."""
    global _last_level
    _last_level = _LEVELS.get(level, _last_level)
    line = text.decode("utf-8", "replace").rstrip("\n")
    if line.strip(" ."):  # progress is printed as dots
        if _last_level == logging.ERROR:
            _errors.append(line)
        _logger.log(_last_level, "%s", line)


def take_errors() -> list[str]:
    """Return llama.cpp's error lines since the last call, oldest first, without the names of its functions."""
    lines = [_FUNCTION_NAMES.sub("", line) for line in _errors]
    _errors.clear()
    return lines

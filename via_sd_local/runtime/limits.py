"""The default context length, which modules without the compiled library also need."""

from __future__ import annotations

import os

DEFAULT_N_CTX = 4096  # tokens; models that were trained for fewer get those


def default_threads() -> int:
    """Return the number of cores this process may use, or half of it from 8 on.

    On larger machines half of the cores are usually hyperthreads or efficiency cores.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return available if available < 8 else available // 2

"""The name of this machine, by which measured costs are stored."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Return the processor, cores, system and llama.cpp backends, e.g. `Intel(R) Xeon(R) …, 2 cores, Linux, cpu`."""
    from ..binding import build_info

    backends = ", ".join(name.removeprefix("ggml-") for name in build_info()["backends"])
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, {backends}"


def _processor() -> str:
    """Return the name of the processor as the system reports it, or else its architecture."""
    try:
        if platform.system() == "Darwin":
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            name = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
        else:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        name = ""
    return " ".join(name.split()) or platform.machine() or "unknown"

"""Measures how much main memory this process may still use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

# files of a control group, in its versions 2 and 1: limit, usage, and the keys of memory.stat for cached files
_V2 = ("memory.max", "memory.current", "inactive_file", "active_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file")


def available_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes available without swapping: the machine's, or the container's remaining limit if that is less.

    A container is a Linux control group: `groups` is where they are mounted, `own` lists those of this process. Pages
    that cache files count as available, which includes weights that are already mapped.
    """
    return min(int(psutil.virtual_memory().available), *_remaining_limits(groups, own), 1 << 62)


def _remaining_limits(groups: Path, own: Path) -> Iterator[int]:
    """Yield the remaining bytes of each control group that contains this process and has a limit."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (groups / "memory", _V1) if controllers else (groups, _V2)
        folder = root / path.lstrip("/")
        while True:
            if (remaining := _remaining(folder, names)) is not None:
                yield remaining
            if folder == root or root not in folder.parents:
                break
            folder = folder.parent


def _remaining(folder: Path, names: tuple[str, str, str, str]) -> int | None:
    """Return a control group's remaining bytes; None if it has no limit, or none that can be read."""
    limit_name, used_name, *files = names
    try:
        limit = (folder / limit_name).read_text(encoding="utf-8").strip()
        used = int((folder / used_name).read_text(encoding="utf-8"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        return None if limit == "max" else max(0, int(limit) - used + sum(int(stat.get(name, 0)) for name in files))
    except (OSError, ValueError):
        return None

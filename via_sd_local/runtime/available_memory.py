"""How much main memory this process may still use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_V2 = ("memory.max", "memory.current", "inactive_file", "active_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file")


def available_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes, without swapping: of the machine, or of the container (Linux control group) if that has less left.

    What files keep in the page cache counts as available: also a model's weights that are mapped already.
    """
    return min(int(psutil.virtual_memory().available), *_rooms(groups, own), 1 << 62)


def _rooms(groups: Path, own: Path) -> Iterator[int]:
    """What each limited control group above this process has left."""
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
            if (room := _room(folder, names)) is not None:
                yield room
            if folder == root or root not in folder.parents:
                break
            folder = folder.parent


def _room(folder: Path, names: tuple[str, str, str, str]) -> int | None:
    """None where there is no limit, or none that can be read."""
    limit_name, used_name, *files = names
    try:
        limit = (folder / limit_name).read_text(encoding="utf-8").strip()
        used = int((folder / used_name).read_text(encoding="utf-8"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        return None if limit == "max" else max(0, int(limit) - used + sum(int(stat.get(name, 0)) for name in files))
    except (OSError, ValueError):
        return None

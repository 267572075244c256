"""The progress bar of everything that takes long."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]


def byte_bar(total: int, text: str, progress: bool) -> Any:
    """A tqdm bar over bytes on standard error where that is a terminal and `progress` is wanted, else a silent one."""
    return tqdm(total=total, desc=text, unit="B", unit_scale=True, disable=None if progress else True)

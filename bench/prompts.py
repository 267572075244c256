"""The benchmarks' prompts, each used once: a repeated prompt would find its own drafts in the caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

TASKS = Path(__file__).with_name("tasks.json")


class Task(TypedDict):
    """A prompt, and the kind of task it is."""

    kind: str
    prompt: str


def tasks(n: int) -> list[Task]:
    """Return `n` tasks, evenly chosen; none is a calibration prompt. SystemExit if there are fewer."""
    every: list[Task] = json.loads(TASKS.read_text(encoding="utf-8"))
    if not 1 <= n <= len(every):
        raise SystemExit(f"--prompts is {n}; {TASKS.name} has {len(every)}, and none is used twice")
    return [every[i * len(every) // n] for i in range(n)]

"""The prompts of the benchmarks, each of them once: a prompt that comes again finds its own drafts in the caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

TASKS = Path(__file__).with_name("tasks.json")


class Task(TypedDict):
    """A prompt, and its kind."""

    kind: str
    prompt: str


def tasks(n: int) -> list[Task]:
    """So many of the tasks, evenly chosen, no calibration prompt among them; SystemExit if there are fewer."""
    known: list[Task] = json.loads(TASKS.read_text(encoding="utf-8"))
    if not 1 <= n <= len(known):
        raise SystemExit(f"{n} prompts are asked for; {TASKS.name} has {len(known)}, and none is used twice")
    return [known[i * len(known) // n] for i in range(n)]

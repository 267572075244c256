"""Libraries whose logits processors keep a state: with drafts they get the answers that they get without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dropin
import pytest
from packages import fetched

tiny_path = dropin.tiny_path

HERE = Path(__file__).parent
CLIENTS = {
    "outlines": ("outlines_client.py", ("numba", "outlines==1.3.3"), (r"[A-Z][a-z]{3,8}, [0-9]{4}", "yes|no")),
    "llguidance": ("llguidance_client.py", ("llguidance==1.5.0",), (r"[a-z]{3,5} [0-9]{4}",)),
}
DRAFTING: list[dict[str, Any]] = [
    {"drafter": "self", "draft_mask": "3", "draft_tokens": 3},
    {"drafter": "self", "draft_mask": "3", "draft_tokens": 3, "mode": "exact", "mask": "2"},
    {"drafter": "self", "draft_mask": "3", "draft_tokens": 3, "mode": "tiered", "mask": "2"},
]


def answers(client: str, model: Path, options: dict[str, Any]) -> tuple[list[str], int]:
    """The answers that a client gets with these options, and how many tokens were drafted."""
    program, packages, _ = CLIENTS[client]
    command = [sys.executable, "-W", "ignore", str(HERE / program), str(model), json.dumps(options)]
    environment = os.environ | {"PYTHONPATH": str(fetched(*packages))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    return result["answers"], result["drafted"]


@pytest.mark.parametrize("client", CLIENTS)
def test_drafts_do_not_change_constrained_answers(client: str, tiny_path: Path) -> None:
    expected, drafted = answers(client, tiny_path, {})
    assert drafted == 0
    for text, pattern in zip(expected, CLIENTS[client][2], strict=True):
        assert re.fullmatch(pattern, text)
    for options in DRAFTING:
        found, drafted = answers(client, tiny_path, options)
        assert drafted > 0
        # without a budget, tiered is not lenient, and the slim tier decides nothing
        assert found == expected, options

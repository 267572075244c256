"""The slim tier costs no second copy of anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PEAK = """
import resource, sys
from via_sd_local.cli import main
status = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
def test_the_peak_memory_of_tiered_is_at_most_1_02_times_that_of_sd(smollm2_path: Path) -> None:
    def peak(*options: str) -> int:
        common = ["complete", "--json", "--verifier", str(smollm2_path), "--draft", str(smollm2_path), "--threads", "1"]
        common += [
            "--prompt",
            "Write a story about a lighthouse.",
            "--max-tokens",
            "48",
            "--n-ctx",
            "1024",
            "--draft-tokens",
            "3",
        ]
        run = subprocess.run(
            [sys.executable, "-c", PEAK, *common, *options], capture_output=True, text=True, check=True
        )
        assert json.loads(run.stdout)["usage"]["completion_tokens"] == 48
        return int(run.stderr.split()[-1])

    assert peak("--mode", "tiered", "--mask", "21-22,f25") <= 1.02 * peak("--mode", "sd")

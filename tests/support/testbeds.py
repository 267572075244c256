"""For the tests of the testbed: the command that builds one, run on a tiny source.

Test files take the fixtures as `name = testbeds.name`: ruff takes an imported fixture for an unused name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from via_sd_local.cli import main
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import DEFAULT, Placement

TOKENS = [(37 * i) % 320 for i in range(30)]
SAME = ["--embed", "64", "--ffn", "96", "--kv-heads", "2"]  # the dimensions of tiny.spec("llama")
Build = Callable[..., Any]
placement = DEFAULT  # of the models that `logits` loads


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder of this test's own."""
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "toy.gguf", tiny.spec("llama"))


@pytest.fixture
def build(source: Path, capsys: pytest.CaptureFixture[str]) -> Build:
    """`build(*arguments)` runs the command on the tiny source and returns what `--json` prints."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        assert main(["testbed", "build", "--source", str(source), "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def failure(source: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`failure(*arguments)` is the command's error line, where it fails and prints nothing else."""

    def run(*arguments: str, source: Path = source) -> str:
        capsys.readouterr()
        assert main(["testbed", "build", "--source", str(source), *arguments]) == 1
        out, error = capsys.readouterr()
        assert out == ""
        assert error.count("\n") == 1
        return error

    return run


@pytest.fixture
def exact_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """A float32 KV cache and no flash attention, both of which round to float16 by default."""
    monkeypatch.setattr(sys.modules[__name__], "placement", Placement(flash_attn="off", type_k="f32", type_v="f32"))


@pytest.fixture
def logits(keep: Callable[[Any], Any]) -> Callable[..., np.ndarray]:
    """`logits(path, mask text)`: of every position of TOKENS, `[30, n_vocab]`."""

    def run(path: str | Path, mask: str = "") -> np.ndarray:
        model = keep(Model(path, placement))
        context = keep(Context(model, n_ctx=64, n_threads=1))
        context.set_mask(LayerMask.parse(mask, model.n_layer).to_bytes())
        result: np.ndarray = context.decode(TOKENS, 0, len(TOKENS)).copy()
        return result

    return run


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []

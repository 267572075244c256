"""For the tests of the command `via-sd-local`: tiny models to run it on, and what a run of it gave.

Test files take the fixtures as `name = commands.name`: ruff takes an imported fixture for an unused name.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
from tiny_vocab import vocabulary

from via_sd_local import cli
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model

LLAMA = tiny.spec("llama")
COMMAND = Path(sys.executable).with_name("via-sd-local")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
PROMPT = "the sea the sea the sea"
MASKED = ("--drafter", "lookup", "--mask", "2-3")
MODES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "sd": ("--drafter", "lookup"),
    "exact": (*MASKED, "--mode", "exact"),
    "tiered": (*MASKED, "--mode", "tiered"),
}


@dataclass(frozen=True, slots=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.status, self.err) == (0, "")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny models, sound and broken, and of files that are none."""
    folder = tmp_path_factory.mktemp("models")
    tiny.write(folder / "llama.gguf", LLAMA)
    tiny.write(folder / "template.gguf", LLAMA, overrides={"tokenizer.chat_template": TEMPLATE})
    tiny.write(folder / "mamba.gguf", tiny.spec("mamba"))
    tiny.write(folder / "other.gguf", LLAMA, vocab=vocabulary(320).with_token(300, "xyz"))
    tiny.write(folder / "vocabulary.gguf", LLAMA, {})
    tiny.write_truncated(folder / "truncated.gguf", LLAMA)
    tiny.write_unknown_arch(folder / "nonesuch.gguf", LLAMA)
    tiny.write_text(folder / "text.gguf")
    tiny.write_empty(folder / "empty.gguf")
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "refuses.jinja").write_text("{{ raise_exception('no\nsystem role') }}", encoding="utf-8")
    (folder / "unparsable.jinja").write_text("{% for", encoding="utf-8")
    (folder / "latin1.txt").write_bytes("Müll".encode("latin-1"))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`run("models", "list")` is the command line in this process."""

    def call(*arguments: object) -> Result:
        status = cli.main([str(argument) for argument in arguments])
        return Result(status, *capsys.readouterr())

    return call


@pytest.fixture
def answer(run: Callable[..., Result], files: Path) -> Callable[..., Result]:
    """`answer("--json")` completes PROMPT with a tiny model; later options override."""

    def call(*options: object, verifier: str = "llama.gguf", prompt: str = PROMPT, max_tokens: int = 12) -> Result:
        common = ("--verifier", files / verifier, "--prompt", prompt, "--max-tokens", max_tokens, "--threads", 1)
        given = dict(itertools.pairwise(options))
        drafting = "--draft" in given or given.get("--drafter", "none") != "none"
        drafts = ("--draft-tokens", 3) if drafting else ()
        return run("complete", *common, *drafts, *options)

    return call


Run = Callable[..., Result]


def spawn(*arguments: object, **options: Any) -> Result:
    """The same in a process of its own."""
    command = [str(part) for part in (COMMAND, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
    return Result(done.returncode, done.stdout, done.stderr)


def greedy(path: Path, prompt: str, n: int) -> tuple[list[int], str, int]:
    """By llama.cpp alone: what follows the prompt at temperature 0, its text, and the prompt's length."""
    with closing(Model(path)) as model, closing(Context(model, n_ctx=256, n_threads=1)) as context:
        tokens = model.tokenize(prompt)
        made = [int(context.decode(tokens, 0, 1)[0].argmax())]
        while len(made) < n:
            made.append(int(context.decode(made[-1:], len(tokens) + len(made) - 1, 1)[0].argmax()))
        return made, model.detokenize(made), len(tokens)


def assert_refused(result: Result, message: str) -> None:
    assert result.status == 1
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.index("\n") == len(result.err) - 1
    assert message in result.err
    assert "Error" not in result.err  # no exception's name

"""For the tests of the drop-in: tiny models behind it, and answers that are known in advance.

Test files take the fixtures as `name = dropin.name`: ruff takes an imported fixture for an unused name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from fakes import FakeDrafter

from via_sd_local import Llama

LLAMA = tiny.spec("llama")
FIRST_BYTE = 3  # the token of byte 0 in the tiny vocabularies
EOS = 2
PROMPT = "the sea"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
Make = Callable[..., Llama]


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of the llama architecture with a chat template that writes no BOS."""
    path = tmp_path_factory.mktemp("dropin") / "tiny.gguf"
    return tiny.write(path, LLAMA, overrides={"tokenizer.chat_template": TEMPLATE})


@pytest.fixture
def make(tiny_path: Path, keep: Callable[[Any], Any]) -> Make:
    """`make(path=None, **options)` loads a drop-in, one thread."""

    def load(path: Path | str | None = None, **options: Any) -> Llama:
        options = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False, **options}
        llm: Llama = keep(Llama(str(path or tiny_path), **options))
        return llm

    return load


def tokens_of(text: str | bytes) -> list[int]:
    """A token for every byte."""
    return [FIRST_BYTE + byte for byte in (text.encode() if isinstance(text, str) else text)]


class Says:
    """A logits processor that makes the answer to a prompt of `n` tokens these tokens, and then the end."""

    def __init__(self, n: int, tokens: Iterable[int]) -> None:
        self.n, self.tokens = n, [*tokens, EOS]

    def __call__(self, ids: Any, scores: Any) -> Any:
        said = len(ids) - self.n
        token = self.tokens[said] if said < len(self.tokens) else EOS
        scores[:] = -1e9
        scores[token] = 0
        return scores


def says(llm: Llama, text: str | bytes | Sequence[int], prompt: str = PROMPT) -> dict[str, Any]:
    """The arguments of a call whose answer is this text."""
    tokens = tokens_of(text) if isinstance(text, (str, bytes)) else text
    n = len(llm.tokenize(prompt.encode(), add_bos=True, special=True))
    return {"prompt": prompt, "temperature": 0.0, "max_tokens": -1, "logits_processor": [Says(n, tokens)]}


def drafting(text: str | bytes | Sequence[int], prompt_tokens: int) -> FakeDrafter:
    """A drafter that knows this answer."""
    tokens = tokens_of(text) if isinstance(text, (str, bytes)) else text

    def next_token(so_far: list[int]) -> int | None:
        said = len(so_far) - prompt_tokens
        return tokens[said] if said < len(tokens) else None

    return FakeDrafter(next_token)


def joined(chunks: Iterator[dict[str, Any]]) -> str:
    """The text of a stream."""
    return "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"])


def text_of(response: dict[str, Any]) -> str:
    text: str = response["choices"][0]["text"]
    return text


def ids(llm: Llama) -> list[int]:
    """The tokens in the context."""
    held: list[int] = np.asarray(llm.input_ids[: llm.n_tokens]).tolist()
    return held

"""Tiny models with the vocabulary of a real one: real tokens, cheap passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
from gguf import GGUFReader, TokenType
from tiny_vocab import Vocab

_PREFIX = "tokenizer.ggml."


def write(path: Path, donor: Path, name: str = "llama", **changes: object) -> Path:
    """Write the tiny model `name`, its spec changed, with the donor's tokenizer (a BPE one)."""
    keys: dict[str, Any] = {
        field.name: field.contents() for field in GGUFReader(donor).fields.values() if field.name.startswith(_PREFIX)
    }
    tokens = tuple(keys[f"{_PREFIX}tokens"])
    types = tuple(TokenType(kind) for kind in keys[f"{_PREFIX}token_type"])
    vocab = Vocab(tokens, (0.0,) * len(tokens), types)
    spec = tiny.spec(name, n_vocab=len(tokens), **changes)
    return tiny.write(path, spec, vocab=vocab, overrides={**dict.fromkeys(vocab.metadata()), **keys})

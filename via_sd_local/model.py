"""A loaded GGUF: its weights, its vocabulary, and what its metadata say."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from .binding import allocate, llama, take_errors
from .errors import ModelError

GGUF_MAGIC = b"GGUF"
_CONTROL = 1 | 8  # LLAMA_TOKEN_ATTR_UNKNOWN, LLAMA_TOKEN_ATTR_CONTROL
_MROPE_TYPES = (8, 40)  # LLAMA_ROPE_TYPE_MROPE, LLAMA_ROPE_TYPE_IMROPE: more than one position a token


class Model:
    """One GGUF file in memory, shared by any number of contexts; `close` frees it."""

    def __init__(self, path: str | Path) -> None:
        """Load the file; ModelError, with llama.cpp's own words where it refuses, if that is not possible."""
        self.path = Path(path)
        _check_file(self.path)
        take_errors()
        handle = allocate(
            lambda: llama.llama_model_load_from_file(os.fsencode(self.path), llama.llama_model_default_params()),
            lambda loaded: llama.llama_model_free(loaded),
        )
        if not handle:
            raise ModelError(f"{self.path}: llama.cpp cannot load this file: {_reason(take_errors())}")
        self._handle: int | None = handle
        self._vocab = llama.llama_model_get_vocab(handle)
        self.users = 0  # open contexts
        self._pieces: dict[int, bytes] = {}
        if llama.llama_model_has_encoder(handle) or not llama.llama_model_has_decoder(handle):
            self.close()
            raise ModelError(f"{self.path}: this model does not generate text token by token (it has an encoder)")

    @property
    def handle(self) -> int:
        """llama.cpp's model pointer."""
        if self._handle is None:
            raise ValueError(f"the model {self.path} has been closed")
        return self._handle

    @property
    def vocab(self) -> int:
        """llama.cpp's vocabulary pointer."""
        _ = self.handle  # it dies with the model
        vocab: int = self._vocab
        return vocab

    def close(self) -> None:
        """Free the weights; ValueError while contexts of this model are open."""
        if self.users:
            raise ValueError(f"the model {self.path} has {self.users} open contexts; close those first")
        if self._handle is not None:
            llama.llama_model_free(self._handle)
            self._handle = None

    @cached_property
    def n_layer(self) -> int:
        return int(llama.llama_model_n_layer(self.handle))

    @cached_property
    def n_embd(self) -> int:
        return int(llama.llama_model_n_embd(self.handle))

    @cached_property
    def n_ctx_train(self) -> int:
        """The context that the model was trained for, in tokens."""
        return int(llama.llama_model_n_ctx_train(self.handle))

    @cached_property
    def n_bytes(self) -> int:
        """The size of all tensors, in bytes."""
        return int(llama.llama_model_size(self.handle))

    @cached_property
    def description(self) -> str:
        """Architecture, size and quantisation in llama.cpp's words."""
        buffer = ctypes.create_string_buffer(256)
        llama.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @cached_property
    def has_plain_positions(self) -> bool:
        """Whether a position is one number (not so for the multimodal rotary embeddings)."""
        return llama.llama_model_rope_type(self.handle) not in _MROPE_TYPES

    @cached_property
    def can_take_embeddings(self) -> bool:
        """Whether hidden states of the model's own width can be fed in place of tokens."""
        return self.has_plain_positions and llama.llama_model_n_embd_inp(self.handle) == self.n_embd

    @cached_property
    def chat_template(self) -> str | None:
        """The Jinja template in the file's metadata, if there is one."""
        text = llama.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    #
    # vocabulary
    #

    @cached_property
    def n_vocab(self) -> int:
        return int(llama.llama_vocab_n_tokens(self.vocab))

    @cached_property
    def vocab_type(self) -> int:
        """llama.cpp's `llama_vocab_type`."""
        return int(llama.llama_vocab_type(self.vocab))

    @cached_property
    def bos(self) -> int:
        """The begin-of-sequence token; -1 where there is none."""
        return int(llama.llama_vocab_bos(self.vocab))

    @cached_property
    def eos(self) -> int:
        """The end-of-sequence token; -1 where there is none."""
        return int(llama.llama_vocab_eos(self.vocab))

    @cached_property
    def adds_bos(self) -> bool:
        """Whether a text begins with `bos`, by the file's metadata."""
        return bool(llama.llama_vocab_get_add_bos(self.vocab))

    @cached_property
    def eog(self) -> frozenset[int]:
        """Every token that ends a generation."""
        is_eog, vocab = llama.llama_vocab_is_eog, self.vocab
        return frozenset(token for token in range(self.n_vocab) if is_eog(vocab, token))

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """The texts that `tokenize` takes for control tokens if `parse_special`, the longest first."""
        attributes, vocab = llama.llama_vocab_get_attr, self.vocab
        tokens = [token for token in range(self.n_vocab) if attributes(vocab, token) & _CONTROL]
        texts = {self.token_text(token).decode("utf-8", "replace") for token in tokens}
        return tuple(sorted(texts - {""}, key=lambda text: (-len(text), text)))

    def token_text(self, token: int) -> bytes:
        """The token as the vocabulary stores it; ValueError for one that does not exist."""
        self._check(token)
        text: bytes = llama.llama_vocab_get_text(self.vocab, token)
        return text

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The token ids of a text, in UTF-8; special tokens are recognised in the text only if `parse_special`."""
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError as error:
            raise ValueError(f"the text has no UTF-8 form: its character {error.start} is half of a pair") from None
        size = len(data) + 8
        while True:
            buffer = (llama.llama_token * size)()
            n = llama.llama_tokenize(self.vocab, data, len(data), buffer, size, add_special, parse_special)
            if n >= 0:
                return list(buffer[:n])
            size = -n

    def tokenize_prompt(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of a whole prompt, with exactly one `bos` where the model wants one (also if the text has it)."""
        tokens = self.tokenize(text, parse_special=parse_special)
        if self.adds_bos:
            while len(tokens) > 1 and tokens[0] == tokens[1] == self.bos:
                del tokens[0]
        return tokens

    def piece(self, token: int) -> bytes:
        """The text of one token, in UTF-8 (possibly a part of a character); empty for control tokens.

        ValueError for a token that does not exist.
        """
        piece = self._pieces.get(token)
        if piece is None:
            self._check(token)
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def _check(self, token: int) -> None:
        if not 0 <= token < self.n_vocab:
            raise ValueError(f"token {token} does not exist; the model has tokens 0 to {self.n_vocab - 1}")

    def _read_piece(self, token: int) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama.llama_token_to_piece(self.vocab, token, buffer, size, 0, False)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")


def _check_file(path: Path) -> None:
    """Turn down what is no readable GGUF file at all, before llama.cpp sees it."""
    if not path.exists():
        raise ModelError(f"{path}: there is no such file")
    if path.is_dir():
        raise ModelError(f"{path}: this is a folder; name the .gguf file in it")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    if magic != GGUF_MAGIC:
        what = "it is empty" if not magic else f"it begins with {magic!r} instead of {GGUF_MAGIC!r}"
        raise ModelError(f"{path}: this is not a GGUF file: {what}")


def _reason(errors: list[str]) -> str:
    """The most telling of llama.cpp's error lines (the first one is the cause, the later ones its consequences)."""
    reason = errors[0].strip() if errors else "it gave no reason"
    return f"it holds no weights, only a vocabulary ({reason})" if "token_embd.weight' not found" in reason else reason

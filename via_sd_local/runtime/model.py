"""A loaded GGUF model: its dimensions, its metadata, and its vocabulary."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ..binding import llama
from ..errors import ModelError
from .devices import default_devices, local_devices
from .loading import Weights, load_weights
from .placement import DEFAULT, Placement

_CONTROL = 1 | 8  # LLAMA_TOKEN_ATTR_UNKNOWN, LLAMA_TOKEN_ATTR_CONTROL
_MROPE_TYPES = (8, 40)  # LLAMA_ROPE_TYPE_MROPE, LLAMA_ROPE_TYPE_IMROPE: several positions per token


class Model:
    """One GGUF file in memory, shared by any number of contexts; `close` frees it."""

    def __init__(self, path: str | Path, placement: Placement = DEFAULT) -> None:
        """Load the file onto the devices of the placement.

        Raises ModelError, with llama.cpp's reason where it gives one, for a file that cannot be loaded or does not
        generate text token by token, and ValueError for a placement that this machine's devices cannot meet.
        """
        self._set_up(Path(path), placement, load_weights(Path(path), placement), owned=True)
        if llama.llama_model_has_encoder(self.handle) or not llama.llama_model_has_decoder(self.handle):
            self.close()
            raise ModelError(f"{self.path}: this model does not generate text token by token (it has an encoder)")

    @classmethod
    def borrow(cls, path: str | Path, handle: int, placement: Placement = DEFAULT) -> Model:
        """Wrap a model that other code has loaded, and will free after `close`.

        `handle` is llama.cpp's model pointer, `placement` says how the model was loaded.
        """
        n_devices = len(default_devices(local_devices())) if placement.n_gpu_layers else 0
        model = cls.__new__(cls)
        model._set_up(Path(path), placement, Weights(handle, n_devices), owned=False)
        return model

    def _set_up(self, path: Path, placement: Placement, weights: Weights, *, owned: bool) -> None:
        self.path = path
        self.placement = placement
        self.n_devices = weights.n_devices  # GPUs and RPC devices that may hold layers
        self.servers = weights.servers
        self.users = 0  # open contexts
        self._handle: int | None = weights.handle
        self._owned = owned
        self._vocab = llama.llama_model_get_vocab(weights.handle)
        self._pieces: dict[int, bytes] = {}

    @property
    def handle(self) -> int:
        """llama.cpp's model pointer; ValueError after `close`."""
        if self._handle is None:
            raise ValueError(f"the model {self.path} has been closed")
        return self._handle

    @property
    def vocab(self) -> int:
        """llama.cpp's vocabulary pointer, valid until `close`."""
        _ = self.handle  # raises after close
        vocab: int = self._vocab
        return vocab

    def close(self) -> None:
        """Free the weights, unless they are borrowed; ValueError while contexts of this model are open."""
        if self.users:
            raise ValueError(f"the model {self.path} has {self.users} open contexts; close those first")
        if self._handle is None:
            return
        if self._owned:
            llama.llama_model_free(self._handle)
        self._handle = None
        if self.servers:
            self.servers.close()

    def check_servers(self) -> None:
        """Raise NativeError if an RPC server that holds part of this model no longer answers."""
        if self.servers:
            self.servers.check(self.path.name)

    #
    # dimensions and metadata
    #

    @cached_property
    def n_layer(self) -> int:
        """Number of transformer layers."""
        return int(llama.llama_model_n_layer(self.handle))

    @cached_property
    def n_embd(self) -> int:
        """Width of the hidden states."""
        return int(llama.llama_model_n_embd(self.handle))

    @cached_property
    def n_ctx_train(self) -> int:
        """Context length that the model was trained for, in tokens."""
        return int(llama.llama_model_n_ctx_train(self.handle))

    @cached_property
    def n_bytes(self) -> int:
        """Size of all tensors, in bytes."""
        return int(llama.llama_model_size(self.handle))

    @cached_property
    def description(self) -> str:
        """Architecture, size and quantisation as `llama_model_desc` words them."""
        buffer = ctypes.create_string_buffer(256)
        llama.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @cached_property
    def has_plain_positions(self) -> bool:
        """Whether a token's position is a single number (multimodal rotary embeddings use several)."""
        return llama.llama_model_rope_type(self.handle) not in _MROPE_TYPES

    @cached_property
    def can_take_embeddings(self) -> bool:
        """Whether hidden states `[n, n_embd]` can be decoded in place of tokens."""
        return self.has_plain_positions and llama.llama_model_n_embd_inp(self.handle) == self.n_embd

    @cached_property
    def chat_template(self) -> str | None:
        """Jinja template in the file's metadata, or None."""
        text = llama.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    def metadata(self, key: str) -> str | None:
        """Return a value of the file's metadata as text, None for an absent key; arrays are abridged by llama.cpp."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama.llama_model_meta_val_str(self.handle, key.encode(), buffer, size)
            if n < size:
                return buffer.value.decode("utf-8", "replace") if n >= 0 else None
            size = n + 1

    #
    # vocabulary
    #

    @cached_property
    def n_vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return int(llama.llama_vocab_n_tokens(self.vocab))

    @cached_property
    def vocab_type(self) -> int:
        """llama.cpp's `llama_vocab_type`."""
        return int(llama.llama_vocab_type(self.vocab))

    @cached_property
    def bos(self) -> int:
        """Begin-of-sequence token; -1 if there is none."""
        return int(llama.llama_vocab_bos(self.vocab))

    @cached_property
    def eos(self) -> int:
        """End-of-sequence token; -1 if there is none."""
        return int(llama.llama_vocab_eos(self.vocab))

    @cached_property
    def adds_bos(self) -> bool:
        """Whether the file's metadata ask for `bos` at the start of a text."""
        return bool(llama.llama_vocab_get_add_bos(self.vocab))

    @cached_property
    def eog(self) -> frozenset[int]:
        """Tokens that end a generation (end of sequence, end of turn, …)."""
        is_eog, vocab = llama.llama_vocab_is_eog, self.vocab
        return frozenset(token for token in range(self.n_vocab) if is_eog(vocab, token))

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """Texts that `tokenize` turns into control tokens if `parse_special`, longest first."""
        attributes, vocab = llama.llama_vocab_get_attr, self.vocab
        tokens = [token for token in range(self.n_vocab) if attributes(vocab, token) & _CONTROL]
        texts = {self.token_text(token).decode("utf-8", "replace") for token in tokens}
        return tuple(sorted(texts - {""}, key=lambda text: (-len(text), text)))

    def token_text(self, token: int) -> bytes:
        """Return a token as the vocabulary stores it; ValueError for an id that does not exist."""
        self._check_token(token)
        text: bytes = llama.llama_vocab_get_text(self.vocab, token)
        return text

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Return the token ids of a text, in UTF-8 if it is bytes.

        `add_special` adds the tokens that the metadata ask for (`bos`), `parse_special` recognises control tokens in
        the text. Raises ValueError for a string with half of a surrogate pair.
        """
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text cannot be encoded in UTF-8: its character {error.start} is half of a surrogate pair"
            ) from None
        size = len(data) + 8
        while True:
            buffer = (llama.llama_token * size)()
            n = llama.llama_tokenize(self.vocab, data, len(data), buffer, size, add_special, parse_special)
            if n >= 0:
                return list(buffer[:n])
            size = -n

    def tokenize_prompt(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the token ids of a whole prompt, with exactly one `bos` if the model wants one.

        A text that begins with the text of `bos` does not get a second one.
        """
        tokens = self.tokenize(text, parse_special=parse_special)
        if self.adds_bos:
            while len(tokens) > 1 and tokens[0] == tokens[1] == self.bos:
                del tokens[0]
        return tokens

    def piece(self, token: int) -> bytes:
        """Return a token's text in UTF-8, which may be part of a character; empty for control tokens.

        Raises ValueError for an id that does not exist.
        """
        piece = self._pieces.get(token)
        if piece is None:
            self._check_token(token)
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")

    def _check_token(self, token: int) -> None:
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

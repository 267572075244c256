"""A loaded GGUF: its weights, its vocabulary, and what its metadata say."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..binding import allocate, llama, take_errors
from ..errors import ModelError
from .devices import Device, default_devices, local_devices, named
from .placement import DEFAULT, SPLIT_MODES, Placement
from .rpc import Servers

GGUF_MAGIC = b"GGUF"
_CONTROL = 1 | 8  # LLAMA_TOKEN_ATTR_UNKNOWN, LLAMA_TOKEN_ATTR_CONTROL
_MROPE_TYPES = (8, 40)  # LLAMA_ROPE_TYPE_MROPE, LLAMA_ROPE_TYPE_IMROPE: more than one position a token


class Model:
    """One GGUF file in memory, shared by any number of contexts; `close` frees it."""

    def __init__(self, path: str | Path, placement: Placement = DEFAULT) -> None:
        """Load the file onto the devices of the placement.

        ModelError, with llama.cpp's own words where it refuses, if that is not possible; ValueError for a device that
        is not there.
        """
        self.path = Path(path)
        self.placement = placement
        _check_file(self.path)
        take_errors()
        self.servers = Servers(placement.rpc_servers) if placement.rpc_servers else None
        try:
            handle = self._load()
        except BaseException:
            if self.servers:
                self.servers.close()
            raise
        self._take(handle)
        if llama.llama_model_has_encoder(handle) or not llama.llama_model_has_decoder(handle):
            self.close()
            raise ModelError(f"{self.path}: this model does not generate text token by token (it has an encoder)")

    def _take(self, handle: int) -> None:
        self._handle: int | None = handle
        self._vocab = llama.llama_model_get_vocab(handle)
        self.users = 0  # open contexts
        self._pieces: dict[int, bytes] = {}

    def _load(self) -> int:
        """llama.cpp's model pointer; ModelError if it refuses, or if a server is lost meanwhile."""
        params, keep = _params(self.placement, self.servers.devices if self.servers else [])
        self.n_devices = len(keep[0]) - 1  # GPUs and servers' devices that may hold layers
        handle = allocate(
            lambda: llama.llama_model_load_from_file(os.fsencode(self.path), params),
            lambda loaded: llama.llama_model_free(loaded),
        )
        if server := self.servers and self.servers.lost():
            if handle:
                llama.llama_model_free(handle)
            raise ModelError(f"{self.path}: the RPC server {server} was lost while the model was loaded")
        if not handle:
            raise ModelError(f"{self.path}: llama.cpp cannot load this file: {_reason(take_errors())}")
        return handle

    def check_servers(self) -> None:
        """NativeError if an RPC server that holds a part of this model does not answer any more."""
        if self.servers:
            self.servers.check(self.path.name)

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
            if self.servers:
                self.servers.close()

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


def _params(placement: Placement, remote: list[Device]) -> tuple[llama.llama_model_params, list[Any]]:
    """llama.cpp's parameters, and the arrays that must live as long as they do."""
    devices = _devices(placement, remote)
    if placement.n_gpu_layers > 0 and not devices:
        warnings.warn(
            f"n_gpu_layers is {placement.n_gpu_layers}, but this build sees no GPU: all layers stay on the CPU",
            RuntimeWarning,
            stacklevel=3,
        )
    if placement.main_gpu >= max(len(devices), 1):
        raise ValueError(f"main_gpu is {placement.main_gpu}, counted from 0; there are {len(devices)} devices")
    if len(placement.tensor_split) > len(devices):
        raise ValueError(f"tensor_split has {len(placement.tensor_split)} shares for {len(devices)} devices")
    if placement.split_mode == "tensor" and not devices:
        raise ValueError("split_mode is 'tensor', which needs at least one GPU; this build sees none")
    params = llama.llama_model_default_params()
    params.n_gpu_layers = placement.n_gpu_layers
    params.split_mode = SPLIT_MODES[placement.split_mode]
    params.main_gpu = placement.main_gpu
    params.load_mode = placement.load_mode
    # without this list llama.cpp would take every RPC server that any model of this process ever named
    handles = (ctypes.c_void_p * (len(devices) + 1))(*(device.handle for device in devices), None)
    params.devices = ctypes.cast(handles, ctypes.c_void_p)
    shares = (ctypes.c_float * int(llama.llama_max_devices()))(*placement.tensor_split)
    if placement.tensor_split:
        params.tensor_split = shares
    return params, [handles, shares]


def _devices(placement: Placement, remote: list[Device]) -> list[Device]:
    """The devices that get layers: those named, else all of the servers and this machine's GPUs."""
    local = local_devices()
    return named(placement.devices, [*remote, *local]) if placement.devices else [*remote, *default_devices(local)]


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

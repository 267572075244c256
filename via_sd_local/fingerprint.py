"""What identifies a GGUF without reading all of it: its header whole, its weights by samples."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ModelError

_SAMPLES, _SAMPLE = 16, 1 << 16  # pieces of the weights, evenly spread, and the bytes of each


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of one GGUF; `size` in bytes, `tensor_types` counts tensors by llama.cpp's names, `file` is for people only.

    Of a model in several files it is the first one's.
    """

    file: str
    architecture: str
    n_layer: int
    size: int
    tensor_types: dict[str, int]
    hash: str

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Of a file, in well under a second at any size; ModelError where it is no readable GGUF."""
        try:
            with path.open("rb") as file, _header(path) as header:
                size = os.fstat(file.fileno()).st_size
                digest = hashlib.sha256(size.to_bytes(8, "little"))
                start = header.data_offset
                digest.update(file.read(start))
                for i in range(_SAMPLES):
                    file.seek(start + max(0, size - start - _SAMPLE) * i // (_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE))
                architecture = header.text("general.architecture")
                n_layer = header.number(f"{architecture}.block_count")
                return cls(path.name, architecture, n_layer, size, header.tensor_types(), digest.hexdigest()[:32])
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None

    def differences(self, other: Fingerprint) -> list[str]:
        """What tells `other` from this one, `self's, not other's`; empty for the same model, whatever its file name."""
        if self.hash == other.hash:
            return []
        said = []
        if self.architecture != other.architecture:
            said.append(f"architecture {self.architecture}, not {other.architecture}")
        if self.n_layer != other.n_layer:
            said.append(f"{self.n_layer} layers, not {other.n_layer}")
        if self.tensor_types != other.tensor_types:
            said.append(f"tensors {_listed(self.tensor_types)}, not {_listed(other.tensor_types)}")
        if self.size != other.size:
            said.append(f"{self.size} bytes, not {other.size}")
        return said or [f"other weights or metadata (hash {self.hash[:12]}, not {other.hash[:12]})"]


def _listed(types: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(types.items(), key=lambda item: -item[1]))


class _InitParams(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class _Header:
    """llama.cpp's own reader of a file's metadata and tensor list."""

    def __init__(self, library: Any, handle: int, path: Path) -> None:
        self._library, self._handle, self._path = library, ctypes.c_void_p(handle), path

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        return function(self._handle, *arguments)

    @property
    def data_offset(self) -> int:
        return int(self._call("gguf_get_data_offset", ctypes.c_size_t))

    def _key(self, key: str) -> ctypes.c_int64:
        found = self._call("gguf_find_key", ctypes.c_int64, key.encode())
        if found < 0:
            raise ModelError(f"{self._path}: its metadata have no {key}")
        return ctypes.c_int64(found)

    def text(self, key: str) -> str:
        """A string of the metadata."""
        key_id = self._key(key)
        if self._call("gguf_get_kv_type", ctypes.c_int, key_id) != 8:
            raise ModelError(f"{self._path}: its {key} is no text")
        return str(self._call("gguf_get_val_str", ctypes.c_char_p, key_id).decode("utf-8", "replace"))

    def number(self, key: str) -> int:
        """A 32-bit number of the metadata."""
        key_id = self._key(key)
        if self._call("gguf_get_kv_type", ctypes.c_int, key_id) != 4:
            raise ModelError(f"{self._path}: its {key} is no unsigned 32-bit number")
        return int(self._call("gguf_get_val_u32", ctypes.c_uint32, key_id))

    def tensor_types(self) -> dict[str, int]:
        """How many tensors there are of each type."""
        n = self._call("gguf_get_n_tensors", ctypes.c_int64)
        name_of = self._library.ggml_type_name
        name_of.restype = ctypes.c_char_p
        kinds = Counter(self._call("gguf_get_tensor_type", ctypes.c_int, ctypes.c_int64(i)) for i in range(n))
        return {name_of(kind).decode(): count for kind, count in kinds.most_common()}


@contextmanager
def _header(path: Path) -> Iterator[_Header]:
    from .binding import _lib, take_errors

    take_errors()
    create = _lib.gguf_init_from_file
    create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _InitParams]
    handle = create(os.fsencode(path), _InitParams(True, None))
    if not handle:
        errors = take_errors()
        raise ModelError(f"{path}: this is not a GGUF file: {errors[0].strip() if errors else 'it cannot be parsed'}")
    try:
        yield _Header(_lib, handle, path)
    finally:
        free = _lib.gguf_free
        free.restype = None
        free(ctypes.c_void_p(handle))

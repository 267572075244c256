"""A GGUF file's metadata and list of tensors, read with llama.cpp's own parser; the weights are not touched."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ModelError

Scalar: TypeAlias = int | float | bool | str

_SCALARS: dict[int, Any] = {  # gguf_type → the C type of a value
    0: ctypes.c_uint8,
    1: ctypes.c_int8,
    2: ctypes.c_uint16,
    3: ctypes.c_int16,
    4: ctypes.c_uint32,
    5: ctypes.c_int32,
    6: ctypes.c_float,
    7: ctypes.c_bool,
    10: ctypes.c_uint64,
    11: ctypes.c_int64,
    12: ctypes.c_double,
}
_INTEGERS = {0, 1, 2, 3, 4, 5, 10, 11}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4  # GGML_MAX_DIMS


class _InitParams(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: `shape` is [n_out, n_in], `type` a ggml_type, `offset` from the file's start in bytes."""

    name: str
    type: int
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def n_elements(self) -> int:
        """The number of weights."""
        return prod(self.shape)


class Header:
    """A parsed header, valid inside `open_header`; raises ModelError for a key that is absent or of another type."""

    def __init__(self, library: Any, handle: int, path: Path) -> None:
        self._library, self._handle, self._path = library, ctypes.c_void_p(handle), path

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        return function(self._handle, *arguments)

    @property
    def data_offset(self) -> int:
        """The offset of the first weight from the file's start, in bytes."""
        return int(self._call("gguf_get_data_offset", ctypes.c_size_t))

    # metadata

    def key_names(self) -> list[str]:
        """Return the metadata's keys in the file's order."""
        count = self._call("gguf_get_n_kv", ctypes.c_int64)
        return [self._call("gguf_get_key", ctypes.c_char_p, ctypes.c_int64(i)).decode() for i in range(count)]

    def has(self, key: str) -> bool:
        """Tell whether the metadata have a key."""
        return bool(self._call("gguf_find_key", ctypes.c_int64, key.encode()) >= 0)

    def types(self, key: str) -> tuple[int, int | None]:
        """Return a value's gguf_type and, for an array, that of its elements."""
        index, kind = self._entry(key)
        return kind, self._call("gguf_get_arr_type", ctypes.c_int, index) if kind == _ARRAY else None

    def value(self, key: str) -> Scalar | list[Any] | None:
        """Return a value of any type, an array as a list; None for an absent key."""
        if not self.has(key):
            return None
        index, kind = self._entry(key)
        if kind == _STRING:
            return self.text(key)
        if kind == _ARRAY:
            return self._array(index)
        data = self._call("gguf_get_val_data", ctypes.c_void_p, index)
        scalar: Scalar = _SCALARS[kind].from_address(data).value
        return scalar

    def text(self, key: str) -> str:
        """Return a string; bytes that are not UTF-8 become U+FFFD."""
        return self.byte_string(key).decode("utf-8", "replace")

    def byte_string(self, key: str) -> bytes:
        """Return a string as the file has it."""
        index, kind = self._entry(key)
        if kind != _STRING:
            raise ModelError(f"{self._path}: its {key} is not a string")
        return bytes(self._call("gguf_get_val_str", ctypes.c_char_p, index))

    def number(self, key: str) -> int:
        """Return an integer."""
        index, kind = self._entry(key)
        if kind not in _INTEGERS:
            raise ModelError(f"{self._path}: its {key} is not an integer")
        data = self._call("gguf_get_val_data", ctypes.c_void_p, index)
        return int(_SCALARS[kind].from_address(data).value)

    def numbers(self, key: str) -> list[int]:
        """Return an array of integers, or a single integer as a list of one."""
        index, kind = self._entry(key)
        if kind != _ARRAY:
            return [self.number(key)]
        if self._call("gguf_get_arr_type", ctypes.c_int, index) not in _INTEGERS:
            raise ModelError(f"{self._path}: its {key} is not an array of integers")
        return self._array(index)

    def byte_strings(self, key: str) -> list[bytes]:
        """Return an array of strings as the file has them."""
        index, kind = self._entry(key)
        if kind != _ARRAY or self._call("gguf_get_arr_type", ctypes.c_int, index) != _STRING:
            raise ModelError(f"{self._path}: its {key} is not an array of strings")
        read = self._library.gguf_get_arr_str
        read.restype, read.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t]
        return [read(self._handle, index.value, i) for i in range(self.length(key))]

    def length(self, key: str) -> int:
        """Return the number of elements of an array."""
        index, kind = self._entry(key)
        if kind != _ARRAY:
            raise ModelError(f"{self._path}: its {key} is not an array")
        return int(self._call("gguf_get_arr_n", ctypes.c_size_t, index))

    def _entry(self, key: str) -> tuple[ctypes.c_int64, int]:
        """Return a key's index and the gguf_type of its value."""
        found = self._call("gguf_find_key", ctypes.c_int64, key.encode())
        if found < 0:
            raise ModelError(f"{self._path}: its metadata have no {key}")
        index = ctypes.c_int64(found)
        return index, int(self._call("gguf_get_kv_type", ctypes.c_int, index))

    def _array(self, index: ctypes.c_int64) -> list[Any]:
        element = self._call("gguf_get_arr_type", ctypes.c_int, index)
        if element == _STRING:
            key = self._call("gguf_get_key", ctypes.c_char_p, index).decode()
            return [text.decode("utf-8", "replace") for text in self.byte_strings(key)]
        count = self._call("gguf_get_arr_n", ctypes.c_size_t, index)
        data = self._call("gguf_get_arr_data", ctypes.c_void_p, index)
        return list((_SCALARS[element] * count).from_address(data)) if count else []

    # tensors

    def tensors(self) -> list[TensorInfo]:
        """Return the tensors in the file's order."""
        start = self.data_offset
        tensors = []
        for index in map(ctypes.c_int64, range(self._call("gguf_get_n_tensors", ctypes.c_int64))):
            lengths = self._call("gguf_get_tensor_ne", ctypes.POINTER(ctypes.c_int64 * _MAX_DIMS), index).contents
            n_dims = max((axis + 1 for axis, length in enumerate(lengths) if length > 1), default=1)  # ggml_n_dims
            tensors.append(
                TensorInfo(
                    self._call("gguf_get_tensor_name", ctypes.c_char_p, index).decode("utf-8", "replace"),
                    self._call("gguf_get_tensor_type", ctypes.c_int, index),
                    tuple(reversed(lengths[:n_dims])),
                    start + self._call("gguf_get_tensor_offset", ctypes.c_size_t, index),
                    self._call("gguf_get_tensor_size", ctypes.c_size_t, index),
                )
            )
        return tensors

    def tensor_types(self) -> dict[str, int]:
        """Count the tensors of each type, by llama.cpp's names (`q4_0`), the most frequent first."""
        name_of = self._library.ggml_type_name
        name_of.restype = ctypes.c_char_p
        types = Counter(tensor.type for tensor in self.tensors())
        return {name_of(kind).decode(): count for kind, count in types.most_common()}

    def tensor_sizes(self) -> dict[str, int]:
        """Return the size of every tensor in bytes, by name."""
        return {tensor.name: tensor.size for tensor in self.tensors()}


@contextmanager
def open_header(path: Path) -> Iterator[Header]:
    """Parse a file's header; raises ModelError with llama.cpp's reason for a file that is not a GGUF."""
    from ..binding import shared_library
    from ..native_log import take_errors

    library = shared_library("ggml-base")
    take_errors()
    create = library.gguf_init_from_file
    create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _InitParams]
    handle = create(os.fsencode(path), _InitParams(True, None))
    if not handle:
        errors = take_errors()
        raise ModelError(f"{path}: this is not a GGUF file: {errors[0].strip() if errors else 'it cannot be parsed'}")
    try:
        yield Header(library, handle, path)
    finally:
        free = library.gguf_free
        free.restype = None
        free(ctypes.c_void_p(handle))


def layer_count(path: Path) -> int:
    """Return the number of layers from a GGUF header; raises ModelError for another file or without an architecture."""
    with open_header(path) as header:
        return header.number(f"{header.text('general.architecture')}.block_count")

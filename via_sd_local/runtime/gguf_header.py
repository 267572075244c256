"""A GGUF's metadata and list of tensors, by llama.cpp's own reader; its weights are not read."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ModelError

_NUMBERS = {  # gguf_type: integers, and how to read one
    0: ctypes.c_uint8,
    1: ctypes.c_int8,
    2: ctypes.c_uint16,
    3: ctypes.c_int16,
    4: ctypes.c_uint32,
    5: ctypes.c_int32,
    10: ctypes.c_uint64,
    11: ctypes.c_int64,
}
_TEXT, _ARRAY = 8, 9


class _InitParams(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class Header:
    """What `open_header` yields; raises ModelError for keys that are absent or of another type."""

    def __init__(self, library: Any, handle: int, path: Path) -> None:
        self._library, self._handle, self._path = library, ctypes.c_void_p(handle), path

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        return function(self._handle, *arguments)

    @property
    def data_offset(self) -> int:
        """Where the weights begin, in bytes."""
        return int(self._call("gguf_get_data_offset", ctypes.c_size_t))

    def has(self, key: str) -> bool:
        """Whether the metadata have this key."""
        return bool(self._call("gguf_find_key", ctypes.c_int64, key.encode()) >= 0)

    def _key(self, key: str) -> tuple[ctypes.c_int64, int]:
        """Its index and its type."""
        found = self._call("gguf_find_key", ctypes.c_int64, key.encode())
        if found < 0:
            raise ModelError(f"{self._path}: its metadata have no {key}")
        index = ctypes.c_int64(found)
        return index, int(self._call("gguf_get_kv_type", ctypes.c_int, index))

    def text(self, key: str) -> str:
        """A string of the metadata."""
        index, kind = self._key(key)
        if kind != _TEXT:
            raise ModelError(f"{self._path}: its {key} is no text")
        return str(self._call("gguf_get_val_str", ctypes.c_char_p, index).decode("utf-8", "replace"))

    def number(self, key: str) -> int:
        """An integer of the metadata."""
        index, kind = self._key(key)
        if kind not in _NUMBERS:
            raise ModelError(f"{self._path}: its {key} is no whole number")
        data = self._call("gguf_get_val_data", ctypes.c_void_p, index)
        return int(_NUMBERS[kind].from_address(data).value)

    def numbers(self, key: str) -> list[int]:
        """An array of integers, or one integer as a list of one."""
        index, kind = self._key(key)
        if kind != _ARRAY:
            return [self.number(key)]
        element = self._call("gguf_get_arr_type", ctypes.c_int, index)
        if element not in _NUMBERS:
            raise ModelError(f"{self._path}: its {key} has no whole numbers")
        count = self._call("gguf_get_arr_n", ctypes.c_size_t, index)
        data = self._call("gguf_get_arr_data", ctypes.c_void_p, index)
        return list((_NUMBERS[element] * count).from_address(data)) if count else []

    def length(self, key: str) -> int:
        """How many elements an array has."""
        index, kind = self._key(key)
        if kind != _ARRAY:
            raise ModelError(f"{self._path}: its {key} is no array")
        return int(self._call("gguf_get_arr_n", ctypes.c_size_t, index))

    def _tensors(self) -> range:
        return range(self._call("gguf_get_n_tensors", ctypes.c_int64))

    def tensor_types(self) -> dict[str, int]:
        """How many tensors there are of each type."""
        name_of = self._library.ggml_type_name
        name_of.restype = ctypes.c_char_p
        kinds = Counter(self._call("gguf_get_tensor_type", ctypes.c_int, ctypes.c_int64(i)) for i in self._tensors())
        return {name_of(kind).decode(): count for kind, count in kinds.most_common()}

    def tensor_sizes(self) -> dict[str, int]:
        """The bytes of every tensor, by its name."""
        return {
            self._call("gguf_get_tensor_name", ctypes.c_char_p, ctypes.c_int64(i)).decode("utf-8", "replace"): int(
                self._call("gguf_get_tensor_size", ctypes.c_size_t, ctypes.c_int64(i))
            )
            for i in self._tensors()
        }


@contextmanager
def open_header(path: Path) -> Iterator[Header]:
    """The header of a file; ModelError where it is no GGUF that llama.cpp can parse."""
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
    """The number of layers of a model, from its header; ModelError where it is no GGUF or names no architecture."""
    with open_header(path) as header:
        return header.number(f"{header.text('general.architecture')}.block_count")

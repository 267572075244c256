"""Reads a GGUF tensor by tensor and writes another one tensor by tensor, so that neither is ever whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

from ..arrays import Floats
from ..errors import ModelError
from ..runtime.gguf_header import Header, TensorInfo, open_header

ARRAY, FLOAT32, INT32 = GGUFValueType.ARRAY, GGUFValueType.FLOAT32, GGUFValueType.INT32
STRING, UINT32 = GGUFValueType.STRING, GGUFValueType.UINT32
_WRITTEN_BY_GGUF = ("GGUF.", "general.architecture", "general.alignment")  # keys that GGUFWriter adds by itself


@dataclass(frozen=True, slots=True)
class Value:
    """A metadata value; `item_type` is set for arrays. Strings may be bytes, which are copied without decoding."""

    value: Any
    type: GGUFValueType
    item_type: GGUFValueType | None = None


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to write: its shape [n_out, n_in] and type are known at once, `make` computes it when its turn comes."""

    name: str
    shape: tuple[int, ...]
    dtype: type[np.float32] | type[np.float16]
    make: Callable[[], npt.NDArray[Any]]

    @property
    def size(self) -> int:
        """The tensor's size in bytes."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


class GgufFile:
    """A GGUF's metadata and tensors; weights are read from the file as they are asked for."""

    def __init__(self, path: Path) -> None:
        """Read the header; raises ModelError for a file that is not a GGUF, or is shorter than its header says."""
        self.path = path
        try:
            with open_header(path) as header:
                self._values = {key: _value(header, key) for key in header.key_names()}
                self._tensors = {tensor.name: tensor for tensor in header.tensors()}
        except ModelError as error:
            raise ModelError(f"{path}: this is not a whole GGUF file ({error}); fetch or make it again") from error
        end = max((tensor.offset + tensor.size for tensor in self._tensors.values()), default=0)
        if (size := path.stat().st_size) < end:
            raise ModelError(f"{path}: this is not a whole GGUF file ({size} bytes of {end}); fetch or make it again")

    def get(self, key: str) -> Any:
        """Return a metadata value: a number, a string or a list; None for an absent key."""
        return _decoded(self._values[key].value) if key in self._values else None

    def metadata(self) -> dict[str, Value]:
        """Return the values to copy: all but those that GGUFWriter adds, and empty arrays, which it cannot write."""
        return {
            key: value
            for key, value in self._values.items()
            if not key.startswith(_WRITTEN_BY_GGUF) and not (value.type is ARRAY and not value.value)
        }

    @property
    def names(self) -> list[str]:
        """The names of the tensors, in the file's order."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, [n_out, n_in]."""
        return self._tensors[name].shape

    def floats(self, name: str) -> Floats:
        """Read and dequantise a tensor; raises ModelError for a type that the gguf package cannot read."""
        tensor = self._tensors[name]
        kind = GGMLQuantizationType(tensor.type)
        try:
            weights: Floats = dequantize(_rows(self.path, tensor), kind)
        except NotImplementedError:
            raise ModelError(f"{self.path}: the type {kind.name} of {name} cannot be read; use another file") from None
        return weights


def _value(header: Header, key: str) -> Value:
    kind, item_kind = header.types(key)
    item_type = None if item_kind is None else GGUFValueType(item_kind)
    value: Any
    if item_type is STRING:
        value = header.byte_strings(key)
    else:
        value = header.byte_string(key) if kind == STRING else header.value(key)
    return Value(value, GGUFValueType(kind), item_type)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _rows(path: Path, tensor: TensorInfo) -> npt.NDArray[np.uint8]:
    """Map a tensor's bytes, `[..., bytes of a row]`."""
    *rows, n_in = tensor.shape
    row_size = tensor.size * n_in // tensor.n_elements
    return np.memmap(path, np.uint8, "r", tensor.offset, (*rows, row_size))


def write_gguf(
    path: Path,
    architecture: str,
    metadata: dict[str, Value],
    tensors: Sequence[NewTensor],
    written: Callable[[int], object] = lambda _size: None,
) -> None:
    """Write a GGUF, making one tensor at a time; `written` is told each tensor's bytes. Raises the system's OSError."""
    with closing(GGUFWriter(path, architecture)) as writer:
        for key, value in metadata.items():
            writer.add_key_value(key, value.value, value.type, value.item_type)
        for tensor in tensors:
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(tensor.dtype), tensor.size)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            writer.write_tensor_data(tensor.make())
            written(tensor.size)


def total_size(tensors: Iterable[NewTensor]) -> int:
    """Return the size of all tensors together, in bytes."""
    return sum(tensor.size for tensor in tensors)

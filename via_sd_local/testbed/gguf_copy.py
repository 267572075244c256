"""Reads a GGUF tensor by tensor and writes another one tensor by tensor, so neither is ever whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

from ..arrays import Floats
from ..errors import ModelError

ARRAY, FLOAT32, INT32 = GGUFValueType.ARRAY, GGUFValueType.FLOAT32, GGUFValueType.INT32
STRING, UINT32 = GGUFValueType.STRING, GGUFValueType.UINT32
_DERIVED = ("GGUF.", "general.architecture", "general.alignment")  # what the writer writes by itself


@dataclass(frozen=True, slots=True)
class Value:
    """One metadata value; `item_type` is set for arrays. Texts may be bytes, which are not looked into."""

    value: Any
    type: GGUFValueType
    item_type: GGUFValueType | None = None


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to be written: shape and type are known at once, the array is made when its turn comes."""

    name: str
    shape: tuple[int, ...]
    dtype: type[np.float32] | type[np.float16]
    make: Callable[[], npt.NDArray[Any]]

    @property
    def size(self) -> int:
        """In bytes."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


class GgufFile:
    """A GGUF's metadata and tensors, read from the mapped file as they are asked for."""

    def __init__(self, path: Path) -> None:
        """Read the header; ModelError if the file is no whole GGUF."""
        self.path = path
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise ModelError(f"{path}: this is not a whole GGUF file ({error}); fetch or make it again") from error
        if self._reader.byte_order == "S":
            raise ModelError(f"{path}: its bytes are in the other order; use a GGUF made for this machine")
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def get(self, key: str) -> Any:
        """A metadata value: a number, a text or a list; None where there is none."""
        field = self._reader.fields.get(key)
        return None if field is None else field.contents()

    def metadata(self) -> dict[str, Value]:
        """Everything but the keys that the writer writes by itself, and empty arrays, which it cannot write."""
        values: dict[str, Value] = {}
        for name, field in self._reader.fields.items():
            if name.startswith(_DERIVED) or not field.data:
                continue
            kind = field.types[0]
            if field.types[-1] is not STRING:
                value = field.contents()
            else:
                texts = [field.parts[index].tobytes() for index in field.data]
                value = texts if kind is ARRAY else texts[0]
            values[name] = Value(value, kind, field.types[-1] if kind is ARRAY else None)
        return values

    @property
    def names(self) -> list[str]:
        """The tensors, in the file's order."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, [n_out, n_in]."""
        return tuple(int(n) for n in reversed(self._tensors[name].shape.tolist()))

    def n_bytes(self, name: str) -> int:
        """A tensor's size in the file."""
        return int(self._tensors[name].n_bytes)

    def floats(self, name: str) -> Floats:
        """A tensor's weights, dequantised; ModelError for a type that gguf cannot read."""
        tensor = self._tensors[name]
        try:
            weights: Floats = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            kind = GGMLQuantizationType(tensor.tensor_type).name
            raise ModelError(f"{self.path}: the type {kind} of {name} cannot be read; use another file") from None
        return weights


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
    """The bytes of all tensors together."""
    return sum(tensor.size for tensor in tensors)

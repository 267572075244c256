"""What identifies a GGUF without reading all of it: its header whole, its weights by samples."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from .gguf_header import open_header

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
            with path.open("rb") as file, open_header(path) as header:
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

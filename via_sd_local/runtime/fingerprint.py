"""Identifies a GGUF file without reading all of it: by a hash of its header and of samples of its weights."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from .gguf_header import open_header

_N_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16  # evenly spread over the weights


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of one GGUF file, or of the first file of a split model.

    `size` is in bytes, `tensor_types` counts tensors by the name of their type (`Q4_0`), `hash` is 32 hex digits.
    `file` is the file's name, for display only; it is not compared.
    """

    file: str
    architecture: str
    n_layer: int
    size: int
    tensor_types: dict[str, int]
    hash: str

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Compute a file's fingerprint, in well under a second at any size; ModelError if it is no readable GGUF."""
        try:
            with path.open("rb") as file, open_header(path) as header:
                size = os.fstat(file.fileno()).st_size
                digest = hashlib.sha256(size.to_bytes(8, "little"))
                start = header.data_offset
                digest.update(file.read(start))
                for i in range(_N_SAMPLES):
                    file.seek(start + max(0, size - start - _SAMPLE_BYTES) * i // (_N_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE_BYTES))
                architecture = header.text("general.architecture")
                n_layer = header.number(f"{architecture}.block_count")
                return cls(path.name, architecture, n_layer, size, header.tensor_types(), digest.hexdigest()[:32])
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None

    def differences(self, other: Fingerprint) -> list[str]:
        """List what differs from `other`, each as "this one's, not the other's"; empty for the same content.

        File names are not compared.
        """
        if self.hash == other.hash:
            return []
        differences = []
        if self.architecture != other.architecture:
            differences.append(f"architecture {self.architecture}, not {other.architecture}")
        if self.n_layer != other.n_layer:
            differences.append(f"{self.n_layer} layers, not {other.n_layer}")
        if self.tensor_types != other.tensor_types:
            differences.append(f"tensors {_format_counts(self.tensor_types)}, not {_format_counts(other.tensor_types)}")
        if self.size != other.size:
            differences.append(f"{self.size} bytes, not {other.size}")
        return differences or [f"other weights or metadata (hash {self.hash[:12]}, not {other.hash[:12]})"]


def _format_counts(types: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(types.items(), key=lambda item: -item[1]))

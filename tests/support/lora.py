"""A LoRA adapter for a model, with random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter


def write(path: Path, model: Path, *, rank: int = 4, strength: float = 1.0, seed: int = 0) -> Path:
    """An adapter of the query and down projections of every layer; its effect is `strength` times that of a layer."""
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for tensor in GGUFReader(model).tensors:
        if tensor.name.endswith(("attn_q.weight", "ffn_down.weight")):
            n_in, n_out = (int(n) for n in tensor.shape)
            a = rng.standard_normal((rank, n_in), dtype=np.float32) / np.sqrt(n_in)
            b = rng.standard_normal((n_out, rank), dtype=np.float32) / np.sqrt(rank)
            writer.add_tensor(f"{tensor.name}.lora_a", a.astype(np.float32))
            writer.add_tensor(f"{tensor.name}.lora_b", (strength * b).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

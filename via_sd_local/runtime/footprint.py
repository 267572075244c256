"""Estimates how much main memory a model and its context will take, from the header of the file alone."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .gguf_header import Header, open_header
from .limits import DEFAULT_N_CTX
from .placement import CACHE_TYPES, Placement

_CELLS = 256  # llama.cpp rounds n_ctx up to a multiple of this
_FLOAT = 4  # bytes
_FIRST_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")  # the name of the first file of a split model


@dataclass(frozen=True, slots=True)
class Footprint:
    """The main memory of one model and its context, in bytes: weights, KV cache and compute buffers.

    `n_ctx` is in tokens. `mapped` says that the weights are pages of the file, which several models of the same file
    share.
    """

    path: Path
    n_ctx: int
    weights: int
    cache: int
    buffers: int
    mapped: bool = True

    @property
    def total(self) -> int:
        """Weights, cache and buffers, in bytes."""
        return self.weights + self.cache + self.buffers

    def once_loaded(self) -> Footprint:
        """Return the part that the system still reports as available after loading: the mapped weights."""
        return replace(self, n_ctx=0, weights=self.weights if self.mapped else 0, cache=0, buffers=0)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How a file will be loaded.

    `n_ctx` is in tokens; None is the smaller of `DEFAULT_N_CTX` and the length that the model was trained for, 0 is
    that length. `n_ubatch` is the size of a physical batch in tokens. `n_gpu_layers` -1 is all layers; they leave main
    memory if `offloads`, that is, if there are devices with memory of their own. `type_k` and `type_v` are ggml types.
    """

    path: Path
    n_ctx: int | None
    n_ubatch: int
    n_gpu_layers: int
    offloads: bool
    type_k: int
    type_v: int
    flash_attn: bool
    offload_kqv: bool
    mapped: bool


def plan_of(path: Path, placement: Placement, n_ctx: int | None, n_ubatch: int) -> LoadPlan:
    """Return the plan for a `Model` with this placement and a `Context` of `n_ctx` tokens over it."""
    n_devices = _devices_with_memory(placement.devices, placement.rpc_servers)
    return LoadPlan(
        path,
        n_ctx,
        n_ubatch,
        placement.n_gpu_layers,
        offloads=n_devices > 0,
        type_k=CACHE_TYPES[placement.type_k],
        type_v=CACHE_TYPES[placement.type_v],
        flash_attn=placement.flash_attn_type(n_devices) != 0,
        offload_kqv=placement.offload_kqv,
        mapped=placement.use_mmap,
    )


def _devices_with_memory(names: Sequence[str] = (), rpc_servers: Sequence[str] = ()) -> int:
    """Count the devices that hold layers outside main memory, which integrated GPUs and Apple's do not.

    `names` selects local devices (empty: the default ones). An RPC server counts as one device.
    """
    from .devices import default_devices, local_devices

    local = local_devices()
    chosen = [device for device in local if device.name in names] if names else default_devices(local)
    return len(rpc_servers) + sum(not device.shares_main_memory for device in chosen)


def has_devices_with_memory() -> bool:
    """Return whether this machine's GPUs have memory of their own."""
    return _devices_with_memory() > 0


def estimate(plan: LoadPlan) -> Footprint:
    """Estimate the main memory that a plan will take; ModelError if the file's header cannot be read."""
    with open_header(plan.path) as header:
        return _estimate(plan, header)


def _estimate(plan: LoadPlan, header: Header) -> Footprint:
    architecture = header.text("general.architecture")

    def numbers(key: str, default: list[int]) -> list[int]:
        name = f"{architecture}.{key}"
        return header.numbers(name) or default if header.has(name) else default

    n_layer = numbers("block_count", [0])[0]
    n_embd = numbers("embedding_length", [0])[0]
    heads = numbers("attention.head_count", [0])
    kv_heads = numbers("attention.head_count_kv", heads)
    trained = numbers("context_length", [0])[0]
    n_head = max(heads)
    width = n_embd // n_head if n_head else 0
    k_width, v_width = numbers("attention.key_length", [width])[0], numbers("attention.value_length", [width])[0]
    # llama.cpp offloads the last layers first; the output counts as layer n_layer
    first_offloaded = n_layer + 1
    if plan.offloads:
        layers = plan.n_gpu_layers
        first_offloaded = 0 if layers < 0 else max(0, n_layer + 1 - layers)
    on_cpu = range(min(first_offloaded, n_layer))
    weights = _weights(_tensor_sizes(plan.path, header), on_cpu, output=first_offloaded > n_layer)
    n_ctx = (min(DEFAULT_N_CTX, trained) if plan.n_ctx is None else plan.n_ctx) or trained
    cells = -(-n_ctx // _CELLS) * _CELLS
    cached = on_cpu if plan.offload_kqv else range(n_layer)
    cache = cells * sum(
        _row_bytes(plan.type_k, k_width * n) + _row_bytes(plan.type_v, v_width * n)
        for n in (kv_heads[min(layer, len(kv_heads) - 1)] for layer in cached)
    )
    # recurrent state, counted for every layer, whatever its kind
    inner, state = numbers("ssm.inner_size", [0])[0], numbers("ssm.state_size", [0])[0]
    cache += len(cached) * inner * (state + numbers("ssm.conv_kernel", [0])[0]) * _FLOAT
    n_vocab = header.length("tokenizer.ggml.tokens") if header.has("tokenizer.ggml.tokens") else 0
    rows = [n_embd]  # floats per token at the widest points of a pass: output, FFN, attention
    if first_offloaded > n_layer:
        rows.append(n_vocab + n_embd)
    if on_cpu:
        rows.append(3 * max(numbers("feed_forward_length", [0])) + n_embd)
        rows.append((0 if plan.flash_attn else n_head * cells) + 3 * n_embd)
    buffers = plan.n_ubatch * (max(rows) + n_embd) * _FLOAT + plan.n_ubatch * cells * _FLOAT // 2
    return Footprint(plan.path, n_ctx, weights, cache, buffers, plan.mapped)


def _tensor_sizes(path: Path, header: Header) -> dict[str, int]:
    """Return the bytes of each tensor, over all files of a split model."""
    sizes = header.tensor_sizes()
    if match := _FIRST_PART.search(path.name):
        for number in range(2, int(match[1]) + 1):
            part = path.with_name(path.name[: match.start()] + f"-{number:05}-of-{match[1]}.gguf")
            with open_header(part) as other:
                sizes |= other.tensor_sizes()
    return sizes


def _weights(sizes: dict[str, int], layers: range, *, output: bool) -> int:
    """Sum the bytes of `layers` and of the embeddings, and of the output layer if `output`."""
    total = 0
    for name, size in sizes.items():
        layer = re.match(r"blk\.(\d+)\.", name)
        if int(layer[1]) in layers if layer else output or not name.startswith("output"):
            total += size
    return total


def _row_bytes(kind: int, n: int) -> int:
    """Return the bytes of `n` values of a ggml type; a type that llama.cpp would refuse counts as f16."""
    from ..binding import shared_library

    library = shared_library("ggml-base")
    block, size = library.ggml_blck_size, library.ggml_type_size
    block.argtypes, block.restype = [ctypes.c_int], ctypes.c_int64
    size.argtypes, size.restype = [ctypes.c_int], ctypes.c_size_t
    block_size = block(kind) if 0 <= kind < 40 else 0
    return -(-n // block_size) * int(size(kind)) if block_size > 0 else 2 * n

"""The command-line options of `Placement`, once for the verifier and once for the draft model (`--draft-…`)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..runtime.placement import CACHE_TYPES, DEFAULT, FLASH_ATTN, SPLIT_MODES, Placement, parse_list, parse_shares
from .wording import as_typed

VERIFIER, DRAFT = "", "draft-"
NAMES = (
    *("gpu-layers", "main-gpu", "tensor-split", "split-mode", "devices", "flash-attn", "cache-type-k", "cache-type-v"),
    *("no-kv-offload", "no-mmap", "mlock", "rpc-servers"),
)


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add both sets of options; by default a model uses every GPU of this machine."""
    group = parser.add_argument_group(
        "devices and memory",
        "These apply to the verifier; the same options with the prefix --draft- apply to the draft model.",
    )
    for prefix in (VERIFIER, DRAFT):
        _add(group, prefix)


def _add(group: argparse._ArgumentGroup, prefix: str) -> None:
    def add(name: str, text: str, **options: object) -> None:
        shown = text if prefix == VERIFIER else argparse.SUPPRESS
        group.add_argument(f"--{prefix}{name}", help=shown, **options)  # type: ignore[arg-type]

    add(
        "gpu-layers", "number of layers on GPUs (default: -1, all)", metavar="N", type=int, default=DEFAULT.n_gpu_layers
    )
    add(
        "main-gpu",
        "the GPU that holds the model with --split-mode none (default: 0)",
        metavar="N",
        type=int,
        default=DEFAULT.main_gpu,
    )
    add(
        "tensor-split",
        "share of the layers on each device, e.g. 3,1 (default: by free memory)",
        metavar="A,B,…",
        default="",
    )
    add(
        "split-mode",
        "how a model is split among devices (default: layer)",
        choices=tuple(SPLIT_MODES),
        default=DEFAULT.split_mode,
    )
    add(
        "devices",
        "the devices to use, by their names in `via-sd-local doctor` (default: all GPUs)",
        metavar="NAME,…",
        default="",
    )
    add(
        "flash-attn",
        "flash attention (default: auto, which is off on a CPU)",
        choices=tuple(FLASH_ATTN),
        default=DEFAULT.flash_attn,
    )
    for letter, value in (("k", DEFAULT.type_k), ("v", DEFAULT.type_v)):
        text = f"number format of the {letter.upper()} cache, one of {', '.join(CACHE_TYPES)} (default: {value})"
        add(f"cache-type-{letter}", text, metavar="TYPE", default=value)
    add("no-kv-offload", "keep the KV cache in main memory", action="store_true")
    add("no-mmap", "read the file into memory instead of mapping it", action="store_true")
    add("mlock", "lock the weights in memory, so that they are not swapped out", action="store_true")
    text = "RPC servers that hold layers, before any local device; unencrypted, for trusted networks only"
    add("rpc-servers", text, metavar="HOST:PORT,…", default="")


def placement_from(args: argparse.Namespace, prefix: str) -> Placement:
    """Return the placement of one model; raises ValueError for a bad value, which names the option as it is typed."""
    values = {name: getattr(args, (prefix + name).replace("-", "_")) for name in NAMES}
    try:
        return _placement(values)
    except ValueError as error:
        raise ValueError(as_typed(str(error), prefix)) from None


def _placement(values: Mapping[str, Any]) -> Placement:
    return Placement(
        n_gpu_layers=values["gpu-layers"],
        main_gpu=values["main-gpu"],
        tensor_split=parse_shares(values["tensor-split"]),
        split_mode=values["split-mode"],
        devices=parse_list(values["devices"]),
        flash_attn=values["flash-attn"],
        type_k=values["cache-type-k"],
        type_v=values["cache-type-v"],
        offload_kqv=not values["no-kv-offload"],
        use_mmap=not values["no-mmap"],
        use_mlock=values["mlock"],
        rpc_servers=parse_list(values["rpc-servers"]),
    )

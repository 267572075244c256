"""The command-line options of a `Placement`, once for the verifier and once for the draft (`--draft-…`)."""

from __future__ import annotations

import argparse

from ..runtime.placement import CACHE_TYPES, DEFAULT, FLASH_ATTN, SPLIT_MODES, Placement, parse_list, parse_shares

VERIFIER, DRAFT = "", "draft-"
NAMES = (
    *("gpu-layers", "main-gpu", "tensor-split", "split-mode", "devices", "flash-attn", "cache-type-k", "cache-type-v"),
    *("no-kv-offload", "no-mmap", "mlock", "rpc-servers"),
)


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add both sets of options; without any of them a model uses every GPU of this machine."""
    group = parser.add_argument_group(
        "devices and memory", "For the verifier; the same options with --draft- in front are for the draft."
    )
    for prefix in (VERIFIER, DRAFT):
        _add(group, prefix)


def _add(group: argparse._ArgumentGroup, prefix: str) -> None:
    def add(name: str, text: str, **options: object) -> None:
        shown = text if prefix == VERIFIER else argparse.SUPPRESS
        group.add_argument(f"--{prefix}{name}", help=shown, **options)  # type: ignore[arg-type]

    add("gpu-layers", "layers on GPUs (default: -1, all)", metavar="N", type=int, default=DEFAULT.n_gpu_layers)
    add("main-gpu", "the GPU of --split-mode none (default: 0)", metavar="N", type=int, default=DEFAULT.main_gpu)
    add("tensor-split", "shares of the devices, e.g. 3,1 (default: by free memory)", metavar="A,B,…", default="")
    add(
        "split-mode",
        "how several devices share a model (default: layer)",
        choices=tuple(SPLIT_MODES),
        default=DEFAULT.split_mode,
    )
    add("devices", "the devices to use, as `doctor` names them (default: all GPUs)", metavar="NAME,…", default="")
    add(
        "flash-attn",
        "fused attention (default: auto, which is off on a CPU)",
        choices=tuple(FLASH_ATTN),
        default=DEFAULT.flash_attn,
    )
    for letter, value in (("k", DEFAULT.type_k), ("v", DEFAULT.type_v)):
        text = f"number format of the cache's {letter.upper()}, one of {', '.join(CACHE_TYPES)} (default: {value})"
        add(f"cache-type-{letter}", text, metavar="TYPE", default=value)
    add("no-kv-offload", "keep the cache in main memory", action="store_true")
    add("no-mmap", "read the file instead of mapping it", action="store_true")
    add("mlock", "keep the weights from being swapped out", action="store_true")
    text = "RPC servers that hold layers, first those; unencrypted, for trusted networks only"
    add("rpc-servers", text, metavar="HOST:PORT,…", default="")


def placement_from(args: argparse.Namespace, prefix: str) -> Placement:
    """The placement that the parsed options give; ValueError for a bad one."""
    given = {name: getattr(args, (prefix + name).replace("-", "_")) for name in NAMES}
    return Placement(
        n_gpu_layers=given["gpu-layers"],
        main_gpu=given["main-gpu"],
        tensor_split=parse_shares(given["tensor-split"]),
        split_mode=given["split-mode"],
        devices=parse_list(given["devices"]),
        flash_attn=given["flash-attn"],
        type_k=given["cache-type-k"],
        type_v=given["cache-type-v"],
        offload_kqv=not given["no-kv-offload"],
        use_mmap=not given["no-mmap"],
        use_mlock=given["mlock"],
        rpc_servers=parse_list(given["rpc-servers"]),
    )

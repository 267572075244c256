"""Runs llama.cpp's quantiser in a child process, so that Ctrl-C ends it at once and a crash becomes an error."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from ..errors import NativeError
from ..progress import byte_bar

PERIOD = 0.2  # seconds between updates of the progress bar from the size of the file
BUFFER = 64 << 20  # bytes of rows that the quantiser keeps in memory
LARGEST_BLOCK = 256  # weights per block of the K and IQ types


def known_types() -> dict[str, int]:
    """Return llama.cpp's file types (`llama_ftype`) by name: F16, Q4_0, Q4_K_M, …"""
    from ..binding import llama

    return {
        name.split("_", 3)[-1]: value
        for name, value in vars(llama).items()
        if name.startswith(("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_"))
    }


def file_type(name: str) -> int:
    """Return the `llama_ftype` of a name; ValueError, listing all names, for one that llama.cpp does not have."""
    types = known_types()
    if name not in types:
        raise ValueError(f"quant is {name!r}; llama.cpp has {', '.join(types)}")
    return types[name]


def main_type(name: str) -> GGMLQuantizationType | None:
    """Return the type of most matrices in a file of this type (Q4_K for Q4_K_M); None if the name does not tell."""
    kinds = GGMLQuantizationType.__members__
    return kinds.get(name, kinds.get(name.rpartition("_")[0]))


def block_size(name: str) -> int:
    """Return the number of weights per quantisation block; `LARGEST_BLOCK` if the name does not tell."""
    kind = main_type(name)
    return GGML_QUANT_SIZES[kind][0] if kind is not None else LARGEST_BLOCK


def size_bound(weights: int, large: int, name: str) -> int:
    """Return an upper bound of a quantised file's size in bytes.

    `weights` counts all weights, `large` those of the token embeddings and the output. llama.cpp stores some matrices
    in better types than the file's: these two in up to Q8_0, the others with up to two more bits per weight.
    """
    kind = main_type(name)
    block, size = GGML_QUANT_SIZES[kind] if kind is not None else (1, 2)
    bits = 8 * size / block
    return int(((weights - large) * min(bits + 1, max(bits, 8.5)) + large * max(bits, 8.5)) / 8)


def quantise(source: Path, target: Path, quant: str, *, expected: int, progress: bool) -> None:
    """Quantise `source` into the file `target`; `expected` is its size in bytes, for the progress bar.

    Raises NativeError with llama.cpp's reason; `target` is then incomplete.
    """
    command = [sys.executable, "-m", __name__, str(source), str(target), quant]
    with (
        byte_bar(expected, f"quantising to {quant}", progress) as bar,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child,
    ):
        try:
            while True:
                try:
                    _, errors = child.communicate(timeout=PERIOD)
                    break
                except subprocess.TimeoutExpired:
                    bar.set(min(expected, target.stat().st_size if target.exists() else 0))
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1] if lines else f"it exited with status {child.returncode}"
        raise NativeError(f"llama.cpp cannot quantise this model to {quant}: {reason}")


def main(source: str, target: str, quant: str) -> int:
    """Quantise in the child process; returns its exit status, with llama.cpp's error on standard error."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ..binding import llama
    from ..native_log import take_errors
    from ..runtime.limits import default_threads

    params = llama.llama_model_quantize_default_params()
    params.ftype = file_type(quant)
    params.nthread = default_threads()
    params.allow_requantize = True
    params.max_buf_size = BUFFER
    if llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)) != 0:
        print((take_errors() or ["it gave no reason"])[-1].strip(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

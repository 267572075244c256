"""Measure the memory of a process that loads, uses and frees a `Llama` again and again.

Objects are closed and merely dropped in turn, and every third leaves a stream half read. Nothing calls the garbage
collector. The exit status is 1 if the process ends with more than 5 % above its memory after the fifth load.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import tiny

from via_sd_local import Llama

FIRST = 5  # loads until the process has what it keeps: libraries, pools, caches of the allocator
LIMIT = 1.05
PROMPT = "the sea and the land"


def return_large_blocks() -> None:
    """Let glibc give blocks of 1 MiB and more back when they are freed, so that its reserves do not count as memory."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD; a fixed one no longer grows with the blocks that are freed


def use(llm: Llama, *, leaves_stream: bool) -> None:
    """Answer once with a grammar and once as a stream, which may be left half read."""
    llm(PROMPT, max_tokens=8, grammar="root ::= [a-z]+")
    stream = llm(PROMPT, max_tokens=8, temperature=0, logprobs=2, stream=True)
    for _ in stream:
        if leaves_stream:
            break


def memory_after_loads(path: str, loads: int, options: dict[str, Any]) -> Iterator[int]:
    """Yield the bytes that the process holds alone after each load, once the object is freed."""
    process = psutil.Process()
    for number in range(loads):
        llm = Llama(path, n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False, **options)
        use(llm, leaves_stream=number % 3 == 0)
        if number % 2:
            llm.close()
        del llm
        yield process.memory_full_info().uss


def main(argv: list[str] | None = None) -> int:
    """Print the memory by number of loads; returns 1 if it grows by more than `LIMIT`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FILE", help="a .gguf file or a name (default: a tiny random model)")
    parser.add_argument("--draft", metavar="FILE", help="a draft model for it")
    parser.add_argument("--loads", type=int, default=50, help=f"more than {FIRST}")
    parser.add_argument("--no-mmap", action="store_true", help="copy the weights instead of mapping the file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.loads <= FIRST:
        parser.error(f"--loads is {args.loads}; it must be more than {FIRST}")
    return_large_blocks()
    options = {"use_mmap": not args.no_mmap, "draft_model_path": args.draft}
    with tempfile.TemporaryDirectory() as folder:
        path = args.model or str(tiny.write(Path(folder) / "tiny.gguf", tiny.spec("llama")))
        held = list(memory_after_loads(path, args.loads, options))
    if args.json:
        print(json.dumps(held))
    else:
        print("loads  MiB of this process alone")
        for number in sorted({1, *range(FIRST, args.loads, FIRST), args.loads}):
            print(f"{number:5}  {held[number - 1] / 2**20:.1f}")
    return int(held[-1] > LIMIT * held[FIRST - 1])


if __name__ == "__main__":
    sys.exit(main())

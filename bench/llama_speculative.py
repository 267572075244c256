#!/usr/bin/env python3
"""Compare `sd` with llama.cpp's own speculative example: same models, prompts and draft lengths, at temperature 0.

    python bench/llama_speculative.py --verifier V --draft D [--lengths 3 7 15] [--prompts N] [--build-only]

`llama-speculative-simple` comes from the same pinned source and uses the same compiled libraries; its own code is
compiled once into the cache folder (about 5 minutes on one core). The configurations alternate, on distinct prompts.
Both speeds are decoding speeds: loading and prefill are excluded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompts import tasks

from via_sd_local.catalog.lookup import resolve
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.measure import measure
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.libraries import LIBRARIES
from via_sd_local.runtime.chat_format import ChatFormat, Message
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier

HERE = Path(__file__).resolve().parent
NEEDED = ("include/", "ggml/include/", "common/", "vendor/", "src/", "examples/speculative-simple/")
ENCODED = re.compile(r"encoded\s+(\d+) tokens")
DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")


@dataclass(frozen=True, slots=True)
class Run:
    """One configuration's result for one prompt."""

    tokens_per_second: float
    drafted: int
    accepted: int
    text: str
    overhead: float | None = None  # share of the time outside llama_decode


def build() -> Path:
    """Return the program, compiled first if needed; SystemExit with CMake's output if that fails."""
    spec = importlib.util.spec_from_file_location("prepare", HERE.parent / "patches" / "llama_cpp.py")
    assert spec is not None
    assert spec.loader is not None
    prepare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    folder = prepare.cache_folder() / "speculative" / prepare.COMMIT
    program: Path = folder / "build" / "example" / "llama-speculative-simple"
    if not (folder / "source").is_dir():
        unpack(prepare.fetch(), folder / "source", f"llama_cpp_python-{prepare.VERSION}/vendor/llama.cpp/")
    options = [f"-DLLAMA_CPP={folder / 'source'}", f"-DLIBRARIES={LIBRARIES.resolve()}"]
    if shutil.which("ninja"):
        options += ["-G", "Ninja"]
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "1")
    for command in (
        ["cmake", "-S", str(HERE / "speculative"), "-B", str(folder / "build"), *options],
        ["cmake", "--build", str(folder / "build"), "--target", program.name, "-j", jobs],
    ):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
    return program


def unpack(archive: Path, dest: Path, root: str) -> None:
    """Unpack the parts of llama.cpp that the program needs; `dest` appears only when complete."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dest.parent) as partial:
        with tarfile.open(archive) as tar:
            for member in tar:
                inner = member.name.removeprefix(root)
                if member.isfile() and inner != member.name and inner.startswith(NEEDED):
                    target = Path(partial, inner)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with tar.extractfile(member) as source, target.open("wb") as out:  # type: ignore[union-attr]
                        shutil.copyfileobj(source, out)
        os.replace(partial, dest)
        os.mkdir(partial)  # for the context manager to remove


def theirs(program: Path, args: argparse.Namespace, prompt: str, n_prompt: int, length: int) -> Run:
    """Run llama.cpp's program once; SystemExit if it fails or tokenises the prompt differently."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(prompt + "\n")  # the program strips one newline
        file.flush()
        command = [str(program), "-m", str(resolve(args.verifier)), "-md", str(resolve(args.draft)), "-f", file.name]
        command += ["--no-escape", "-n", str(args.tokens), "-c", str(args.n_ctx), "--temp", "0"]
        command += ["-t", str(args.threads), "-td", str(args.threads), "--fit", "off", "-ngl", "all", "-ngld", "all"]
        command += ["--spec-type", "draft-simple", "--spec-draft-n-max", str(length), "--spec-draft-n-min", "0"]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    output = run.stdout + run.stderr
    encoded, decoded = ENCODED.search(output), DECODED.search(output)
    if run.returncode != 0 or encoded is None or decoded is None:
        raise SystemExit(f"{' '.join(command)}\n{output[-3000:]}")
    if int(encoded[1]) != n_prompt:
        raise SystemExit(f"llama.cpp finds {encoded[1]} tokens in a prompt of {n_prompt}: {prompt!r}")
    drafted, accepted = (int(re.search(rf"{name}\s*= (\d+)", output)[1]) for name in ("n_drafted", "n_accept"))  # type: ignore[index]
    return Run(int(decoded[1]) / float(decoded[2]), drafted, accepted, run.stdout)


def ours(engine: Engine, prompt: list[int], tokens: int) -> Run | None:
    """Run the engine once, from empty caches; None for an answer of one token."""
    engine.reset()
    emitted = [token for step in engine.generate(prompt, max_tokens=tokens) for token in step.tokens]
    stats = engine.stats
    if stats.tokens_per_second is None:
        return None
    text = engine.verifier.model.detokenize(emitted)
    return Run(stats.tokens_per_second, stats.drafted, stats.accepted, text, stats.overhead_seconds / stats.seconds)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=[3, 7, 15])
    parser.add_argument("--prompts", type=int, default=6, help="number of tasks, evenly chosen")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=Path, help="an existing llama-speculative-simple (default: build one)")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)

    program = args.program or build()
    if args.build_only:
        print(program)
        return 0
    chosen = tasks(args.prompts)
    configs = [f"llama.cpp, {n}" for n in args.lengths] + [f"sd, {n}" for n in args.lengths] + ["sd, automatic"]
    rows: dict[str, list[Run]] = defaultdict(list)
    with (
        closing(Model(resolve(args.verifier))) as model,
        closing(Model(resolve(args.draft))) as draft,
        closing(Verifier(model, n_ctx=args.n_ctx, n_threads=args.threads)) as verifier,
        closing(ModelDrafter(draft, model, n_ctx=args.n_ctx, n_threads=args.threads)) as drafter,
    ):
        form = ChatFormat(model)
        costs = measure(verifier, [drafter])
        engines = {f"sd, {n}": Engine(verifier, drafter, Policy(Mode.SD, n)) for n in args.lengths}
        engines["sd, automatic"] = Engine(verifier, drafter, Policy(Mode.SD), costs)
        for number, task in enumerate(chosen):
            message: Message = {"role": "user", "content": task["prompt"]}
            prompt, text = form.tokens([message]), form.text([message])
            if model.adds_bos:  # the program adds it, too
                text = text.removeprefix(model.token_text(model.bos).decode("utf-8"))
            for config in configs[number % len(configs) :] + configs[: number % len(configs)]:
                length = int(config.split(", ")[1]) if config.startswith("llama") else 0
                run = (
                    theirs(program, args, text, len(prompt), length)
                    if length
                    else ours(engines[config], prompt, args.tokens)
                )
                if run is not None:
                    rows[config].append(run)
                    print(
                        f"{task['kind']}, {config}: {run.tokens_per_second:.1f} tokens/s", file=sys.stderr, flush=True
                    )
    report = {config: summarise(rows, config) for config in configs}
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(args, report)
    return 0


def summarise(rows: dict[str, list[Run]], config: str) -> dict[str, Any]:
    """Return medians over prompts, also of each prompt's ratios to llama.cpp at its best and at the same length."""
    speeds = {name: [run.tokens_per_second for run in runs] for name, runs in rows.items()}
    best = max((name for name in speeds if name.startswith("llama")), key=lambda name: statistics.median(speeds[name]))
    same = "llama.cpp, " + config.split(", ")[1]

    def ratio(other: str) -> float | None:
        if other not in speeds:
            return None
        return statistics.median(speed / base for speed, base in zip(speeds[config], speeds[other], strict=True))

    drafted = sum(run.drafted for run in rows[config])
    result = {
        "tokens_per_second": statistics.median(speeds[config]),
        "acceptance": sum(run.accepted for run in rows[config]) / drafted if drafted else None,
        "ratio_to_best": ratio(best),
        "ratio_to_same_length": ratio(same),
        "best": best,
    }
    if config.startswith("sd"):
        pairs = zip(rows[config], rows[best], strict=True)
        result["same_text"] = sum(run.text in other.text for run, other in pairs)
        result["overhead"] = statistics.median(run.overhead or 0.0 for run in rows[config])
    return result


def print_table(args: argparse.Namespace, report: dict[str, Any]) -> None:
    print(
        f"{args.verifier}, draft {args.draft}, {args.threads} threads, {args.prompts} prompts of {args.tokens} tokens, "
        "greedy, medians"
    )
    best = next(iter(report.values()))["best"]
    print(
        f"| drafts of | tokens/s | accepted | x {best} | x llama.cpp at this length | same text "
        "| outside llama_decode |"
    )
    print("|---|---|---|---|---|---|---|")
    for config, row in report.items():
        accepted = f"{row['acceptance']:.0%}" if row["acceptance"] is not None else ""
        overhead = f"{row['overhead']:.1%}" if "overhead" in row else ""
        same = f"{row['ratio_to_same_length']:.2f}" if row["ratio_to_same_length"] is not None else ""
        print(
            f"| {config} | {row['tokens_per_second']:.1f} | {accepted} | {row['ratio_to_best']:.2f} "
            f"| {same} | {row.get('same_text', '')} | {overhead} |"
        )


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Prepare the llama.cpp source that this project builds: fetch, verify, unpack, patch.

    llama_cpp.py prepare DEST            prepare the pinned source, as CMake does; safe to repeat
    llama_cpp.py prepare DEST --source D prepare a copy of the llama.cpp checkout D, which is not modified
    llama_cpp.py regenerate DEST         write the difference between DEST and the pristine source to the patches

The patched source goes to DEST/llama.cpp, the Python side of llama-cpp-python to DEST/llama_cpp. Only the standard
library and pip are needed.
"""

from __future__ import annotations

import argparse
import difflib
import filecmp
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
COMMIT = "0c1e57098"  # the llama.cpp commit that llama-cpp-python 0.3.36 vendors
SDIST = f"llama_cpp_python-{VERSION}.tar.gz"
HERE = Path(__file__).resolve().parent
PATCHES = (HERE / "layer-skip.patch", HERE / "rpc-lost-server.patch")

# What a build of llama, ggml and the RPC server reads; the rest (other tools, tests, models) is not unpacked.
NEEDED = ("CMakeLists.txt", "LICENSE", "cmake/", "ggml/", "include/", "licenses/", "src/", "tools/rpc/", "vendor/")


class SourceError(Exception):
    """The source cannot be prepared; the message says why and what to do."""


def cache_folder() -> Path:
    """Return this project's cache folder: `VIA_SD_HOME`, or the platform's convention."""
    if override := os.environ.get("VIA_SD_HOME"):
        return Path(override).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "via-sd-local"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "via-sd-local" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "via-sd-local"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch() -> Path:
    """Return the verified source distribution in the cache; pip downloads it first if it is missing."""
    archive = cache_folder() / "sources" / SDIST
    if archive.is_file() and sha256_of(archive) == SHA256:
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        command += ["--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"]
        print(f"downloading {SDIST} (77 MB) with pip", file=sys.stderr)
        # pip builds the metadata of a source distribution, which must not compile anything
        run = subprocess.run(command, env={**os.environ, "CMAKE_ARGS": "-DLLAMA_BUILD=OFF"}, check=False)
        fetched = Path(folder) / SDIST
        if run.returncode != 0 or not fetched.is_file():
            raise SourceError(
                f"pip could not download {SDIST}; check the network, or put the file into {archive.parent} by hand"
            )
        if (digest := sha256_of(fetched)) != SHA256:
            raise SourceError(f"{SDIST} has SHA-256 {digest}, expected {SHA256}; the download is not the pinned one")
        os.replace(fetched, archive)
    return archive


def unpack(archive: Path, dest: Path) -> None:
    """Unpack the needed files into `dest`, which is replaced only when all are there."""
    partial = dest.with_name(dest.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    root = f"llama_cpp_python-{VERSION}/"
    vendored = root + "vendor/llama.cpp/"
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name
            if name.startswith(vendored):
                inner = name[len(vendored) :]
                if not inner.startswith(NEEDED):
                    continue
                target = partial / "llama.cpp" / inner
            elif name.startswith(root + "llama_cpp/") or name == root + "LICENSE.md":
                target = partial / name[len(root) :]
            else:
                continue
            if member.isfile():
                target.parent.mkdir(parents=True, exist_ok=True)
                with tar.extractfile(member) as source, target.open("wb") as out:  # type: ignore[union-attr]
                    shutil.copyfileobj(source, out)
                os.utime(target, (member.mtime, member.mtime))
    shutil.rmtree(dest, ignore_errors=True)
    partial.rename(dest)


def patch_text() -> str:
    """Return all patches, concatenated."""
    return "".join(patch.read_text(encoding="utf-8") for patch in PATCHES)


def patch_of(name: str) -> Path:
    """Return the patch that changes this file of llama.cpp, or the first patch if none does yet."""
    for patch in PATCHES:
        if patch.is_file() and f"+++ b/{name}" in patch.read_text(encoding="utf-8").replace("\t", "\n").splitlines():
            return patch
    return PATCHES[0]


def hunks(patch: str) -> dict[str, list[tuple[list[str], list[str]]]]:
    """Parse a unified diff into file name → [(lines before, lines after)]; SourceError if it removes a line."""
    files: dict[str, list[tuple[list[str], list[str]]]] = {}
    current: list[tuple[list[str], list[str]]] = []
    name = ""
    for line in patch.splitlines():
        if line.startswith("+++ b/"):
            name = line[len("+++ b/") :].split("\t")[0]
            current = files.setdefault(name, [])
        elif line.startswith("@@"):
            current.append(([], []))
        elif line.startswith("--- a/"):
            continue
        elif current and line[:1] in (" ", ""):
            current[-1][0].append(line[1:])
            current[-1][1].append(line[1:])
        elif current and line.startswith("+"):
            current[-1][1].append(line[1:])
        elif current and line.startswith("-"):
            raise SourceError(f"{patch_of(name).name} removes a line ({line!r}); it must only insert")
    return files


def positions(lines: list[str], block: list[str]) -> list[int]:
    """Return every index at which `block` occurs in `lines`."""
    return [i for i in range(len(lines) - len(block) + 1) if lines[i : i + len(block)] == block]


def patched(root: Path, patch: str, replaced: str = "") -> dict[str, str]:
    """Return file name → patched text for the files under `root`, which are not modified.

    `replaced` is the patch that the files have now, which is reverted first. Every hunk must match exactly once; hunks
    that are already in place are left alone.
    """
    texts: dict[str, str] = {}
    for name, file_hunks in hunks(replaced).items():
        texts[name] = rewritten(read(root, name), name, [(new, old) for old, new in file_hunks])
    for name, file_hunks in hunks(patch).items():
        texts[name] = rewritten(texts.get(name) or read(root, name), name, file_hunks)
    return texts


def read(root: Path, name: str) -> str:
    """Return the text of a source file; SourceError if it is missing."""
    path = root / name
    if not path.is_file():
        raise SourceError(f"{root} has no {name}: it is not llama.cpp {COMMIT}, the version that the patch is for")
    return path.read_text(encoding="utf-8")


def rewritten(text: str, name: str, changes: list[tuple[list[str], list[str]]]) -> str:
    """Return the text of a file with each (old lines, new lines) replaced; SourceError unless each matches once."""
    lines = text.split("\n")
    for number, (old, new) in enumerate(changes, 1):
        matches = positions(lines, old)
        # a hunk only inserts: where its longer side matches, a match of the shorter one is a coincidence
        if positions(lines, new) and (len(new) > len(old) or not matches):
            continue
        if len(matches) != 1:
            raise SourceError(
                f"hunk {number} of {patch_of(name).name} matches {len(matches)} places of {name}: the source is not "
                f"llama.cpp {COMMIT} (llama-cpp-python {VERSION}); use that version, or regenerate the patch for yours "
                "(patches/README.md)"
            )
        lines[matches[0] : matches[0] + len(old)] = new
    return "\n".join(lines)


def write_changed(root: Path, texts: dict[str, str]) -> int:
    """Write only the texts that differ from the files under `root`, for incremental builds; return their number."""
    count = 0
    for name, text in texts.items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            count += 1
    return count


def checkout_files(source: Path) -> dict[str, Path]:
    """Return name → path of a checkout's needed files; SourceError if it is no llama.cpp checkout."""
    if not (source / "src" / "llama-graph.cpp").is_file():
        raise SourceError(f"{source} is not a llama.cpp checkout: it has no src/llama-graph.cpp")
    files: dict[str, Path] = {}
    for entry in NEEDED:
        for path in sorted((source / entry).rglob("*")) if entry.endswith("/") else [source / entry]:
            if path.is_file():
                files[path.relative_to(source).as_posix()] = path
    return files


def mirror(files: dict[str, Path], dest: Path, texts: dict[str, str]) -> None:
    """Make `dest` hold exactly these files, copying those that differ; those in `texts` are left to `write_changed`."""
    for name, path in files.items():
        target = dest / name
        if name not in texts and not (target.is_file() and filecmp.cmp(path, target, shallow=False)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for path in dest.rglob("*"):
        if path.is_file() and path.relative_to(dest).as_posix() not in files:
            path.unlink()


def prepare(dest: Path, source: Path | None) -> None:
    """Bring `dest` to the pinned source, or the checkout `source`, with the current patches, writing few files.

    If that fails with SourceError, `dest` is as before.
    """
    patch = patch_text()
    texts: dict[str, str] = {}
    files: dict[str, Path] = {}
    if source:
        files = checkout_files(source)
        texts = patched(source, patch)
    origin = f"checkout {source}" if source else f"{SHA256} {' '.join(NEEDED)}"
    record, marker, tree = dest / "applied.patch", dest / "origin", dest / "llama.cpp"
    if not marker.is_file() or marker.read_text(encoding="utf-8") != origin:
        unpack(fetch(), dest)
    if source:
        mirror(files, tree, texts)
    else:
        texts = patched(tree, patch, record.read_text(encoding="utf-8") if record.is_file() else "")
    count = write_changed(tree, texts)
    record.write_text(patch, encoding="utf-8")
    marker.write_text(origin, encoding="utf-8")
    print(f"llama.cpp {COMMIT}: patch in place, {count} files written")


def regenerate(dest: Path) -> None:
    """Write the patches from the difference between `dest`/llama.cpp and the pristine source.

    A file's changes go to the patch that already changes it, or to the first patch. Raises SourceError if a line is
    removed.
    """
    texts = dict.fromkeys(PATCHES, "")
    with tempfile.TemporaryDirectory() as folder:
        pristine = Path(folder) / "source"
        unpack(fetch(), pristine)
        for path in sorted((dest / "llama.cpp").rglob("*")):
            name = path.relative_to(dest / "llama.cpp").as_posix()
            old = pristine / "llama.cpp" / name
            if not path.is_file() or not old.is_file() or filecmp.cmp(path, old, shallow=False):
                continue
            lines = [p.read_text(encoding="utf-8").splitlines(keepends=True) for p in (old, path)]
            texts[patch_of(name)] += "".join(difflib.unified_diff(lines[0], lines[1], f"a/{name}", f"b/{name}", n=4))
    if not any(texts.values()):
        raise SourceError(f"{dest / 'llama.cpp'} equals the pristine source; there is nothing to write")
    changes = {patch: hunks(text) for patch, text in texts.items()}  # raises on removals
    for patch, text in texts.items():
        patch.write_text(text, encoding="utf-8", newline="\n")
        inserted = sum(len(new) - len(old) for file in changes[patch].values() for old, new in file)
        print(f"wrote {patch.name}: {inserted} lines inserted")
    (dest / "applied.patch").write_text("".join(texts.values()), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare", help="bring DEST to the source with the current patches")
    preparing.add_argument("dest", type=Path)
    preparing.add_argument("--source", type=Path, help="a llama.cpp checkout to build instead of the pinned source")
    regenerating = commands.add_parser("regenerate", help="write the patches from the edited source in DEST")
    regenerating.add_argument("dest", type=Path)
    args = parser.parse_args(argv)
    try:
        if args.command == "prepare":
            prepare(args.dest.resolve(), args.source.resolve() if args.source else None)
        else:
            regenerate(args.dest.resolve())
    except (SourceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

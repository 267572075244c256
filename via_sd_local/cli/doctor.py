"""`via-sd-local doctor`: report what is installed, how it was built, and what this machine can do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .installation import examine
from .output import add_json, print_result
from .subcommands import Commands

DESCRIPTION = "Report versions, the library and its patch, CPU features, AMX, devices, and the models on this machine."


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("doctor", help="check the installation", description=DESCRIPTION)
    add_json(parser)
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Print the report; the exit status is 1 if there are problems."""
    report = examine()
    print_result(args, report, lines(report), indent=2)
    for problem in report["problems"]:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if report["problems"] else 0


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report of `examine`, in two columns."""
    rows = list(_rows(report))
    width = max(len(name) for name, _ in rows)
    return (f"{name:<{width}}  {text}" for name, text in rows)


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "via_sd_local", f"{report['version']}, Python {report['python']}, {report['platform']}"
    yield "packages", ", ".join(f"{name} {version or 'missing'}" for name, version in report["packages"].items())
    if "build" not in report:
        return
    build = report["build"]
    source = build["llama_cpp_checkout"] or f"llama-cpp-python {build['llama_cpp_python']}"
    yield "library", report["library"]
    yield "llama.cpp", f"{build['llama_cpp_commit']} ({source}), {build['compiler']}, {build['build_type']}"
    yield "layer masks", f"yes, patch {build['patch_sha256'][:12]}" if report["patched"] else "MISSING"
    yield "backends", ", ".join(build["backends"])
    for device in report["devices"]:
        yield "device", device_line(device)
    yield "CPU", f"{report['cpus']} cores; in use: {', '.join(report['cpu_features'])}"
    yield "AMX", build["amx"]
    for model in report["models"]:
        yield "model", f"{model['name']}: {model['path']}"
    if not report["models"]:
        yield "models", "none yet; `via-sd-local models pull smollm2-135m` fetches one"


def device_line(device: Mapping[str, Any]) -> str:
    """Return one line about a device of the report; its memory is left out where it is unknown."""
    memory = f", {device['free'] / 2**30:.1f} of {device['total'] / 2**30:.1f} GiB free" if device["total"] else ""
    return f"{device['name']} ({device['kind']}): {device['description']}{memory}"

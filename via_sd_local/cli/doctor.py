"""`via-sd-local doctor`: what is installed, how it was built, what this machine can do."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

from .._version import version


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    text = "Report versions, the library and its patch, CPU features, AMX, and the models that are here."
    parser = commands.add_parser("doctor", help="check the installation", description=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=run)


def examine() -> dict[str, Any]:
    """Everything that doctor reports; `problems` lists what keeps the package from working."""
    report: dict[str, Any] = {
        "version": version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: _version(name) for name in ("numpy", "huggingface-hub", "jinja2", "diskcache")},
        "problems": [],
    }
    try:
        from .. import binding
    except ImportError as error:
        report["problems"].append(str(error))
        return report
    report["build"] = binding.build_info()
    report["library"] = binding._lib._name
    report["patched"] = hasattr(binding._lib, "llama_set_layer_skip")
    report["cpu_features"] = cpu_features(binding.llama.llama_print_system_info().decode())
    report["devices"] = devices()
    report["models"] = models(report["problems"])
    return report


def cpu_features(system_info: str) -> list[str]:
    """The names of the features in use, from llama.cpp's `CPU : SSE3 = 1 | AVX = 1 | …`."""
    names = []
    for item in system_info.replace(":", "|").split("|"):
        name, _, value = item.partition("=")
        if value.strip() not in ("", "0"):
            names.append(name.strip() if value.strip() == "1" else f"{name.strip()}={value.strip()}")
    return names


def devices() -> list[dict[str, Any]]:
    """What ggml can compute on here, with its memory in bytes (0: unknown)."""
    from ..runtime.devices import local_devices

    found = []
    for device in local_devices():
        free, total = device.memory
        facts = {"name": device.name, "kind": device.kind, "backend": device.backend, "description": device.description}
        found.append({**facts, "free": free, "total": total})
    return found


def models(problems: list[str]) -> list[dict[str, Any]]:
    """The catalogue's models that are in the models folder."""
    from ..catalog.inventory import listing
    from ..errors import ViaSdError

    try:
        return [{"name": entry.name, "path": str(entry.path)} for entry in listing() if entry.path is not None]
    except (ViaSdError, OSError) as error:
        problems.append(str(error))
        return []


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def run(args: argparse.Namespace) -> int:
    """Print the report; exit status 1 if there are problems."""
    report = examine()
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(lines(report)))
    for problem in report["problems"]:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if report["problems"] else 0


def device_line(device: dict[str, Any]) -> str:
    """One device for people."""
    memory = f", {device['free'] / 2**30:.1f} of {device['total'] / 2**30:.1f} GiB free" if device["total"] else ""
    return f"{device['name']} ({device['kind']}): {device['description']}{memory}"


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    rows = [
        ("via_sd_local", f"{report['version']}, Python {report['python']}, {report['platform']}"),
        ("packages", ", ".join(f"{name} {version or 'missing'}" for name, version in report["packages"].items())),
    ]
    if "build" in report:
        build = report["build"]
        source = build["llama_cpp_checkout"] or f"llama-cpp-python {build['llama_cpp_python']}"
        features = ", ".join(report["cpu_features"])
        rows += [
            ("library", report["library"]),
            ("llama.cpp", f"{build['llama_cpp_commit']} ({source}), {build['compiler']}, {build['build_type']}"),
            ("layer masks", "yes, patch " + build["patch_sha256"][:12] if report["patched"] else "MISSING"),
            ("backends", ", ".join(build["backends"])),
            *(("device", device_line(device)) for device in report["devices"]),
            ("CPU", f"{report['cpus']} cores; in use: {features}"),
            ("AMX", build["amx"]),
            *(("model", f"{model['name']}: {model['path']}") for model in report["models"]),
        ]
        if not report["models"]:
            rows.append(("models", "none yet; `via-sd-local models pull smollm2-135m` fetches one"))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]

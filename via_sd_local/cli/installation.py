"""What is installed: versions, the compiled library, devices and models, as plain values for JSON."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from .._version import version


def examine() -> dict[str, Any]:
    """Return everything that `doctor` reports; `problems` lists what keeps the package from working.

    Without a usable library, the entries from `build` on are missing.
    """
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
    """Return the CPU features in use, from the text `CPU : SSE3 = 1 | AVX = 1 | …` of llama.cpp."""
    names = []
    for item in system_info.replace(":", "|").split("|"):
        name, _, value = item.partition("=")
        if value.strip() not in ("", "0"):
            names.append(name.strip() if value.strip() == "1" else f"{name.strip()}={value.strip()}")
    return names


def devices() -> list[dict[str, Any]]:
    """Return the devices of ggml on this machine, with their free and total memory in bytes (0 if unknown)."""
    from ..runtime.devices import local_devices

    reports = []
    for device in local_devices():
        free, total = device.memory
        facts = {"name": device.name, "kind": device.kind, "backend": device.backend, "description": device.description}
        reports.append({**facts, "free": free, "total": total})
    return reports


def models(problems: list[str]) -> list[dict[str, Any]]:
    """Return the models in the models folder; append to `problems` if it cannot be read."""
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

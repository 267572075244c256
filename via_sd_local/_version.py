"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return the version of the installed distribution, or `0+unknown` in a checkout that is not installed."""
    try:
        return metadata.version("via-sd-local")
    except metadata.PackageNotFoundError:
        return "0+unknown"

"""Print what the tests need besides the package itself: the dependencies and the extra `test` of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["test"], sep="\n")

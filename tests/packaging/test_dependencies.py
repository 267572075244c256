"""What pip is told to install is what the code was made for."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_scikit_optimize_is_one_that_works_with_current_numpy() -> None:
    """Fault F3: 0.9 used names that numpy has dropped."""
    (least,) = re.findall(r'"scikit-optimize>=(\d+)\.(\d+)"', PROJECT.read_text(encoding="utf-8"))
    assert tuple(map(int, least)) >= (0, 10)
    installed = metadata.version("scikit-optimize").split(".")
    assert tuple(map(int, installed[:2])) >= (0, 10)
    from skopt.learning import GaussianProcessRegressor  # what fails to import there

    process = GaussianProcessRegressor().fit([[0.0], [1.0]], [0.0, 1.0])
    assert process.predict([[0.0]])[0] < process.predict([[1.0]])[0]

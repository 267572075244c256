"""Rejects models that do not fit into main memory before they are loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..errors import ModelError
from .available_memory import available_memory
from .footprint import Footprint, LoadPlan, estimate


def check_memory(plans: Sequence[LoadPlan], *, loaded: Sequence[LoadPlan] = ()) -> None:
    """Raise ModelError, with the numbers, if `plans` together need more main memory than is available.

    `loaded` lists models that are already in memory. Files that cannot be read are skipped; loading them will fail.
    """
    needs = [*_estimates(plans), *(footprint.once_loaded() for footprint in _estimates(loaded))]
    if not needs:
        return
    available = available_memory()
    # one copy in memory serves a file that is mapped twice, and a model that is loaded twice in the same way
    by_weight = sorted(needs, key=lambda need: need.weights)
    weights = {(need.path.resolve(), None if need.mapped else need): need.weights for need in by_weight}
    total = sum(weights.values()) + sum(need.cache + need.buffers for need in needs)
    if total > available:
        raise ModelError(_message(needs, total, available))


def _estimates(plans: Sequence[LoadPlan]) -> list[Footprint]:
    footprints = []
    for plan in plans:
        with contextlib.suppress(ModelError):
            if plan.path.is_file():
                footprints.append(estimate(plan))
    return footprints


def _message(needs: Sequence[Footprint], total: int, available: int) -> str:
    details = "; ".join(
        f"{need.path.name}: weights {_gib(need.weights)}"
        + (f", cache {_gib(need.cache)} for {need.n_ctx} tokens, buffers {_gib(need.buffers)}" if need.n_ctx else "")
        for need in needs
    )
    return (
        f"loading needs about {_gib(total)} of memory, and {_gib(available)} are available ({details}); use smaller "
        "models, a shorter context (n_ctx) or a quantised cache, or load anyway with --ignore-memory "
        "(check_memory=False in Python)"
    )


def _gib(n: int) -> str:
    return f"{n / 2**30:.2f} GiB"

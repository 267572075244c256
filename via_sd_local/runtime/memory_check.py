"""Refuses to load what does not fit into main memory, before the machine has to find out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..errors import ModelError
from .available_memory import available_memory
from .footprint import Footprint, LoadPlan, estimate


def check_memory(plans: Sequence[LoadPlan], *, loaded: Sequence[LoadPlan] = ()) -> None:
    """ModelError, with the numbers, if these models together take more main memory than is available.

    `loaded` are in memory already. Files that cannot be read are left to whoever loads them.
    """
    needs = [*_estimates(plans), *(one.once_loaded() for one in _estimates(loaded))]
    if not needs:
        return
    available = available_memory()
    # once are in memory: a file that is mapped twice, and a model that drafts for itself (loaded alike)
    by_weight = sorted(needs, key=lambda need: need.weights)
    weights = {(need.path.resolve(), None if need.mapped else need): need.weights for need in by_weight}
    total = sum(weights.values()) + sum(need.cache + need.buffers for need in needs)
    if total > available:
        raise ModelError(_refusal(needs, total, available))


def _estimates(plans: Sequence[LoadPlan]) -> list[Footprint]:
    found = []
    for plan in plans:
        with contextlib.suppress(ModelError):
            if plan.path.is_file():
                found.append(estimate(plan))
    return found


def _refusal(needs: Sequence[Footprint], total: int, available: int) -> str:
    each = "; ".join(
        f"{need.path.name}: weights {_gib(need.weights)}"
        + (f", cache {_gib(need.cache)} for {need.n_ctx} tokens, buffers {_gib(need.buffers)}" if need.n_ctx else "")
        for need in needs
    )
    return (
        f"loading needs about {_gib(total)} of memory, and {_gib(available)} are available ({each}); take smaller "
        "models, a shorter context (n_ctx) or a quantised cache, or load all the same with --ignore-memory "
        "(check_memory=False in Python)"
    )


def _gib(n: int) -> str:
    return f"{n / 2**30:.2f} GiB"

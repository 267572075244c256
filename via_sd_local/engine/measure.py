"""Times passes of a pair of models by kind and number of tokens, in a few seconds, each size several times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..tiers.cache import Recorder, ignore
from ..tiers.drafter import Drafter, Hints
from ..tiers.model_drafter import ModelDrafter
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Verifier
from .costs import KEPT, Costs

SECONDS = 2.5  # for all measurements; a pass that is running then is completed
SIZES = ((1, 4), (2, 8), (3, 5, 6, 16), (7, 12, 32))  # the most telling first; those of a group are timed by turns
_SAMPLES = 3  # passes of each size
_TOLERATED = 0.3  # range of a size's passes relative to their median; a wider one is timed again if time is left


def measure(
    verifier: Verifier, drafters: Sequence[Drafter], seconds: float = SECONDS, samples: int = _SAMPLES
) -> Costs:
    """Time passes of the drafters, then of the verifier's tiers by number of tokens, for about `seconds`.

    Each size is timed `samples` times, by turns with others, so that a core that stalls for a moment does not spoil
    them all; sizes whose passes differ much are timed more often while time is left. A size of which the time permits
    one pass only, where there should be several, is left out: running answers will tell. Every kind of pass is measured
    with one token at least. The verifier's cache is empty afterwards.
    """
    costs = Costs()
    deadline = time.perf_counter() + seconds
    for drafter in drafters:
        if isinstance(drafter, ModelDrafter):
            _time_draft_model(drafter, costs.observe)
        elif isinstance(drafter, SelfDrafter):
            _time_self_drafter(drafter, verifier, costs)
    _time_passes(verifier, 1, ignore)  # warm up
    _time_passes(verifier, 1, costs.observe)
    for size in _plan(verifier.context.n_ctx, samples):
        if time.perf_counter() > deadline:
            break
        _time_passes(verifier, size, costs.observe)
    while samples > 1 and time.perf_counter() < deadline and (uncertain := _least_certain(costs)) is not None:
        _time_passes(verifier, uncertain, costs.observe)
    verifier.reset()
    return costs.without_single_passes() if samples > 1 else costs


def _plan(n_ctx: int, samples: int) -> list[int]:
    """Return the sizes to time one after the other, each as often as `samples` says; size 1 was timed once already."""
    sizes = [size for group in SIZES for _ in range(samples) for size in group if size < n_ctx]
    sizes.remove(1)
    return sizes


def _least_certain(costs: Costs) -> int | None:
    """Return the size whose full passes differ most from each other; None if all of them are certain enough."""
    uncertain = {
        int(size): cost.spread
        for size, cost in costs.observed().get("full", {}).items()
        if cost.samples < KEPT and cost.spread > _TOLERATED
    }
    return max(uncertain, key=lambda size: uncertain[size], default=None)


def _time_draft_model(drafter: ModelDrafter, recorder: Recorder) -> None:
    """Time passes of one and of two tokens; the pass that takes in the verifier's token has two."""
    drafter.propose([0], 2)  # warm up
    for length in (1, 3, 5):
        drafter.propose([0] * length, 1)
        drafter.propose([0] * (length + 2), 3, Hints(unchanged=length, recorder=recorder))


def _time_self_drafter(drafter: SelfDrafter, verifier: Verifier, costs: Costs) -> None:
    """Time passes of one token, and enter them as passes of two tokens, too.

    This drafter never runs a pass of two tokens, and a cost in proportion would count double.
    """

    def record(kind: str, _tokens: int, seconds: float) -> None:
        for size in (1, 2):
            costs.observe(kind, size, seconds)

    verifier.reset()
    verifier.full([0], 1)
    drafter.propose([0, 0], 1)  # warm up
    drafter.propose([0, 0], 5, Hints(recorder=record))


def _time_passes(verifier: Verifier, size: int, recorder: Recorder) -> None:
    """Time one full pass of `size` tokens; with a mask, also a slim pass and the full pass that resumes from it."""
    tokens = [0] * size
    verifier.reset()
    verifier.full(tokens, size, recorder=recorder)
    if verifier.has_slim_tier:
        verifier.reset()
        verifier.slim(tokens, recorder=recorder)
        if verifier.can_resume:
            verifier.full([], size, recorder=recorder)

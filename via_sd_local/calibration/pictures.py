"""Pictures of a calibration, as PNG files; needs matplotlib (the extra `pictures`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..files import replacing
from ..mask import LayerMask
from ..profiles.profile import Profile

LEAST = 1e-4  # costs below are drawn as this
COSTS = {  # what the objectives of `dimr.objective` count
    "kl": "KL divergence from the full model, nats per token",
    "relu": "rejection R(q, q'), nats per token",
    "softplus": "rejection R(q, q'), nats per token",
    "agreement": "share of tokens that differ from the full model's",
}
KEPT, SKIPPED, LOSSLESS, TIERED = "#c9d6df", "#d1495b", "#30638e", "#d1495b"


def save_all(profile: Profile, tried: Sequence[tuple[float, float]], path: Path) -> list[Path]:
    """Draw what there is to draw beside the profile at `path`; the files, or OSError. `tried` as in `draw_search`."""
    figures: list[tuple[str, Callable[[Figure], None]]] = []
    if tried:
        figures.append(("search", lambda figure: draw_search(figure, tried, profile)))
    if profile.has_mask:
        figures.append(("mask", lambda figure: draw_mask(figure, profile)))
    if profile.levels:
        figures.append(("frontier", lambda figure: draw_frontier(figure, profile)))
    made = []
    for name, draw in figures:
        figure = Figure(figsize=(8, 1.6) if name == "mask" else (8, 4), layout="constrained")
        draw(figure)
        target = path.with_name(f"{path.stem}.{name}.png")
        with replacing(target, "wb") as file:
            figure.savefig(file, format="png", dpi=100, metadata={"Software": None})
        made.append(target)
    return made


def draw_search(figure: Figure, tried: Sequence[tuple[float, float]], profile: Profile) -> None:
    """Left: the cost of each mask over the share of sublayers that it skips. Right: the lowest so far, in order.

    The cost is the search's objective: how far the slim tier's predictions are from the full model's. `tried` holds
    (skip ratio, cost) in the order in which masks were tried.
    """
    ratios, costs = np.array([ratio for ratio, _ in tried]), np.maximum([cost for _, cost in tried], LEAST)
    left, right = figure.subplots(1, 2)
    cost = COSTS.get(profile.search.objective, profile.search.objective) if profile.search else "distance"
    points = left.scatter(ratios, costs, s=8, c=np.arange(len(tried)), cmap="viridis", linewidths=0)
    figure.colorbar(points, ax=left, label="evaluation", ticks=MaxNLocator(integer=True))
    if profile.search is not None and profile.search.front:
        front = sorted(profile.search.front, key=lambda point: point.skip_ratio)
        ratio_of, cost_of = [p.skip_ratio for p in front], [max(p.cost, LEAST) for p in front]
        left.plot(ratio_of, cost_of, color=SKIPPED, lw=1, label="best masks")
    if profile.has_mask:
        ratio = LayerMask.parse(profile.mask, profile.verifier.n_layer).skip_ratio
        left.axvline(ratio, color="black", lw=0.8, ls=":", label="taken")
    left.set(xlabel="share of sublayers skipped", ylabel=cost, yscale="log")
    left.legend(fontsize=8)
    for low, high in ((0.0, 0.15), (0.15, 0.3), (0.3, 0.45), (0.45, 1.0)):
        inside = (ratios >= low) & (ratios < high)
        if inside.any():
            best = list(accumulate(np.where(inside, costs, np.inf), min))
            right.plot(range(1, len(best) + 1), best, lw=1.2, label=f"{low:g} to {high:g} skipped")
    right.set(xlabel="evaluations", ylabel="the lowest so far", yscale="log")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend(fontsize=8)
    figure.suptitle(f"search for {profile.verifier.file}", fontsize=10)


def draw_mask(figure: Figure, profile: Profile) -> None:
    """Two rows of squares, attention and FFN, one column a layer."""
    mask = LayerMask.parse(profile.mask, profile.verifier.n_layer)
    axes = figure.subplots()
    for row, skipped in enumerate((mask.attn, mask.ffn)):
        colours = [SKIPPED if layer in skipped else KEPT for layer in range(mask.n_layer)]
        axes.bar(range(mask.n_layer), 0.9, bottom=1 - row, width=0.9, color=colours)
    axes.set_yticks([1.45, 0.45], ["attention", "FFN"])
    axes.set_xticks(range(0, mask.n_layer, 5 if mask.n_layer > 12 else 1))
    axes.set(xlabel="layer", xlim=(-0.6, mask.n_layer - 0.4), ylim=(-0.05, 2))
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    handles = [Patch(color=KEPT, label="runs in the slim tier"), Patch(color=SKIPPED, label="skipped")]
    axes.legend(handles=handles, fontsize=8, ncols=2, loc="upper right", bbox_to_anchor=(1, 1.35), frameon=False)
    axes.set_title(f"{profile.verifier.file}: {len(mask)} of {2 * mask.n_layer} sublayers", fontsize=9, loc="left")


def draw_frontier(figure: Figure, profile: Profile) -> None:
    """Predicted speed over the allowed deviation: the lossless modes as lines, `tiered` by rule as steps."""
    axes: Axes = figure.subplots()
    speeds = {"plain": profile.speeds.plain, "sd": profile.speeds.sd, "exact": profile.speeds.exact}
    for (name, speed), style in zip(speeds.items(), (":", "-", "--"), strict=True):
        if speed is not None:
            axes.axhline(speed, color=LOSSLESS, ls=style, lw=1.2, label=f"{name}, lossless")
    rules = sorted({name for level in profile.levels for name in level.rules})
    for rule, marker in zip(rules, "osv^D", strict=False):
        points = [
            (100 * level.max_deviation, level.rules[rule].tokens_per_second)
            for level in profile.levels
            if rule in level.rules and level.rules[rule].tokens_per_second is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, lw=1, alpha=0.8, label=f"tiered, {rule}, lossy")
    axes.set(xlabel="allowed deviation, % of tokens", ylabel="predicted tokens a second")
    axes.set_xticks([100 * level.max_deviation for level in profile.levels])
    axes.set(xlim=(0, 105 * max(level.max_deviation for level in profile.levels)), ylim=(0, None))
    axes.legend(fontsize=8)
    draft = f" with {profile.draft.file}" if profile.draft else ""
    axes.set_title(f"{profile.verifier.file}{draft}", fontsize=9)

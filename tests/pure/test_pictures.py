"""The pictures show what the profile says."""

from __future__ import annotations

import os
from pathlib import Path

import profiles_made
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from via_sd_local.calibration.pictures import COSTS, KEPT, SKIPPED, draw_frontier, draw_mask, draw_search, save_all

TRIED = ((0.1, 0.5), (0.2, 0.9), (0.1, 0.3), (0.2, 1.2))


def test_the_mask_is_a_strip_of_two_rows() -> None:
    figure = Figure()
    draw_mask(figure, profiles_made.make(mask="a1,2,f4"))
    bars = figure.axes[0].patches
    colours = [to_hex(bar.get_facecolor()) for bar in bars]
    assert [i for i, colour in enumerate(colours[:6]) if colour == SKIPPED] == [1, 2]  # attention
    assert [i for i, colour in enumerate(colours[6:]) if colour == SKIPPED] == [2, 4]  # FFN
    assert colours.count(KEPT) == 8
    assert [bar.get_y() for bar in bars] == [1.0] * 6 + [0.0] * 6
    assert figure.axes[0].get_title(loc="left") == "large.gguf: 4 of 12 sublayers"


def test_the_frontier_has_a_line_a_lossless_mode_and_the_levels_of_each_rule() -> None:
    figure = Figure()
    draw_frontier(figure, profiles_made.make())
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert set(lines) == {
        "plain, lossless",
        "sd, lossless",
        "exact, lossless",
        "tiered, joint, lossy",
        "tiered, confidence, lossy",
    }
    assert list(lines["sd, lossless"].get_ydata()) == [30.0, 30.0]
    assert list(lines["tiered, joint, lossy"].get_xdata()) == [2.0, 5.0]
    assert list(lines["tiered, joint, lossy"].get_ydata()) == [28.0, 35.0]


def test_the_search_shows_every_mask_and_the_best_so_far() -> None:
    figure = Figure()
    draw_search(figure, TRIED, profiles_made.make())
    left, right = figure.axes[0], figure.axes[1]
    assert left.collections[0].get_offsets().tolist() == [list(point) for point in TRIED]
    best = {line.get_label(): list(line.get_ydata()) for line in right.get_lines()}
    assert best["0 to 0.15 skipped"] == [0.5, 0.5, 0.3, 0.3]
    assert best["0.15 to 0.3 skipped"][1:] == [0.9, 0.9, 0.9]
    profile = profiles_made.make()
    assert profile.search is not None
    assert left.get_ylabel() == COSTS[profile.search.objective]
    for axis in (right.xaxis, figure.axes[2].yaxis):  # evaluations, also on the scale of the colours
        assert len(axis.get_majorticklocs()) > 1
        assert all(float(tick).is_integer() for tick in axis.get_majorticklocs())


@pytest.mark.parametrize(
    ("changes", "tried", "names"),
    [
        ({}, TRIED, ["search", "mask", "frontier"]),
        ({"search": None}, (), ["mask", "frontier"]),
        ({"mask": "none", "levels": ()}, (), []),
    ],
)
def test_only_what_there_is_gets_a_picture(
    changes: dict[str, object], tried: tuple[tuple[float, float], ...], names: list[str], tmp_path: Path
) -> None:
    made = save_all(profiles_made.make(**changes), tried, tmp_path / "x.json")
    assert [path.name for path in made] == [f"x.{name}.png" for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"x.{name}.png" for name in names)
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 60 * 1024 for path in made)


def test_a_picture_that_fails_leaves_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_all(profiles_made.make(), TRIED, tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []

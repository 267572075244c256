"""Which tokens `/colors` tells apart."""

from __future__ import annotations

import pytest

from via_sd_local.chat.shade import Shade, shade_of, shades_of, shares_of
from via_sd_local.engine.policy import Mode
from via_sd_local.engine.steps import Tier
from via_sd_local.session.text_steps import Piece


@pytest.mark.parametrize(
    ("piece", "shade"),
    [
        (Piece("x", Tier.FULL, drafted=True), Shade.ACCEPTED),
        (Piece("x", Tier.FULL), Shade.FULL),
        (Piece("x", Tier.DRAFT, drafted=True), Shade.DRAFT),
        (Piece("x", Tier.SLIM), Shade.SLIM),
    ],
)
def test_an_accepted_draft_is_told_from_the_full_model_s_own_token(piece: Piece, shade: Shade) -> None:
    assert shade_of(piece) is shade


def test_each_mode_has_the_shades_that_can_occur_in_it() -> None:
    assert shades_of(Mode.PLAIN) == (Shade.FULL,)
    assert shades_of(Mode.SD) == shades_of(Mode.EXACT) == (Shade.ACCEPTED, Shade.FULL)
    assert shades_of(Mode.LENIENT) == (Shade.ACCEPTED, Shade.DRAFT, Shade.FULL)
    assert shades_of(Mode.TIERED) == tuple(Shade)


def test_shares_add_up_also_where_the_mode_has_changed_since() -> None:
    pieces = [Piece("x", Tier.FULL, drafted=True), *[Piece("x", Tier.FULL)] * 3]
    assert shares_of(pieces, Mode.SD) == {Shade.ACCEPTED: 0.25, Shade.FULL: 0.75}
    assert shares_of(pieces, Mode.PLAIN) == {Shade.ACCEPTED: 0.25, Shade.FULL: 0.75}
    assert shares_of(pieces, Mode.TIERED) == {
        Shade.ACCEPTED: 0.25,
        Shade.DRAFT: 0,
        Shade.SLIM: 0,
        Shade.FULL: 0.75,
    }
    assert shares_of([], Mode.SD) == {}

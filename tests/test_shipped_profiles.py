"""The profiles that come with the package can be read, and are of the models that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from via_sd_local.catalog import resolve
from via_sd_local.errors import ModelError
from via_sd_local.fingerprint import Fingerprint
from via_sd_local.profile import LEVELS, load

FOLDER = Path(__file__).parent.parent / "models" / "profiles"
SHIPPED = sorted(FOLDER.glob("*.json"))


def test_there_is_one_of_each_small_model() -> None:
    assert {path.name.split("+")[0].removesuffix(".json") for path in SHIPPED} >= {"smollm2-135m", "gemma-3-270m"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_profile_fits_the_models_of_its_name(path: Path) -> None:
    profile = load(path)
    names = path.stem.split("+")
    assert (len(names) == 2) == (profile.draft is not None)
    for name, theirs in zip(names, (profile.verifier, profile.draft), strict=False):
        try:
            model = resolve(name)
        except ModelError:
            pytest.skip(f"{name} is not here")
        assert theirs is not None
        assert theirs.differences(Fingerprint.of(model)) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_profile_says_what_it_is_based_on(path: Path) -> None:
    profile = load(path)
    assert profile.has_mask
    assert profile.search is not None
    assert profile.search.evaluations > 50
    assert profile.agreement["q'-q"].tokens == profile.texts.held_out_tokens > 500
    if profile.draft is not None:
        assert [level.max_deviation for level in profile.levels] == list(LEVELS)


def test_smollm2_is_too_small_for_a_slim_tier() -> None:
    profile = load(FOLDER / "smollm2-135m+smollm2-135m-q4_0.json")
    assert profile.lossless in ("plain", "sd")
    assert "tiered" not in [level.mode for level in profile.levels]

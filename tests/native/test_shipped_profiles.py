"""The profiles that come with the package can be read, and are of the models that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from via_sd_local.catalog.lookup import resolve
from via_sd_local.errors import ModelError
from via_sd_local.mask import LayerMask
from via_sd_local.profiles.profile import LEVELS, load
from via_sd_local.runtime.fingerprint import Fingerprint

FOLDER = Path(__file__).parents[2] / "models" / "profiles"
SHIPPED = sorted(FOLDER.glob("*.json"))


def test_there_is_one_of_each_small_model_and_of_the_testbed() -> None:
    names = {path.name.split("+")[0].removesuffix(".json") for path in SHIPPED}
    assert names >= {"smollm2-135m", "gemma-3-270m", "testbed-e1536-f4608-k8-c24-s0.08-Q4_0"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_profile_fits_the_models_of_its_name(path: Path) -> None:
    profile = load(path)
    names = path.stem.split("+")
    assert (len(names) == 2) == (profile.draft is not None)
    for name, theirs in zip(names, (profile.verifier, profile.draft), strict=False):
        try:
            model = resolve(f"{name}.gguf" if name.startswith("testbed") else name)
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


def test_on_the_default_testbed_the_slim_tier_pays_and_the_planted_sublayers_were_found() -> None:
    (path,) = FOLDER.glob("testbed-*.json")
    profile = load(path)
    planted = LayerMask.parse(
        "12,14-15,17,19,21-22,24,26,28-29,31,33,35-36,38,40,42-43,45,47,49-50,52", profile.verifier.n_layer
    )
    found = LayerMask.parse(profile.mask, profile.verifier.n_layer)
    assert len(found.attn & planted.attn) + len(found.ffn & planted.ffn) >= 0.9 * len(planted)
    assert profile.agreement["q'-q"].share > 0.9
    assert next(level for level in profile.levels if level.max_deviation == 0.05).mode == "tiered"


def test_smollm2_is_too_small_for_a_slim_tier() -> None:
    profile = load(FOLDER / "smollm2-135m+smollm2-135m-q4_0.json")
    assert profile.lossless in ("plain", "sd")
    assert "tiered" not in [level.mode for level in profile.levels]

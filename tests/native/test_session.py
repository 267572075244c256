"""Other settings for a session that is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny

from via_sd_local.errors import ModelError
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.placement import Placement
from via_sd_local.session.loader import fitted
from via_sd_local.session.request import AUTO, ModelSpec
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup

LLAMA = tiny.spec("llama")
PROMPT = [1, *range(260, 290)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two models of one vocabulary, and one of another."""
    folder = tmp_path_factory.mktemp("session")
    verifier = tiny.write(folder / "verifier.gguf", LLAMA)
    draft = tiny.write(folder / "draft.gguf", LLAMA)
    other = tiny.write(folder / "other.gguf", LLAMA, overrides={"tokenizer.ggml.bos_token_id": 5})
    return [str(path) for path in (verifier, draft, other)]


@pytest.fixture
def session(paths: list[str], keep: Callable[[Any], Any]) -> Callable[..., Session]:
    """`session(mode="sd", …)`: a session with the first model."""
    return lambda **options: keep(Session(settings(paths, **options)))


def settings(paths: list[str], **options: Any) -> Settings:
    return Settings(paths[0], n_ctx=256, threads=1, draft_tokens=3, **options)


def text_of(session: Session) -> list[int]:
    return [token for step in session.engine.generate(PROMPT, max_tokens=12) for token in step.tokens]


def test_each_mode_after_a_switch_is_that_of_a_fresh_session(session: Callable[..., Session], paths: list[str]) -> None:
    switched = session()
    model, verifier = switched.model, switched.engine.verifier
    for options in (
        {"drafter": "lookup"},
        {"draft": paths[1]},
        {"draft": paths[1], "mode": "exact", "mask": "2-3"},
        {"draft": paths[1], "mode": "tiered", "mask": "2-3", "thresholds": "joint:0.01,0.01"},
        {"draft": paths[1], "mode": "tiered", "mask": "1"},
        {"drafter": "self", "draft_mask": "1", "mode": "tiered", "mask": "1"},
        {"drafter": "self", "draft_mask": "1", "mode": "tiered", "mask": "2"},
        {"drafter": "lookup+model", "draft": paths[1]},
        {"draft": paths[0]},
        {},
    ):
        switched.switch(settings(paths, **options))
        fresh = session(**options)
        assert text_of(switched) == text_of(fresh), options
        assert switched.engine.stats.mode == fresh.engine.stats.mode
        assert switched.engine.stats.drafted == fresh.engine.stats.drafted
        assert switched.settings == fresh.settings
        assert switched.model is model
        assert len(switched.models) == len(fresh.models)
        assert switched.model.users == fresh.model.users
    assert switched.engine.verifier is not verifier  # it has another mask by now


def test_the_verifiers_cache_stays(session: Callable[..., Session], paths: list[str]) -> None:
    switched = session(mode="tiered", drafter="lookup", mask="2-3")
    text_of(switched)
    verifier = switched.engine.verifier
    for mode in ("sd", "tiered"):
        switched.switch(settings(paths, mode=mode, drafter="lookup", mask="2-3" if mode == "tiered" else None))
        assert switched.engine.verifier is verifier
        text_of(switched)
        assert switched.engine.stats.reused_tokens == len(PROMPT) - 1


def test_the_same_drafter_is_kept_and_another_is_freed(session: Callable[..., Session], paths: list[str]) -> None:
    switched = session(draft=paths[1], mode="exact", mask="2-3")
    drafter = switched.engine.drafters[0]
    assert isinstance(drafter, ModelDrafter)
    switched.switch(settings(paths, draft=paths[1]))
    assert switched.engine.drafters[0] is drafter
    switched.switch(settings(paths, drafter="lookup"))
    assert isinstance(switched.engine.drafters[0], PromptLookup)
    with pytest.raises(ValueError, match="has been closed"):
        _ = drafter.model.handle


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"draft": "absent.gguf"}, ModelError, "absent.gguf does not exist"),
        ({"draft": 2}, ModelError, "cannot serve the verifier"),
        ({"drafter": "lookup", "mode": "tiered", "mask": "99"}, ValueError, "99"),
        ({"drafter": "lookup", "mode": "tiered", "mask": "1", "thresholds": "x"}, ValueError, "thresholds"),
        ({"n_ctx": 128}, ValueError, "n_ctx is 256 and cannot become 128"),
        ({"threads": 2}, ValueError, "threads is 1 and cannot become 2"),
        ({"verifier": 1}, ValueError, "verifier is .* needs a new start"),
    ],
)
def test_what_cannot_be_switched_to_changes_nothing(
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    session: Callable[..., Session],
    paths: list[str],
) -> None:
    switched = session(draft=paths[1])
    before, models, users = text_of(switched), switched.models, switched.model.users
    options = {
        name: paths[value] if value in (1, 2) and name != "threads" else value for name, value in options.items()
    }
    with pytest.raises(error, match=message):
        switched.switch(replace(settings(paths), **options))
    assert switched.models == models
    assert switched.model.users == users
    assert switched.settings == settings(paths, draft=paths[1])
    assert text_of(switched) == before
    assert switched.engine.stats.drafted > 0


def test_a_switch_ends_the_generation_that_runs(session: Callable[..., Session], paths: list[str]) -> None:
    switched = session()
    running, engine = switched.engine.generate(PROMPT, max_tokens=12), switched.engine
    next(running)
    switched.switch(settings(paths, drafter="lookup"))
    assert list(running) == []
    with pytest.raises(ValueError, match="closed"):
        next(engine.generate(PROMPT))


def test_after_closing_nothing_is_left(paths: list[str]) -> None:
    switched = Session(settings(paths))
    switched.switch(settings(paths, draft=paths[1]))
    switched.close()
    assert switched.model.users == 0
    with pytest.raises(ValueError, match="has been closed"):
        _ = switched.model.handle


def test_resolving_looks_up_each_file_and_the_number_of_layers(tmp_path: Path) -> None:
    verifier = tiny.write(tmp_path / "large.gguf", tiny.spec("llama"))
    draft = tiny.write(tmp_path / "small.gguf", tiny.spec("llama"))
    asked = Settings(str(verifier), draft=str(draft), mode="exact", mask="2-3").resolve()
    assert (asked.verifier, asked.profile) == (verifier, AUTO)
    assert asked.drafters == (ModelSpec(draft, Placement(), None),)
    assert asked.mask == LayerMask.parse("2-3", 6)
    with pytest.raises(ModelError, match=r"absent\.gguf does not exist"):
        Settings(str(verifier), draft=str(tmp_path / "absent.gguf")).resolve()
    with pytest.raises(ModelError, match="there is no profile 'nonesuch'"):
        Settings(str(verifier), draft=str(draft), profile="nonesuch").resolve()


def test_a_mask_is_fitted_to_the_layers_that_llama_cpp_counts() -> None:
    """A header may count layers of multi-token prediction, too, which llama.cpp leaves out."""
    model: Any = SimpleNamespace(n_layer=7)
    assert fitted(LayerMask.parse("1,f6", 8), model) == LayerMask.parse("1,f6", 7)
    with pytest.raises(ValueError, match="layer 7; the model's layers are 0 to 6"):
        fitted(LayerMask.parse("7", 8), model)


def test_what_may_take_seconds_is_told_before_it_is_done(paths: list[str], keep: Callable[[Any], Any]) -> None:
    said: list[str] = []
    session = keep(Session(settings(paths), on_stage=said.append))
    assert said == ["loading verifier.gguf"]
    session.switch(replace(session.settings, draft=paths[1], mode="sd", draft_tokens=None))
    assert said[1:] == ["loading draft.gguf", "measuring how long passes take"]
    session.switch(replace(session.settings, draft=None, drafter="none", mode="plain"))
    assert len(said) == 3

"""Resuming is used where it costs less than a full pass, by measured costs; the text is the same either way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import pytest
import tiny
from fakes import fake_verifier
from generations import PROMPT

from via_sd_local import binding
from via_sd_local.engine.costs import Costs, ResumeChoice
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.pace import Pace
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.runtime.model import Model
from via_sd_local.session import session
from via_sd_local.session.settings import Settings
from via_sd_local.tiers.verifier import Verifier

CHEAP = Costs({"full": {1: 1.0, 32: 1.3}, "resume": {1: 0.6, 32: 0.9}})
DEAR = Costs({"full": {1: 1.0, 32: 1.3}, "resume": {1: 1.6, 32: 1.9}})


def kinds(mode: Mode, costs: Costs | None) -> tuple[list[str], list[int]]:
    """Which passes a generation made, the prompt's and lone tokens' apart, and its text."""
    language = fakes.RandomLanguage(1)
    engine = Engine(fake_verifier(language), fakes.sometimes_right(language), Policy(mode, 3), costs)
    text = [token for step in engine.generate(PROMPT, max_tokens=40) for token in step.tokens]
    return [kind for kind, _, n in fakes.passes(engine.verifier)[1:] if n > 1], text


@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.TIERED])
def test_a_dearer_resume_becomes_a_full_pass_with_the_same_text(mode: Mode) -> None:
    unknown, expected = kinds(mode, None)
    cheap, same = kinds(mode, CHEAP)
    dear, also = kinds(mode, DEAR)
    assert expected == same == also
    assert unknown == cheap
    assert "resume" in cheap
    assert dear == ["full" if kind == "resume" else kind for kind in cheap]


def test_the_dearer_way_is_tried_now_and_then() -> None:
    choice = ResumeChoice(DEAR)
    assert [n for n in range(1, 200) if choice.should_resume(4)] == [64, 128, 192]


def test_the_choice_is_made_by_the_number_of_tokens() -> None:
    """A round trip costs the same for any number of tokens; what resuming saves grows with them."""
    choice = ResumeChoice(Costs({"full": {1: 1.0, 32: 3.0}, "resume": {1: 1.5, 32: 2.0}}))
    assert [choice.should_resume(n) for n in (1, 4, 16, 32)] == [False, False, True, True]


def test_without_both_costs_it_resumes() -> None:
    assert ResumeChoice(Costs()).should_resume(4)
    assert ResumeChoice(Costs({"full": {1: 1.0}})).should_resume(4)


def test_the_plan_counts_the_cheaper_way() -> None:
    def checking(costs: Costs) -> float:
        for n, seconds in ((1, 0.5), (32, 0.7)):
            costs.observe("slim", n, seconds)
        return Pace(costs, routes=("slim", "full"))._verifying("slim", 3, 0, 1.0)

    table = {"full": {1: 1.0, 32: 1.3}}
    by_full = checking(Costs(table))
    assert checking(Costs({**table, "resume": {1: 1.6, 32: 1.9}})) == by_full
    assert checking(Costs({**table, "resume": {1: 0.6, 32: 0.9}})) < by_full
    with pytest.raises(KeyError):
        Costs().confirming(4)


@pytest.mark.parametrize(("devices", "measured"), [(0, False), (1, True)])
def test_on_a_device_costs_are_measured_though_drafts_have_a_fixed_length(
    devices: int, measured: bool, tiny_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnDevices(Model):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.n_devices = devices

    monkeypatch.setattr("via_sd_local.session.loader.Model", OnDevices)
    monkeypatch.setattr(session, "costs_of", lambda *_parts, **_options: DEAR)
    settings = Settings(tiny_file, drafter="lookup", mask="2-3", mode="exact", draft_tokens=3, threads=1)
    with session.Session(settings) as opened:
        assert opened.engine.resume_choice.should_resume(4) != measured


@pytest.fixture
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write(tmp_path_factory.mktemp("m") / "m.gguf", tiny.spec("llama")))


def test_logits_and_layer_inputs_are_read_once_a_pass(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading may wait for a device."""
    tiers = verifier(tiny_model(tiny.spec("llama")), "2-3")
    reads: list[str] = []

    def count(owner: object, name: str) -> None:
        read = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: (reads.append(name), read(*args))[1])

    from via_sd_local.runtime import context

    count(binding.llama, "llama_get_logits")
    count(context, "get_layer_input")
    tiers.full([1, 2, 3], 3)
    assert reads == ["llama_get_logits"]
    tiers.slim([4, 5, 6])
    assert reads[1:] == ["llama_get_logits", "get_layer_input"]
    tiers.full([], 3)
    assert reads[3:] == ["llama_get_logits"]

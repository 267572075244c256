"""How a session uses the costs of passes that earlier ones measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from via_sd_local.engine import kept_costs, measure
from via_sd_local.engine.costs import Costs
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings


@pytest.fixture
def smallest(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf", tiny.spec("llama"))


def test_a_session_forgets_kept_costs_that_its_answers_disproved_and_measures_anew_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest: Path
) -> None:
    calls: list[int] = []

    def stub(*_: object) -> Costs:
        calls.append(1)
        table = Costs()
        table.observe("full", 1, 1.0)
        return table

    monkeypatch.setattr(kept_costs, "_folder", lambda: tmp_path / "costs")
    monkeypatch.setattr(measure, "measure", stub)
    for options, disproved, measured in (
        ({}, False, 1),
        ({}, False, 1),
        ({"remeasure": True}, False, 2),
        ({}, True, 2),
        ({}, False, 3),
    ):
        with Session(Settings(str(smallest), draft=str(smallest), threads=1, **options)) as one:  # type: ignore[arg-type]
            assert one.engine.pace is not None
            one.engine.pace.costs.were_disproved = disproved
        assert len(calls) == measured


def test_a_session_begins_with_what_an_earlier_one_learned(smallest: Path, experience_folder: Path) -> None:
    settings = Settings(str(smallest), draft=str(smallest), threads=1)

    def mean() -> float:
        with Session(settings) as one:
            assert one.engine.pace is not None
            before = one.engine.pace.acceptance["full"].mean
            for _ in range(40):
                one.engine.pace.observe("full", [0.9], 1, 1)
            one.complete("the sea", max_tokens=30, raw=True)
            one.engine.stats.blocks = 30
        return before

    assert mean() == pytest.approx(0.6)
    assert mean() > 0.75
    (file,) = experience_folder.iterdir()
    for broken in ("{", "{}", '{"paces": []}', '{"paces": [{"acceptance": {}}]}'):
        file.write_text(broken)
        assert mean() == pytest.approx(0.6)

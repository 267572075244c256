"""The same seed gives the same text: in every mode, whoever drafts, at any length, streamed or not, however often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dropin
import fakes
import pytest
from dropin import PROMPT as TEXT
from dropin import Make, joined, text_of
from fakes import Language, RandomLanguage
from generations import DRAFTERS, DRAFTING, PROMPT, build, tokens_of

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.mask import LayerMask
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.self_drafter import SelfDrafter

make = dropin.make
tiny_path = dropin.tiny_path

RULE = ConfidenceRule(0.5, 0.5)


def engine_of(language: Language, mode: Mode, kind: str, length: int | None) -> Engine:
    """`self`: the verifier drafts for itself."""
    if kind != "self":
        return build(language, mode, DRAFTERS[kind](language), draft_tokens=length, rule=RULE)
    tiers = fakes.fake_verifier(language)
    return Engine(tiers, SelfDrafter(tiers, LayerMask.parse("1-3", 4)), Policy(mode, length, RULE))


@pytest.mark.parametrize("length", [3, None])
@pytest.mark.parametrize("kind", [*DRAFTERS, "self"])
@pytest.mark.parametrize("mode", DRAFTING)
def test_the_same_seed_gives_the_same_text_with_every_drafter(mode: Mode, kind: str, length: int | None) -> None:
    """On one engine after other texts, too, from which its pace and its budget have learned."""
    language = RandomLanguage(4, agreement=0.8, confidences=[0.4, 0.9])
    used = engine_of(language, mode, kind, length)

    def text(engine: Engine, seed: int) -> list[int]:
        return tokens_of(engine, PROMPT, max_tokens=30, sampling=SamplingParams(temperature=1.0, seed=seed))

    expected = text(used, 1)
    others = [text(used, seed) for seed in (2, 3)]
    assert expected not in others
    assert text(used, 1) == expected
    assert text(engine_of(language, mode, kind, length), 1) == expected
    if mode is not Mode.TIERED and length is None:
        assert text(build(language, Mode.PLAIN), 1) == expected


KINDS: dict[str, dict[str, Any]] = {
    "lookup": {"drafter": "lookup"},
    "model": {"draft_model_path": "MODEL"},
    "self": {"drafter": "self", "draft_mask": "1-4"},
    "lookup+model": {"drafter": "lookup+model", "draft_model_path": "MODEL"},
    "llama_cpp": {"draft_model": lambda ids: ids[:4]},
}
CASES = [("plain", "none"), *((mode.value, kind) for mode in DRAFTING for kind in KINDS)]


@pytest.mark.parametrize(("mode", "kind"), CASES)
def test_the_same_seed_gives_the_same_text_streamed_or_not(make: Make, tiny_path: Path, mode: str, kind: str) -> None:
    options = {name: str(tiny_path) if value == "MODEL" else value for name, value in KINDS.get(kind, {}).items()}
    if mode in ("exact", "tiered"):
        options |= {"mask": "2-3", "thresholds": "confidence:0.1,0.1"}
    # of three letters, so that lookup finds something
    of_three = {"max_tokens": 24, "temperature": 1.0, "grammar": "root ::= [a-c]{24} [a-c]*"}
    llm, other = (make(mode=mode, draft_tokens=None if mode == "plain" else 3, **options) for _ in range(2))

    def whole(seed: int, llm: Any = llm) -> str:
        llm.reset()
        return text_of(llm(TEXT, seed=seed, **of_three))

    def streamed(seed: int, llm: Any = llm) -> str:
        llm.reset()
        return joined(llm(TEXT, seed=seed, stream=True, **of_three))

    calls: dict[str, Callable[[int], str]] = {
        "whole": whole,
        "streamed": streamed,
        "another object": lambda seed: streamed(seed, other),
    }
    expected = whole(1)
    assert len(expected) >= 24
    assert whole(2) != expected
    assert (llm.last_stats["drafted"] > 0) == (mode != "plain")
    assert {name: call(1) for name, call in calls.items()} == dict.fromkeys(calls, expected)

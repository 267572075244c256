"""For the tests of the generation loop: engines on a language without weights, and checked steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fakes
import pytest
from fakes import POISON, Language, fake_verifier

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import JointRule, Rule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.steps import FinishReason, Step, Tier
from via_sd_local.tiers.drafter import Drafter
from via_sd_local.tiers.prompt_lookup import PromptLookup

PROMPT = [1, 2, 3]
JOINT = JointRule(0.5, 0.5)
LOSSLESS = [Mode.SD, Mode.EXACT]
DRAFTING = [Mode.SD, Mode.EXACT, Mode.TIERED]
DRAFTERS: dict[str, Callable[[Language], Drafter | list[Drafter]]] = {
    "oracle": fakes.oracle,
    "always_wrong": fakes.always_wrong,
    "sometimes_right": fakes.sometimes_right,
    "slim_like": fakes.slim_like,
    "of_any_length": fakes.of_any_length,
    "silent": fakes.silent,
    "model": fakes.fake_model_drafter,
    "lookup": lambda _: PromptLookup(min_ngram=1),
    "lookup, then another": lambda language: [PromptLookup(min_ngram=2), fakes.sometimes_right(language)],
    "llama_cpp": fakes.called,
}
any_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


def build(
    language: Language,
    mode: Mode = Mode.SD,
    drafter: Drafter | list[Drafter] | None = None,
    *,
    draft_tokens: int | None = 3,
    rule: Rule = JOINT,
    audit_every: int = 32,
    **verifier: Any,
) -> Engine:
    if mode is not Mode.PLAIN and drafter is None:
        drafter = fakes.oracle(language)
    return Engine(fake_verifier(language, **verifier), drafter, Policy(mode, draft_tokens, rule, audit_every))


def watched(engine: Engine, prompt: Sequence[int], steps: Iterator[Step]) -> Iterator[Step]:
    """The same steps; asserts what holds after each of them."""
    text, ended = list(prompt), False
    for step in steps:
        assert not ended, "a step after the last one"
        assert len(step.tokens) == len(step.tiers)
        assert step.tokens or step.finish_reason, "an empty step in the middle"
        assert not engine.verifier.model.eog.intersection(step.tokens)
        assert POISON not in step.tokens
        text += step.tokens
        ended = step.finish_reason is not None
        stats = engine.stats
        assert (stats.prompt_tokens, stats.completion_tokens) == (len(prompt), len(text) - len(prompt))
        assert 0 <= stats.accepted <= stats.drafted
        if not ended:
            verifier = engine.verifier
            assert verifier.cells == text[:-1]
            unaudited = engine.policy.audit_every if engine.policy.mode.trusts_slim_tier else 0
            assert verifier.n_kv - verifier.n_full <= unaudited
        yield step
    assert ended, "the iterator ended without a reason"


def generate(
    engine: Engine, prompt: Sequence[int] = PROMPT, **options: Any
) -> tuple[list[int], list[Tier], FinishReason | None]:
    steps = list(watched(engine, prompt, engine.generate(prompt, **options)))
    tokens = [token for step in steps for token in step.tokens]
    return tokens, [tier for step in steps for tier in step.tiers], steps[-1].finish_reason


def tokens_of(engine: Engine, prompt: Sequence[int] = PROMPT, **options: Any) -> list[int]:
    return generate(engine, prompt, **options)[0]


COUNT = [n % POISON for n in range(64)]  # as a text: the full tier says n after n tokens
START = COUNT[:3]  # the first block begins after 4 tokens, the fourth from the prefill; it drafts 4, 5, 6
D, S, F = Tier.DRAFT, Tier.SLIM, Tier.FULL


def regions(a: int = 0, b: int = 0, c: int = 0, bonus: int = 0) -> dict[str, int]:
    return {"A": a, "B": b, "C": c, "bonus": bonus}

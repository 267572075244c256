"""llama.cpp's samplers in every mode: the distribution is theirs, and state follows exactly the emitted tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tiny

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.watch import Flow
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.chain import ChainSampler
from via_sd_local.sampling.factory import make_sampler
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.sampler import TemperatureSampler
from via_sd_local.tiers.drafter import Drafter
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup
from via_sd_local.tiers.verifier import Verifier

LLAMA = tiny.spec("llama")
PROMPT = [1, *range(260, 272)]
MODES = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
YES_NO = 'root ::= ("yes" | "no") ("!" | "?")*'


@pytest.fixture
def model(tiny_model: Callable[..., Model]) -> Model:
    return tiny_model(LLAMA)


@pytest.fixture
def sampler(model: Model, keep: Callable[[Any], Any]) -> Callable[..., ChainSampler]:
    return lambda **params: keep(ChainSampler(model, SamplingParams(**params)))


@pytest.fixture
def engine(model: Model, verifier: Callable[..., Verifier], keep: Callable[[Any], Any]) -> Callable[..., Engine]:
    """`engine(mode)` drafts with the model itself; the slim tier decides much in tiered."""

    def make(mode: Mode, drafter: Drafter | None = None, **policy: Any) -> Engine:
        masked = mode.uses_slim_tier
        own = drafter or keep(ModelDrafter(model, model, n_ctx=256, n_threads=1))
        rule = ConfidenceRule(0.2, 0.2)
        return Engine(verifier(model, "3" if masked else ""), own, Policy(mode, **{"rule": rule, **policy}))

    return make


def logits(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2, size=LLAMA.n_vocab).astype(np.float32)


def text(engine: Engine, prompt: list[int] = PROMPT, n: int = 40, **params: Any) -> list[int]:
    processors = params.pop("logits_processors", ())
    steps = engine.generate(prompt, max_tokens=n, sampling=SamplingParams(**params), logits_processors=processors)
    return [token for step in steps for token in step.tokens]


#
# distributions
#


def dense(sampler: ChainSampler, row: np.ndarray) -> np.ndarray:
    found = sampler.distribution(row)
    probabilities = np.zeros(len(row))
    probabilities[found.tokens] = found.probabilities
    assert probabilities.sum() == pytest.approx(1)
    return probabilities


def softmax(row: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    weights = np.exp((row - row.max()).astype(np.float64) / temperature)
    return weights / weights.sum()


def test_top_k_keeps_the_k_best(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    expected = softmax(np.where(row >= np.sort(row)[-5], row, -np.inf), 0.7)
    assert dense(sampler(temperature=0.7, top_k=5), row) == pytest.approx(expected, abs=1e-6)


def test_top_p_keeps_the_smallest_set_of_that_mass(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    order = np.argsort(-row)
    n = int(np.searchsorted(softmax(row)[order].cumsum(), 0.8)) + 1
    kept = np.full_like(row, -np.inf)
    kept[order[:n]] = row[order[:n]]
    assert dense(sampler(temperature=1.3, top_p=0.8), row) == pytest.approx(softmax(kept, 1.3), abs=1e-6)


def test_min_p_is_relative_to_the_best(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    kept = np.where(softmax(row) >= 0.1 * softmax(row).max(), row, -np.inf)
    assert dense(sampler(temperature=1.0, min_p=0.1), row) == pytest.approx(softmax(kept), abs=1e-6)


def test_typical_p_keeps_what_is_near_the_entropy(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    p = softmax(row)
    order = np.argsort(np.abs(-np.log(p) - (-(p * np.log(p)).sum())))
    n = int(np.searchsorted(p[order].cumsum(), 0.5)) + 1
    assert set(np.flatnonzero(dense(sampler(temperature=1.0, typical_p=0.5), row))) == set(order[:n])


def test_a_logit_bias_is_added(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    edited = row.copy()
    edited[7] += 3
    edited[9] = -np.inf
    chain = sampler(temperature=1.0, logit_bias=((7, 3.0), (9, -np.inf)))
    assert chain.processed(row) == pytest.approx(edited)
    assert dense(chain, row) == pytest.approx(softmax(edited), abs=1e-6)


def test_penalties_count_the_accepted_tokens_in_their_window(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    chain = sampler(repeat_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.5, penalty_last_n=3)
    for token in (4, 5, 6, 5):
        chain.accept(token)
    expected = row.copy()
    for token, times in ((5, 2), (6, 1)):
        value = row[token] / 1.5 if row[token] > 0 else row[token] * 1.5
        expected[token] = value - 0.25 * times - 0.5
    assert chain.processed(row) == pytest.approx(expected, abs=1e-5)


def test_a_fork_goes_its_own_way(sampler: Callable[..., ChainSampler]) -> None:
    row = logits()
    chain = sampler(repeat_penalty=2.0)
    chain.accept(4)
    before = chain.processed(row)
    fork = chain.fork()
    fork.accept(5)
    assert np.array_equal(chain.processed(row), before)
    assert fork.processed(row)[5] != before[5]
    assert fork.processed(row)[4] == before[4]
    fork.close()


def test_only_what_needs_llama_cpps_samplers_gets_them(model: Model, keep: Callable[[Any], Any]) -> None:
    assert isinstance(make_sampler(model, SamplingParams(temperature=0.5)), TemperatureSampler)
    assert isinstance(make_sampler(model, SamplingParams(top_k=3)), TemperatureSampler)  # greedy: no difference
    for params in (SamplingParams(temperature=1, top_k=3), SamplingParams(repeat_penalty=1.1)):
        assert isinstance(keep(make_sampler(model, params)), ChainSampler)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"logit_bias": ((320, 1.0),)}, "logit_bias names token 320; the model has tokens 0 to 319"),
        ({"logit_bias": ((1, float("nan")),)}, "logit_bias of token 1 is nan"),
        ({"grammar": "root ::= ("}, "the grammar does not parse"),
        ({"grammar": 'start ::= "a"'}, "the grammar does not parse as GBNF with a rule named root"),
        ({"grammar": ""}, "the grammar does not parse"),
    ],
)
def test_what_the_model_cannot_follow_is_refused_before_generating(
    engine: Callable[..., Engine], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        engine(Mode.SD).generate(PROMPT, sampling=SamplingParams(**params))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", float("nan")),
        ("top_p", 1.1),
        ("min_p", -1),
        ("typical_p", 2),
        ("repeat_penalty", 0),
        ("penalty_last_n", -2),
        ("mirostat_mode", 3),
        ("seed", -1),
        ("presence_penalty", float("inf")),
    ],
)
def test_a_setting_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; it "):
        SamplingParams(**{name: value})  # type: ignore[arg-type]


#
# in every mode
#


@pytest.mark.parametrize("mode", [Mode.SD, Mode.EXACT], ids=lambda mode: mode.value)
@pytest.mark.parametrize("lookup", [False, True], ids=["model", "lookup"])
@pytest.mark.parametrize(
    "params",
    [
        {"repeat_penalty": 1.8},
        {"frequency_penalty": 1.0, "presence_penalty": 0.5, "penalty_last_n": 5},
        {"logit_bias": ((300, 4.0),), "repeat_penalty": 1.2, "penalty_last_n": -1},
    ],
    ids=["repeat", "short window", "bias"],
)
def test_penalties_change_no_lossless_text(
    engine: Callable[..., Engine], mode: Mode, lookup: bool, params: dict[str, Any]
) -> None:
    """Greedy: they see exactly the tokens before the position that they judge, also inside a block."""
    plain = text(engine(Mode.PLAIN), **params)
    assert plain != text(engine(Mode.PLAIN))
    for draft_tokens in (1, 3, 6):
        drafting = engine(mode, PromptLookup(min_ngram=1) if lookup else None, draft_tokens=draft_tokens)
        assert text(drafting, **params) == plain
        assert drafting.stats.accepted > 0 or lookup


@MODES
def test_a_grammar_is_enforced_on_drafted_tokens(
    mode: Mode, smollm2: Model, verifier: Callable[..., Verifier], keep: Callable[[Any], Any]
) -> None:
    """The prompt suggests drafts that the grammar forbids; the answer follows the grammar, and ends with it."""
    prompt = smollm2.tokenize("Q: Is the sea salty? A: maybe. Q: Is the sky blue? A: maybe. Q: Is rain wet? A:")
    for drafter in (PromptLookup(min_ngram=1), ModelDrafter(smollm2, smollm2, n_ctx=256, n_threads=1)):
        tiers = verifier(smollm2, "21-22" if mode.uses_slim_tier else "")
        engine = Engine(tiers, keep(drafter), Policy(mode, rule=ConfidenceRule(0, 0)))
        for temperature in (0.0, 1.0):
            answer = smollm2.detokenize(text(engine, prompt, 12, grammar=YES_NO, temperature=temperature, seed=5))
            assert answer.rstrip("!?") in ("yes", "no"), answer


class _NoRepeats:
    """A processor that forbids the end and whatever token came last, and records the texts that it was called with."""

    def __init__(self, end_tokens: frozenset[int]) -> None:
        self.end_tokens = end_tokens
        self.seen: list[list[int]] = []

    def __call__(self, ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        self.seen.append(ids.tolist())
        scores[ids[-1]] = -np.inf
        scores[300] += 12  # without the ban this token would repeat for ever
        scores[list(self.end_tokens)] = -np.inf
        return scores


@MODES
@pytest.mark.parametrize("draft_tokens", [None, 3], ids=["automatic length", "3 tokens"])
@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.0, "mirostat_mode": 2, "seed": 3}],
    ids=["greedy", "sampled", "mirostat"],
)
def test_a_processor_is_called_once_for_each_position_in_the_order_of_the_text(
    mode: Mode, draft_tokens: int | None, params: dict[str, Any], engine: Callable[..., Engine]
) -> None:
    """It decides: no draft slips through. A processor with a state depends on it; those of outlines have one."""
    drafting = engine(mode, draft_tokens=draft_tokens)
    processor = _NoRepeats(drafting.verifier.end_tokens)
    answer = text(drafting, logits_processors=[processor], **params)
    written = [*PROMPT, *answer]
    assert all(a != b for a, b in pairwise(written[12:]))
    assert written.count(300) > 5
    positions = range(len(PROMPT), len(PROMPT) + 40)
    assert processor.seen == [written[:n] for n in positions]


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.drafts], ids=lambda mode: mode.value)
def test_a_processor_meets_drafts_that_are_accepted(mode: Mode, engine: Callable[..., Engine]) -> None:
    """Otherwise nothing would follow from the test above."""
    drafting = engine(mode, draft_tokens=3)
    text(drafting, logits_processors=[lambda _ids, scores: scores])
    assert drafting.stats.accepted > 10


class _EndsAfter:
    """A watcher that ends the text with its n-th token."""

    prompt_from = None

    def __init__(self, n: int) -> None:
        self.left = n

    def see_token(self, token: int, logits: np.ndarray) -> Flow:
        self.left -= 1
        return Flow.GO_ON if self.left else Flow.END_AFTER

    def see_prompt(self, start: int, logits: np.ndarray) -> None:
        raise AssertionError


@MODES
def test_a_processor_is_not_called_beyond_the_end_of_the_text(mode: Mode, engine: Callable[..., Engine]) -> None:
    """The watcher ends it in the midst of a draft of eight tokens, all of which would be accepted."""
    lengths: list[int] = []

    def count(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        lengths.append(len(ids))
        return scores

    drafting = engine(mode, draft_tokens=8)
    steps = drafting.generate(PROMPT, logits_processors=[count], watcher=_EndsAfter(5))
    assert sum(len(step.tokens) for step in steps) == 5
    assert lengths == [len(PROMPT) + n for n in range(5)]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda _ids, logits: logits[:10], r"an array of shape \(10,\); it must return the logits of all"),
        (lambda _ids, logits: np.concatenate([logits, logits]), "it must return the logits of all"),
        (lambda _ids, logits: logits * np.nan, "NaN"),
        (lambda _ids, logits: np.full_like(logits, -np.inf), "ruled out every token"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_processor_that_returns_no_logits_is_an_error(
    broken: Any, message: str, temperature: float, engine: Callable[..., Engine]
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=1)
    with pytest.raises(ValueError, match=message):
        list(engine(Mode.PLAIN).generate(PROMPT, max_tokens=3, sampling=sampling, logits_processors=[broken]))


@MODES
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
        {"temperature": 0.8, "typical_p": 0.7, "repeat_penalty": 1.2},
        {"temperature": 1.0, "mirostat_mode": 1},
        {"temperature": 1.0, "mirostat_mode": 2, "mirostat_tau": 3.0},
    ],
    ids=["top", "typical", "mirostat", "mirostat2"],
)
def test_the_same_seed_gives_the_same_text(mode: Mode, engine: Callable[..., Engine], params: dict[str, Any]) -> None:
    # mirostat carries rounding on, which differs between batches: their lengths must not depend on the clock
    length = 3 if "mirostat_mode" in params else None
    one, same, other = (text(engine(mode, draft_tokens=length), seed=seed, **params) for seed in (3, 3, 4))
    assert one == same != other
    assert len(one) == 40


@pytest.mark.parametrize("mode", [Mode.SD, Mode.EXACT], ids=lambda mode: mode.value)
def test_mirostat_is_compared_token_by_token(mode: Mode, engine: Callable[..., Engine]) -> None:
    """It is no distribution, so the target draws and the draft is compared: the same seed gives plain's text.

    (For 20 tokens; its state carries rounding differences between batch shapes on, so that later a near-tie can tip.)
    """
    params = {"temperature": 1.0, "mirostat_mode": 2, "seed": 3, "n": 20}
    assert text(engine(mode), **params) == text(engine(Mode.PLAIN), **params)


def test_top_k_of_a_sampled_draft_converges_to_the_targets_distribution(engine: Callable[..., Engine]) -> None:
    """Whole generations with a worse drafter, top-p and penalties: the second token is distributed as in plain."""
    from scipy.stats import chi2_contingency

    params = {"temperature": 1.2, "top_k": 4, "top_p": 0.95, "repeat_penalty": 1.3}

    def seconds(one: Engine) -> list[int]:
        return [text(one, n=2, seed=seed, **params)[1] for seed in range(1500)]

    plain, sd = seconds(engine(Mode.PLAIN)), seconds(engine(Mode.SD, draft_tokens=1))
    tokens = sorted({token for token in plain if plain.count(token) >= 10})
    table = [[many.count(token) for token in tokens] for many in (plain, sd)]
    assert len(tokens) >= 3
    assert chi2_contingency(table).pvalue > 1e-3

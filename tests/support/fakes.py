"""A language without weights: everything that the engine needs of llama.cpp, deterministic and suspicious.

`FakeContext` stands in for `via_sd_local.runtime.context.Context`, so that the engine runs on the real `Verifier` and
`ModelDrafter`. It knows which tier computed each of its cells, and asserts what llama.cpp would only answer with wrong
numbers: positions without gaps, full passes over full cells, and (by overwriting them) that no row of logits is read
after the next pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from via_sd_local.arrays import Floats
from via_sd_local.mask import LayerMask
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.sampler import TemperatureSampler
from via_sd_local.tiers.cache import TokenCache
from via_sd_local.tiers.drafter import NO_HINTS, Draft, Drafter, Hints
from via_sd_local.tiers.llama_cpp_drafter import LlamaDraftModelDrafter
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier

N_VOCAB = 12
POISON = N_VOCAB - 1  # no language says it; stale rows do


def peak(token: int, probability: float = 0.9) -> Floats:
    """Logits that give `token` this probability and all others, but POISON, the same rest of it."""
    q = np.full(N_VOCAB, (1 - probability) / (N_VOCAB - 2))
    q[POISON] = 1e-9
    q[token] = probability
    return np.log(q).astype(np.float32)


class Language(Protocol):
    """The logits of what follows a text, by tier."""

    def full(self, text: Sequence[int]) -> Floats: ...

    def slim(self, text: Sequence[int]) -> Floats: ...


class RandomLanguage:
    """Each next token depends on the last two; the slim tier has its own opinion on a share of the texts.

    Where it agrees, and where it does not, its confidence is drawn from `confidences`.
    """

    def __init__(self, seed: int, *, agreement: float = 0.7, confidences: Sequence[float] = (0.3, 0.9)) -> None:
        def row(*context: int) -> tuple[Floats, Floats]:
            random = np.random.default_rng([seed, *context])
            full = random.normal(size=N_VOCAB).astype(np.float32) * 2
            full[POISON] = -30
            agrees, confidence = random.random() < agreement, random.choice(confidences)
            return full, peak(int(full.argmax() if agrees else random.integers(POISON)), confidence)

        self._row = lru_cache(maxsize=None)(row)

    def full(self, text: Sequence[int]) -> Floats:
        return self._row(*text[-2:])[0]

    def slim(self, text: Sequence[int]) -> Floats:
        return self._row(*text[-2:])[1]


@dataclass
class Script:
    """What follows is read from a script: `text[n]` is the full tier's choice after n tokens, whatever they were.

    The slim tier says the same with probability 0.9, except where `slim[n]` names its own token and probability.
    """

    text: list[int]
    slim_says: dict[int, tuple[int, float]] = field(default_factory=dict)

    def full(self, text: Sequence[int]) -> Floats:
        return peak(self.text[len(text)] if len(text) < len(self.text) else 0)

    def slim(self, text: Sequence[int]) -> Floats:
        said = self.slim_says.get(len(text))
        return peak(*said) if said else self.full(text)


class FakeModel:
    """The part of `Model` that is asked for; `n_embd` is what a fake hidden state needs."""

    def __init__(self, language: Language, *, eog: Sequence[int] = (), can_rewind: bool = True) -> None:
        self.language = language
        self.eog = frozenset(eog)
        self.path = Path("fake.gguf")
        self.n_vocab, self.n_embd, self.n_layer = N_VOCAB, 1, 4
        self.n_bytes = 10**6
        self.can_take_embeddings = True
        self.can_rewind = can_rewind


class Clock:
    """A `time` module whose hands move only by hand, and by one second for each decoded token."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class FakeContext:
    """`Context` over a fake model: cells of (token, with K/V that a full pass may attend to), and suspicion."""

    clock = Clock()  # replaced by tests that look at it

    def __init__(self, model: FakeModel, *, n_ctx: int, n_threads: int | None = None) -> None:
        self.model, self.n_ctx, self.n_batch = model, n_ctx, 512
        self.cells: list[tuple[int, bool]] = []
        self.mask = b""
        self.closed = False
        self.passes: list[tuple[str, int, int]] = []  # ("full" | "slim" | "resume", first position, tokens)
        self.fail: Callable[[], None] = lambda: None  # called in the middle of every pass
        self._rows = np.zeros((0, N_VOCAB), np.float32)
        self._last_inputs: list[int] = []
        self._keeps_inputs = False

    def decode(self, tokens: Sequence[int], start: int, rows: int) -> Floats:
        return self._decode(list(tokens), start, rows, "slim" if self.mask else "full")

    def decode_embeddings(self, embeddings: Floats, start: int, rows: int) -> Floats:
        assert self.mask == LayerMask.below(4, 2).to_bytes(), "only a resume pass decodes hidden states"
        return self._decode([int(state) for state in embeddings[:, 0]], start, rows, "resume")

    def _decode(self, tokens: list[int], start: int, rows: int, kind: str) -> Floats:
        assert not self.closed
        assert start == len(self.cells), f"a pass at position {start} of a cache of {len(self.cells)}"
        assert 0 < len(tokens) <= self.n_ctx - start
        assert 0 <= rows <= len(tokens)
        assert all(0 <= token < N_VOCAB for token in tokens)
        is_full = kind != "slim"
        writes_kv = any(byte & 4 for byte in self.mask)
        assert not is_full or all(full for _, full in self.cells), "a full pass attends to what the slim tier computed"
        self.passes.append((kind, start, len(tokens)))
        self._rows[:] = peak(POISON)
        self.cells += [(token, is_full or writes_kv) for token in tokens]
        self.fail()
        self.clock.now += len(tokens)
        text = [token for token, _ in self.cells]
        logits = self.model.language.full if is_full else self.model.language.slim
        self._rows = np.stack([logits(text[: len(text) - i]) for i in range(rows)][::-1]) if rows else self._rows[:0]
        self._last_inputs = tokens
        return self._rows

    def remove(self, start: int) -> bool:
        if start > 0 and not self.model.can_rewind:
            return False
        del self.cells[start:]
        return True

    def clear(self) -> None:
        self.cells.clear()

    def set_mask(self, mask: bytes) -> None:
        self.mask = mask

    @contextmanager
    def masked(self, mask: bytes) -> Iterator[None]:
        try:
            self.set_mask(mask)
            yield
        finally:
            self.set_mask(b"")

    def check_mask(self, mask: bytes) -> None:
        """Nothing is refused."""

    def keep_layer_input(self, layer: int) -> None:
        assert layer == 2
        self._keeps_inputs = True

    def layer_input(self, n: int) -> Floats | None:
        assert n == len(self._last_inputs)
        return np.array(self._last_inputs, np.float32)[:, None] if self._keeps_inputs else None

    def close(self) -> None:
        self.closed = True


def fake_verifier(
    language: Language,
    *,
    n_ctx: int = 64,
    eog: Sequence[int] = (),
    mask: str | None = "2",
    resume: bool = True,
    can_rewind: bool = True,
) -> Verifier:
    """The real `Verifier` over a `FakeContext`; its set-up passes are forgotten."""
    model = FakeModel(language, eog=eog, can_rewind=can_rewind)
    layers = LayerMask.parse(mask, model.n_layer) if mask is not None else None
    context = FakeContext(model, n_ctx=n_ctx)
    verifier = Verifier(model, n_ctx=n_ctx, mask=layers, resume=resume, context=context)  # type: ignore[arg-type]
    passes(verifier).clear()
    return verifier


def fake_model_drafter(language: Language, *, n_ctx: int = 64, min_confidence: float = 0.0) -> ModelDrafter:
    """The real `ModelDrafter` over a `FakeContext`; it drafts what the language's full tier says."""
    model = FakeModel(language)
    context = FakeContext(model, n_ctx=n_ctx)
    return ModelDrafter(model, model, n_ctx=n_ctx, min_confidence=min_confidence, context=context)  # type: ignore[arg-type]


def passes(tracked: TokenCache) -> list[tuple[str, int, int]]:
    """The passes of a verifier so far: kind, first position, number of tokens."""
    context = tracked.context
    assert isinstance(context, FakeContext)
    return context.passes


class FakeDrafter(Drafter):
    """Drafts token by token with a function of the text, to the limit or to None; remembers what it was told."""

    name = "fake"
    is_free = True
    reports_passes = True

    def __init__(self, next_token: Callable[[list[int]], int | None]) -> None:
        self._next_token = next_token
        self.texts: list[list[int]] = []
        self.limits: list[int] = []
        self.observed: list[int] = []
        self.closed = False

    def propose(
        self,
        text: Sequence[int],
        limit: int,
        hints: Hints = NO_HINTS,
    ) -> Draft:
        assert limit >= 1
        assert not self.closed
        unchanged = hints.unchanged
        assert unchanged == 0 or list(text[:unchanged]) == self.texts[-1][:unchanged], (
            "more is said to be unchanged than is"
        )
        self.texts.append(list(text))
        self.limits.append(limit)
        tokens: list[int] = []
        while len(tokens) < limit and (token := self._next_token([*text, *tokens])) is not None:
            tokens.append(token)
        return Draft(tokens, [])

    def observe(self, accepted: int) -> None:
        self.observed.append(accepted)

    def close(self) -> None:
        self.closed = True


def oracle(language: Language) -> FakeDrafter:
    """Drafts exactly what the full tier says greedily."""
    return FakeDrafter(lambda text: int(language.full(text).argmax()))


def always_wrong(language: Language) -> FakeDrafter:
    return FakeDrafter(lambda text: (int(language.full(text).argmax()) + 1) % POISON)


def sometimes_right(language: Language) -> FakeDrafter:
    """Right but for texts whose last two tokens sum to a multiple of three."""
    return FakeDrafter(lambda text: (int(language.full(text).argmax()) + (sum(text[-2:]) % 3 == 0)) % POISON)


def slim_like(language: Language) -> FakeDrafter:
    return FakeDrafter(lambda text: int(language.slim(text).argmax()))


def of_any_length(language: Language) -> FakeDrafter:
    """Right, but stops (sometimes at once) where the last token is a multiple of four."""
    return FakeDrafter(lambda text: int(language.full(text).argmax()) if text[-1] % 4 else None)


def silent(_language: Language) -> FakeDrafter:
    return FakeDrafter(lambda text: None)


def called(language: Language) -> LlamaDraftModelDrafter:
    """A draft model of llama-cpp-python's kind: always eight tokens, right as often as `sometimes_right`."""
    drafter = sometimes_right(language)
    return LlamaDraftModelDrafter(lambda ids: np.array(drafter.propose(ids.tolist(), 8).tokens, np.intc))


def scripted(draft: dict[int, int]) -> FakeDrafter:
    """After n tokens of text, drafts `draft[n]`, and nothing where there is none."""
    return FakeDrafter(lambda text: draft.get(len(text)))


def expected_text(
    language: Language,
    prompt: Sequence[int],
    n: int,
    *,
    eog: Sequence[int] = (),
    sampling: SamplingParams | None = None,
) -> list[int]:
    """At most `n` tokens that plain decoding gives, straight from the language."""
    params, text = sampling or SamplingParams(), list(prompt)
    sampler = TemperatureSampler(params.temperature, params.seed)
    while len(text) < len(prompt) + n:
        token = sampler.choose(language.full(text))
        if token in eog:
            break
        sampler.accept(token)
        text.append(token)
    return text[len(prompt) :]

"""The invariant of the shared cache: full logits do not depend on the slim passes in between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tiny

from via_sd_local.errors import NativeError
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import Placement
from via_sd_local.tiers.verifier import Verifier

Make = Callable[..., Model]
# the mask, and whether a full pass can resume from it (it cannot where it begins at layer 0)
CASES = [
    ("llama", "2-3", True),
    ("llama", "a0,3,f4", False),
    ("llama-moe", "a2,f3,4", True),
    ("qwen2", "3-4", True),
    ("qwen3", "a1,f1,4", True),
    ("phi3", "2,f4", True),
    ("gemma", "3", True),
    ("gemma2", "2-3", True),
    ("gemma3", "6-8", True),
    ("gemma3", "f0,7", False),
]
WIDE = tiny.spec("llama", n_head=2)  # heads of 32, the block of the quantised types
Q8 = Placement(type_k="q8_0", type_v="q8_0")


class Reference:
    """The same full passes on a context that never saw a slim one, in batches of the same shapes."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.n = 0

    def rewind(self, n: int) -> None:
        if n < self.n:
            assert self.context.remove(n)
            self.n = n

    def full(self, cells: list[int], rows: int) -> np.ndarray:
        """Decode cells[self.n:], as the verifier does with what slim passes left behind."""
        logits = self.context.decode(cells[self.n :], self.n, rows).copy()
        self.n = len(cells)
        return logits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("resume", [False, True], ids=["recompute", "resume"])
@pytest.mark.parametrize(("name", "mask", "resumes"), CASES)
def test_full_logits_equal_those_of_a_run_without_slim_passes(
    name: str,
    mask: str,
    resumes: bool,
    resume: bool,
    seed: int,
    tiny_model: Make,
    verifier: Callable[..., Verifier],
    context: Callable[..., Context],
) -> None:
    """Random interleavings of slim passes, full passes and rewinds, beyond three of the model's windows.

    Bit for bit without resume. With it the layers below the mask come from slim passes, whose batches have other
    shapes than the reference's: kernels round differently, and then so does the 16-bit cache (seen: up to 0.004 on
    logits of about ±2, where a sublayer more or less makes a difference of 0.5).
    """
    resumes = resumes and resume
    tiers = verifier(tiny_model(tiny.spec(name)), mask, resume=resume)
    assert (tiers.why_no_resume is None) == resumes
    kinds = interleave(tiers, Reference(context(tiers.model)), seed, 0.02 if resumes else 0.0)
    assert ("resume" in kinds) == resumes


@pytest.mark.parametrize(("name", "mask", "resume"), [("llama", "2-3", True), ("gemma3", "6-8", False)])
def test_kv_that_slim_passes_write_through_do_not_reach_full_logits_unless_settled(
    name: str,
    mask: str,
    resume: bool,
    tiny_model: Make,
    verifier: Callable[..., Verifier],
    context: Callable[..., Context],
) -> None:
    tiers = verifier(tiny_model(tiny.spec(name)), mask, resume=resume)
    interleave(tiers, Reference(context(tiers.model)), 0, 0.02 if resume else 0.0, write_through=True)


@pytest.mark.parametrize(("mask", "resume"), [("2-3", True), ("2-3", False), ("a0,3,f4", False)])
@pytest.mark.parametrize("placement", [Q8, Placement(type_k="q4_0", flash_attn="off")], ids=["q8_0", "k-q4_0"])
def test_full_logits_do_not_depend_on_slim_passes_with_a_quantised_cache(
    placement: Placement,
    mask: str,
    resume: bool,
    tiny_model: Make,
    verifier: Callable[..., Verifier],
    context: Callable[..., Context],
) -> None:
    """Bit for bit without resume; with it one more rounding of the cache's coarse numbers may show."""
    tiers = verifier(tiny_model(WIDE, placement=placement), mask, resume=resume)
    assert (tiers.why_no_resume is None) == resume
    interleave(tiers, Reference(context(tiers.model)), 0, 0.1 if resume else 0.0)


def interleave(
    tiers: Verifier, reference: Reference, seed: int, tolerance: float, *, write_through: bool = False
) -> list[str]:
    """Random passes and rewinds, each full one compared; returns the kinds of passes."""
    random = np.random.default_rng(seed)
    kinds: list[str] = []

    def record(kind: str, _tokens: int, _seconds: float) -> None:
        kinds.append(kind)

    def tokens(n: int) -> list[int]:
        return [int(token) for token in random.integers(259, 320, n)]

    cells = tokens(50)  # three windows of 16
    assert np.array_equal(tiers.full(cells, 1, recorder=record), reference.full(cells, 1))

    for _ in range(60):
        action = random.choice(["slim", "slim", "slim", "resume", "full", "rewind"])
        if action == "slim" and len(cells) < 200:
            new = tokens(int(random.integers(1, 6)))
            slim = tiers.slim(new, write_through=write_through, recorder=record)
            assert slim.shape == (len(new), tiers.model.n_vocab)
            cells += new
        elif action == "rewind":
            n = int(random.integers(max(0, len(cells) - 8), len(cells) + 1))
            tiers.rewind(n)
            del cells[n:]
            reference.rewind(min(reference.n, n))
        elif action in ("full", "resume"):
            new = tokens(int(random.integers(1, 4))) if action == "full" else []
            pending = tiers.n_kv - tiers.n_full
            if not new and not pending:
                continue
            rows = int(random.integers(1, pending + len(new) + 1))
            cells += new
            difference = np.abs(tiers.full(new, rows, recorder=record) - reference.full(cells, rows)).max()
            assert difference <= tolerance, (float(difference), action, pending, len(new), rows)
            assert tiers.n_full == tiers.n_kv == len(cells)
        assert tiers.cells == cells
        assert tiers.n_full <= tiers.n_kv
    assert "slim" in kinds
    assert "full" in kinds
    return kinds


@pytest.mark.parametrize(("which", "mask"), [("smollm2", "12-14,a20,f22"), ("gemma", "9-10")])
def test_resume_equals_the_full_pass_on_real_models(
    which: str, mask: str, verifier: Callable[..., Verifier], request: pytest.FixtureRequest
) -> None:
    model: Model = request.getfixturevalue(which)
    prompt = model.tokenize_prompt("In the beginning the city had only one bridge, and the river")
    block = model.tokenize(" was wide there.", add_special=False)
    resuming, plain = verifier(model, mask), verifier(model, mask, resume=False)
    kinds: list[list[str]] = []
    logits = []
    for tiers in (resuming, plain):
        kinds.append([])

        def record(kind: str, _tokens: int, _seconds: float, kinds: list[str] = kinds[-1]) -> None:
            kinds.append(kind)

        tiers.full(prompt, 1, recorder=record)
        slim = tiers.slim(block, recorder=record).copy()
        full = tiers.full([], len(block), recorder=record).copy()
        assert np.abs(slim - full).max() > 0.1
        logits.append(full)
    assert kinds == [["full", "slim", "resume"], ["full", "slim", "full"]]
    assert np.array_equal(*logits)


def test_a_slim_pass_that_was_rewound_is_not_resumed_from(tiny_model: Make, verifier: Callable[..., Verifier]) -> None:
    """After a rewind below n_full the kept layer inputs belong to tokens that are gone."""
    model = tiny_model(tiny.spec("llama"))
    tiers, fresh = verifier(model, "2-3"), verifier(model)
    tiers.full([270, 271, 272, 273], 1)
    tiers.slim([280, 281])
    tiers.rewind(3)
    tiers.slim([290, 291])
    got = tiers.full([], 2).copy()
    fresh.full([270, 271, 272], 1)
    assert np.array_equal(got, fresh.full([290, 291], 2))


def test_the_slim_tier_attends_to_the_full_models_cache(tiny_model: Make, verifier: Callable[..., Verifier]) -> None:
    """A slim pass after a full prefill differs from one after a slim prefill."""
    model = tiny_model(tiny.spec("llama"))
    after_full, after_slim = verifier(model, "2-3"), verifier(model, "2-3")
    after_full.full([270, 271, 272], 1)
    after_slim.slim([270, 271, 272])
    assert np.abs(after_full.slim([280]) - after_slim.slim([280])).max() > 0.1


@pytest.mark.parametrize(("error", "known"), [(NativeError, 0), (KeyboardInterrupt, 3)])
def test_a_failed_pass_leaves_nothing_and_an_interrupted_one_what_was_before(
    error: type[BaseException],
    known: int,
    tiny_model: Make,
    verifier: Callable[..., Verifier],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(tiny.spec("llama"))
    tiers, fresh = verifier(model, "2-3"), verifier(model)
    tiers.full([270, 271, 272], 1)
    decode = tiers.context.decode

    def interrupted(*args: object) -> None:
        decode(*args)  # type: ignore[arg-type]
        raise error

    monkeypatch.setattr(tiers.context, "decode", interrupted)
    with pytest.raises(error):
        tiers.slim([280, 281])
    monkeypatch.undo()
    text = [270, 271, 272, 290]
    assert tiers.reuse(text, 3) == known
    if known:
        fresh.full(text[:known], 1)
    assert np.array_equal(tiers.full(text[known:], 4 - known), fresh.full(text[known:], 4 - known))


def test_a_reused_prefix_was_computed_by_the_full_model(tiny_model: Make, verifier: Callable[..., Verifier]) -> None:
    tiers = verifier(tiny_model(tiny.spec("llama")), "2-3")
    tiers.full([270, 271, 272], 1)
    tiers.slim([280, 281])
    assert tiers.reuse([270, 271, 272, 280, 281, 290], 5) == 3
    assert tiers.cells == [270, 271, 272]
    assert tiers.reuse([270, 299], 1) == 1


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_a_recurrent_memory_is_recognised_and_never_rewound(
    name: str, tiny_model: Make, verifier: Callable[..., Verifier]
) -> None:
    model = tiny_model(tiny.spec(name))
    tiers, fresh = verifier(model), verifier(model)
    assert not tiers.can_rewind
    tiers.full([270, 271, 272], 1)
    assert tiers.reuse([270, 271, 290], 2) == 0  # cleared, to be computed again
    assert np.array_equal(tiers.full([270, 271, 290], 1), fresh.full([270, 271, 290], 1))
    assert tiers.reuse([270, 271, 290, 300], 3) == 3


def test_a_mask_that_llama_cpp_refuses_is_refused_at_construction(
    tiny_model: Make, verifier: Callable[..., Verifier]
) -> None:
    with pytest.raises(ValueError, match="attention of every layer"):
        verifier(tiny_model(tiny.spec("llama")), "a0-5")
    with pytest.raises(ValueError, match="not recurrent"):
        verifier(tiny_model(tiny.spec("mamba")), "2")


def test_long_inputs_go_in_chunks_with_the_same_result(tiny_model: Make, context: Callable[..., Context]) -> None:
    """More tokens than a batch holds, more rows than the last chunk has."""
    model = tiny_model(tiny.spec("llama", n_ctx_train=2048))
    ctx = context(model, 1500)
    tokens = [259 + (7 * i) % 60 for i in range(1200)]
    rows = ctx.decode(tokens, 0, 700).copy()
    assert rows.shape == (700, model.n_vocab)
    ctx.clear()
    again = [ctx.decode(tokens[i : i + 512], i, min(512, 1200 - i)).copy() for i in range(0, 1200, 512)]
    assert np.array_equal(rows, np.concatenate(again)[-700:])

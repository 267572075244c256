"""Masks over a text in batches of blocks equal the same blocks run one by one, as at run time."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from via_sd_local.calibration.dimr import blocks, evaluation
from via_sd_local.calibration.dimr.answers import RecordedAnswer
from via_sd_local.calibration.dimr.evaluation import Evaluator, teacher_forced
from via_sd_local.calibration.dimr.objective import agreement, kl, paired
from via_sd_local.calibration.top_logits import TopLogits
from via_sd_local.errors import NativeError
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.verifier import Verifier

ATTENTION_ONLY = [name for name in tiny.SPECS if name not in ("mamba", "jamba")]
MASKS = ("1", "a0,f3", "f2,4-5")


def some_answers(
    n_vocab: int, lengths: tuple[tuple[int, int], ...] = ((7, 20), (30, 13), (1, 1))
) -> list[RecordedAnswer]:
    """Random tokens: what they say does not matter here."""
    draw = np.random.default_rng(3)
    return [
        RecordedAnswer(tuple(draw.integers(3, n_vocab, n).tolist()), tuple(draw.integers(3, n_vocab, m).tolist()), "x")
        for n, m in lengths
    ]


def naive(verifier: Verifier, answers: list[RecordedAnswer], block: int) -> np.ndarray:
    """Logits of the slim tier, block after block, each after full passes; `[n, n_vocab]`."""
    rows: list[np.ndarray] = []
    for answer in answers:
        tokens = [*answer.prompt_tokens, *answer.tokens[:-1]]
        verifier.reset()
        for start in range(len(answer.prompt_tokens) - 1, len(tokens), block):
            end = min(start + block, len(tokens))
            verifier.rewind(verifier.n_full)
            if verifier.n_kv < start:
                verifier.full(tokens[verifier.n_kv : start], 0)
            rows.append(verifier.slim(tokens[start:end]).copy())
            verifier.rewind(start)
    return np.concatenate(rows)


def close(top: TopLogits, logits: np.ndarray) -> None:
    reference = TopLogits.from_logits(logits)
    found = np.take_along_axis(logits, top.ids, axis=1)
    expected = found - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    difference = np.abs(top.log_probs - expected).max(axis=1)
    # K/V are in float16, and a router of experts may tip; another mask moves most rows by 1 and more
    assert (difference > 0.2).mean() < 0.15, difference
    assert np.median(difference) < 0.05
    assert (top.best == reference.best).mean() > 0.9


@pytest.fixture
def evaluator(keep):
    return lambda model, answers, **options: keep(Evaluator(model, answers, n_threads=1, **options))


@pytest.mark.parametrize("block", [1, 4, 7])
@pytest.mark.parametrize("name", ATTENTION_ONLY)
def test_many_blocks_in_one_batch_equal_one_after_the_other(name, block, tiny_model, verifier, evaluator):
    model = tiny_model(tiny.spec(name))
    answers = some_answers(model.n_vocab)
    batched = evaluator(model, answers, block=block)
    for text in MASKS:
        expected = naive(verifier(model, text), answers, block)
        close(batched.slim(LayerMask.parse(text, model.n_layer)), expected)


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_so_it_does_far_beyond_a_sliding_window(name, tiny_model, verifier, evaluator):
    model = tiny_model(tiny.spec(name))
    answers = some_answers(model.n_vocab, ((40, 60), (5, 90)))
    batched = evaluator(model, answers, block=5)
    for text in ("1", "f2,4-5", "3"):
        close(batched.slim(LayerMask.parse(text, model.n_layer)), naive(verifier(model, text), answers, 5))


@pytest.mark.parametrize("name", ATTENTION_ONLY)
def test_the_full_model_is_that_of_a_plain_pass(name, tiny_model, evaluator):
    model = tiny_model(tiny.spec(name))
    answers = some_answers(model.n_vocab)
    full = evaluator(model, answers).full
    plain = teacher_forced(model, answers, n_threads=1)
    np.testing.assert_allclose(full.log_probs, plain.log_probs, atol=0.06)
    assert agreement(full, plain) > 0.97


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "qwen3moe"])
def test_resuming_from_recorded_states_changes_nothing_and_is_used(name, tiny_model, evaluator, monkeypatch):
    model = tiny_model(tiny.spec(name))
    answers = some_answers(model.n_vocab)
    resumed = evaluator(model, answers)
    monkeypatch.setattr(evaluation, "_INPUT_BYTES", 0)
    computed = evaluator(model, answers)
    late = LayerMask.of(model.n_layer, ffn=[model.n_layer - 2])
    assert resumed.resume_layer(late)[0] == model.n_layer - 2
    assert computed.resume_layer(late)[0] == 0
    for text in ("f2,4-5", "5", "a3"):
        mask = LayerMask.parse(text, model.n_layer)
        a, b = resumed.slim(mask), computed.slim(mask)
        assert (a.ids[:, 0] == b.ids[:, 0]).all()
        np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-4)


def test_a_mask_that_leaves_too_little_resumes_from_a_lower_layer(tiny_model, evaluator):
    model = tiny_model(tiny.spec("gemma2"))  # layers 1, 3 and 5 are global
    made = evaluator(model, some_answers(model.n_vocab))
    assert made.resume_layer(LayerMask.parse("f5", 6))[0] == 4


def test_little_memory_records_fewer_layers(tiny_model, evaluator, monkeypatch):
    model = tiny_model(tiny.spec("llama"))
    answers = some_answers(model.n_vocab)
    monkeypatch.setattr(evaluation, "_INPUT_BYTES", 2 * 34 * model.n_embd * 4)
    assert list(evaluator(model, answers)._texts[0].entering[0]) == [1, 5]


def test_a_score_says_what_whole_vocabularies_say(tiny_model, evaluator, verifier):
    model = tiny_model(tiny.spec("llama"))
    answers = some_answers(model.n_vocab)
    made = evaluator(model, answers, block=4)
    mask = LayerMask.parse("1,f3", model.n_layer)
    score = made.score(mask)
    slim = naive(verifier(model, "1,f3"), answers, 4)
    full = naive(verifier(model, "f0"), answers, 4)  # not the full model: a wrong reference must show
    log_u, log_wrong = (rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)) for rows in (slim, full))
    whole = teacher_forced(model, answers, n_threads=1)
    assert score.tokens == len(made) == 34
    assert score.agreement == (whole.best == slim.argmax(axis=1)).mean()
    exact = made.full.log_probs, np.take_along_axis(log_u, made.full.ids, axis=1)
    kept = float((np.exp(exact[0]) * (exact[0] - exact[1])).sum(axis=1).mean())
    left = 1 - np.exp(made.full.log_probs).sum(axis=1).mean()
    assert abs(score.kl - kept) < 5 * left + 0.01
    wrong = np.take_along_axis(log_wrong, made.full.ids, axis=1)
    assert abs(score.kl - float((np.exp(exact[0]) * (exact[0] - wrong)).sum(axis=1).mean())) > 0.1
    a, b = paired(made.full, made.slim(mask))
    assert abs(float(kl(a, b).mean()) - score.kl) < 0.05 * score.kl + 0.02


def test_the_empty_mask_is_the_full_model_itself(tiny_model, evaluator):
    model = tiny_model(tiny.spec("gemma3"))
    made = evaluator(model, some_answers(model.n_vocab))
    score = made.score(LayerMask(model.n_layer))
    assert (score.kl, score.relu, score.agreement) == (0, 0, 1)
    assert made.starts == [0, 20, 33]
    assert (made.tokens[33:] == some_answers(model.n_vocab)[2].tokens).all()


def test_a_quick_score_is_the_score_of_a_few_answers_evenly_spaced(tiny_model, evaluator):
    model = tiny_model(tiny.spec("llama"))
    answers = some_answers(model.n_vocab, tuple((5 + i, 4 + i) for i in range(13)))
    made, few = evaluator(model, answers, block=4), evaluator(model, answers[::2], block=4)
    mask = LayerMask.parse("1,f3", model.n_layer)
    quick = made.quick_score(mask)
    assert quick.tokens == len(few) == sum(4 + i for i in range(0, 13, 2))
    assert quick.kl == pytest.approx(few.score(mask).kl, rel=1e-5)
    assert made.quick_cost == len(few) / len(made)
    assert made.score(mask).tokens == len(made)
    assert few.quick_score(mask) == few.score(mask), "of few answers all are read"


def test_a_refused_mask_is_named_and_leaves_the_evaluator_usable(tiny_model, evaluator):
    model = tiny_model(tiny.spec("llama"))
    made = evaluator(model, some_answers(model.n_vocab))
    mask = LayerMask.parse("1", model.n_layer)
    before = made.score(mask)
    with pytest.raises(ValueError, match="the attention of every layer"):
        made.score(LayerMask.parse("a0-5", model.n_layer))
    assert made.score(mask) == before


def test_an_interrupted_evaluation_leaves_the_evaluator_usable(tiny_model, evaluator, monkeypatch):
    model = tiny_model(tiny.spec("llama"))
    made = evaluator(model, some_answers(model.n_vocab))
    mask = LayerMask.parse("1", model.n_layer)
    before = made.score(mask)
    real, calls = made.context.decode_batch, []

    def interrupted(*args: object) -> np.ndarray:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(made.context, "decode_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.score(mask)
    assert made.score(LayerMask(model.n_layer)).kl == 0
    assert made.score(mask) == before


def test_answers_and_blocks_that_cannot_be_are_refused(tiny_model):
    model: Model = tiny_model(tiny.spec("llama"))
    with pytest.raises(ValueError, match="there are no answers"):
        Evaluator(model, [])
    with pytest.raises(ValueError, match="block is 0"):
        Evaluator(model, some_answers(model.n_vocab), block=0)
    with pytest.raises(ValueError, match="there are no answers"):
        teacher_forced(model, [])


def test_a_long_answer_goes_in_several_batches(tiny_model, evaluator, verifier):
    model = tiny_model(tiny.spec("llama", n_ctx_train=2048))
    answers = some_answers(model.n_vocab, ((5, 700),))
    made = evaluator(model, answers, block=3)
    assert len(made._texts[0].batches) == 2
    close(made.slim(LayerMask.parse("1,f3", 6)), naive(verifier(model, "1,f3", n_ctx=1024), answers, 3))


def test_blocks_that_cannot_be_forgotten_are_an_error_and_the_next_score_is_right(tiny_model, evaluator, monkeypatch):
    model, mask = tiny_model(tiny.spec("llama")), LayerMask.parse("1", 6)
    answers = some_answers(model.n_vocab)
    tested, expected = evaluator(model, answers), evaluator(model, answers).score(mask)
    remove, calls = blocks.llama.llama_memory_seq_rm, iter([True, False])
    monkeypatch.setattr(
        blocks.llama, "llama_memory_seq_rm", lambda *arguments: next(calls, True) and remove(*arguments)
    )
    with pytest.raises(NativeError, match="the KV cache cannot forget a block"):
        tested.score(mask)
    assert tested.score(mask) == expected

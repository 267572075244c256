"""Evaluation of masks on the calibration text, in blocks as at run time, against the full model.

A block of a few answer tokens attends to the full model's K/V before the block and to the slim model's own K/V within
it. The full model runs in batches of the same shapes, so that differences are due to the mask and not to the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ...arrays import Floats
from ...mask import LayerMask
from ...runtime.context import Context
from ...runtime.model import Model
from ...sampling.distribution import TokenIds, log_softmax
from ..top_logits import TopLogits
from .answers import RecordedAnswer
from .blocks import BlockContext, State, TextBlock, cut
from .objective import ALPHA, BETA, Score, score, with_rest

DEFAULT_BLOCK = 6  # tokens
QUICK_TEXTS = 5  # answers that a quick score reads, evenly spaced among all
_INPUT_BYTES = 256 << 20  # memory for hidden states, from which passes under masks that begin late are resumed

T = TypeVar("T")


@dataclass(slots=True)
class _Text:
    """An answer and the state of the context before it.

    `inputs` are the prompt's last token and all tokens of the answer but the last; `first` is the answer's first row.
    """

    inputs: TokenIds
    batches: list[list[TextBlock]]
    state: State
    first: int
    # for each batch: layer -> hidden states that enter it, [n, n_embd]
    entering: list[dict[int, Floats]] = field(default_factory=list)

    def rows(self, batch: Sequence[TextBlock]) -> slice:
        return slice(batch[0].rows.start, batch[-1].rows.stop)


class Evaluator:
    """Runs the slim model of any mask over the verifier's answers; `close` frees the context.

    Rows number the tokens of all answers in order: row i is the distribution that predicts `tokens[i]`.
    """

    def __init__(
        self,
        model: Model,
        answers: Sequence[RecordedAnswer],
        *,
        block: int = DEFAULT_BLOCK,
        n_threads: int | None = None,
        alpha: float = ALPHA,
        beta: float = BETA,
    ) -> None:
        """Compute the full model's K/V and distributions; ValueError for no answers or a block outside 1 to 64.

        `alpha` and `beta` are the margins of the paper's KL cost in scores.
        """
        if not answers:
            raise ValueError("there are no answers to evaluate masks on; give at least one prompt")
        if not 1 <= block <= 64:
            raise ValueError(f"block is {block}; blocks have 1 to 64 tokens")
        self.model = model
        self._margins = {"alpha": alpha, "beta": beta}
        self.tokens: TokenIds = np.concatenate([np.array(answer.tokens, np.int32) for answer in answers])
        self.starts = np.cumsum([0, *(len(answer.tokens) for answer in answers)])[:-1].tolist()
        plans = [cut(len(answer.prompt_tokens) - 1, len(answer.tokens), block) for answer in answers]
        longest = max(len(answer.prompt_tokens) + len(answer.tokens) for answer in answers)
        widest = max(sum(map(len, batch)) for plan in plans for batch in plan)
        blocks = max(len(batch) for plan in plans for batch in plan)
        self.context = BlockContext(model, n_ctx=longest + widest, n_threads=n_threads, blocks=blocks)
        self._scale = np.float32(0)  # factor for recorded states as inputs; 0 if passes cannot be resumed from them
        try:
            texts = zip(answers, plans, self.starts, strict=True)
            self._texts = [self._prepare(answer, plan, first) for answer, plan, first in texts]
            self.full = self._run_full()
            self._scale = self._find_scale()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.context.close()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.tokens)

    @property
    def quick_cost(self) -> float:
        """The share of all rows that `quick_score` evaluates."""
        return sum(len(text.inputs) for text in self._quick_texts) / len(self)

    def slim(self, mask: LayerMask) -> TopLogits:
        """Return the slim model's distributions, `[n]`; ValueError with llama.cpp's reason if it rejects the mask."""
        return TopLogits.join(list(self._run(mask, TopLogits.from_logits, self._texts)))

    def score(self, mask: LayerMask) -> Score:
        """Score the slim model against the full one, over the full model's kept tokens and the rest as one event.

        ValueError with llama.cpp's reason if it rejects the mask.
        """
        return self._score(mask, self._texts)

    def quick_score(self, mask: LayerMask) -> Score:
        """Score a mask on QUICK_TEXTS answers only, which is enough to rank masks that differ a lot."""
        return self._score(mask, self._quick_texts)

    @property
    def _quick_texts(self) -> list[_Text]:
        return self._texts[:: max(1, len(self._texts) // QUICK_TEXTS)]

    def _score(self, mask: LayerMask, texts: Sequence[_Text]) -> Score:
        full = TopLogits.join([self.full[text.first : text.first + len(text.inputs)] for text in texts])
        row = 0
        log_u = np.empty_like(full.log_probs)
        best = np.empty(len(full), np.int32)
        for part in self._run(mask, lambda logits: logits, texts):
            for logits in part:  # row by row: one row fits into the processor's cache
                best[row] = logits.argmax()
                log_u[row] = log_softmax(logits, full.ids[row])
                row += 1
        return score(with_rest(full.log_probs), with_rest(log_u), best == full.best, **self._margins)

    #
    # passes
    #

    def _prepare(self, answer: RecordedAnswer, batches: list[list[TextBlock]], first: int) -> _Text:
        """Compute the full model's K/V of the prompt and the answer but for its last token."""
        tokens = [*answer.prompt_tokens, *answer.tokens[:-1]]
        self.context.clear()
        self.context.decode(tokens, 0, 0)
        inputs = np.array(tokens[len(answer.prompt_tokens) - 1 :], np.int32)
        return _Text(inputs, batches, self.context.save(), first)

    def _run_full(self) -> TopLogits:
        """Compute the full model's distributions, and record the hidden states that enter some layers."""
        layers = self._layers_to_record()
        rows: list[TopLogits] = []
        self.context.record(layers, True)
        for text in self._texts:
            self.context.load(text.state)
            for batch in text.batches:
                inputs = text.inputs[text.rows(batch)]
                rows.append(TopLogits.from_logits(self.context.decode_blocks(inputs, batch)))
                states = {layer: self.context.recorded(layer, len(inputs)) for layer in layers}
                text.entering.append({layer: state for layer, state in states.items() if state is not None})
        self.context.record(layers, False)
        return TopLogits.join(rows)

    def _layers_to_record(self) -> list[int]:
        """Choose as many evenly spaced layers as fit into _INPUT_BYTES; none if the model takes no embeddings."""
        if not self.model.can_take_embeddings:
            return []
        most = min(self.model.n_layer - 1, _INPUT_BYTES // (len(self) * self.model.n_embd * 4))
        spaced = np.linspace(1, self.model.n_layer - 1, most) if most > 0 else np.empty(0)
        return sorted({round(layer) for layer in spaced.tolist()})

    def _find_scale(self) -> np.float32:
        """Return the factor for recorded states that makes resuming equal computing: 1, or Gemma's 1 / √n_embd.

        0 if no states were recorded, or no factor makes them equal.
        """
        text = self._texts[0]
        layer, mask = self._resume_below(LayerMask(self.model.n_layer), self.model.n_layer)
        if not layer:
            return np.float32(0)
        with self.context.masked(mask):
            self.context.load(text.state)
            for scale in (np.float32(1), np.float32(self.model.n_embd**-0.5)):
                again = TopLogits.from_logits(
                    self.context.decode_blocks(text.entering[0][layer] * scale, text.batches[0])
                )
                if np.abs(again.log_probs - self.full[: len(again)].log_probs).max() < 1e-3:
                    return scale
        return np.float32(0)

    def _resume_below(self, mask: LayerMask, highest: int) -> tuple[int, bytes]:
        """Return the highest recorded layer up to `highest`, to resume at, and the mask that also skips all below it.

        Returns layer 0 and the mask alone if there is no such layer.
        """
        recorded = (layer for layer in self._texts[0].entering[0] if layer <= highest)
        for layer in sorted(recorded, reverse=True):
            below = LayerMask.of(mask.n_layer, attn={*mask.attn, *range(layer)}, ffn={*mask.ffn, *range(layer)})
            try:
                self.context.check_mask(below.to_bytes())
            except ValueError:  # too few sublayers would remain
                continue
            return layer, below.to_bytes()
        return 0, mask.to_bytes()

    def resume_layer(self, mask: LayerMask) -> tuple[int, bytes]:
        """Return the layer at which passes under `mask` resume (0: they start from the tokens), and their mask.

        Raises ValueError with llama.cpp's reason if it refuses `mask`.
        """
        self.context.check_mask(mask.to_bytes())
        return self._resume_below(mask, mask.first or 0) if self._scale else (0, mask.to_bytes())

    def _run(self, mask: LayerMask, use: Callable[[Floats], T], texts: Sequence[_Text]) -> Iterator[T]:
        """Yield `use` of each batch's logits `[n, n_vocab]`, which are valid until the next batch."""
        layer, skipped = self.resume_layer(mask)
        with self.context.masked(skipped):
            for text in texts:
                self.context.load(text.state)
                for batch, entering in zip(text.batches, text.entering, strict=True):
                    inputs = entering[layer] * self._scale if layer else text.inputs[text.rows(batch)]
                    yield use(self.context.decode_blocks(inputs, batch))


def teacher_forced(model: Model, answers: Sequence[RecordedAnswer], *, n_threads: int | None = None) -> TopLogits:
    """Return the distributions of a model, e.g. a draft model, over the tokens of the verifier's answers, `[n]`."""
    if not answers:
        raise ValueError("there are no answers to read; give at least one prompt")
    n_ctx = max(2, *(len(answer.prompt_tokens) + len(answer.tokens) for answer in answers))
    rows: list[TopLogits] = []
    with closing(Context(model, n_ctx=n_ctx, n_threads=n_threads)) as context:
        for answer in answers:
            context.clear()
            tokens = [*answer.prompt_tokens, *answer.tokens[:-1]]
            rows.append(TopLogits.from_logits(context.decode(tokens, 0, len(answer.tokens))))
    return TopLogits.join(rows)

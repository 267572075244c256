"""From what a user asks for (names, texts, numbers) to a loaded engine."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator, Sequence
from types import TracebackType

from ..catalog.catalog import resolve
from ..engine.engine import Engine
from ..engine.measure import costs_of
from ..engine.policy import Mode, Policy
from ..engine.steps import FinishReason, Step
from ..engine.watch import Watcher
from ..mask import LayerMask
from ..runtime.chat_format import ChatFormat
from ..runtime.context import N_BATCH
from ..runtime.footprint import LoadPlan, plan_of
from ..runtime.limits import DEFAULT_N_CTX
from ..runtime.memory_check import check_memory
from ..runtime.model import Model
from ..runtime.placement import Placement
from ..sampling.sampler import SamplingParams
from ..text import StopStrings
from ..tiers.drafter import Drafter, ModelDrafter, PromptLookup
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Verifier
from .advice import Advice, advise, check
from .settings import Settings
from .text_steps import text_steps

DEFAULT_MAX_TOKENS = 512  # tokens of an answer, where the caller names no limit


class Session:
    """The models and the engine that settings ask for; a context manager that frees them."""

    def __init__(self, settings: Settings) -> None:
        """Load everything; raises ModelError, NativeError or ValueError, with nothing left loaded."""
        self.settings = settings
        self._models: list[Model] = []
        self._open: list[Verifier | Drafter | Engine] = []
        self.finish_reason: FinishReason | None = None
        """Why the last `stream` or `complete` ended: `"stop"` or `"length"`; None if it did not come to its end."""
        try:
            self._load(settings)
        except BaseException:
            with contextlib.suppress(ValueError):  # a part under construction may still hold its model
                self.close()
            raise

    def _load(self, settings: Settings) -> None:
        check(settings)
        if settings.check_memory:
            self._check_memory(settings)
        self.model = self._load_model(settings.verifier, settings.placement)
        advice = self.advice = advise(settings, self.model.path)
        verifier = self._open_verifier(settings, self._n_ctx(settings), self._mask_of(advice))
        self._open.append(verifier)
        drafters = self._load_drafters(settings, advice, verifier, self._open)
        self.engine = self._engine_of(settings, advice, verifier, drafters)
        self._open.append(self.engine)

    def _check_memory(self, settings: Settings) -> None:
        """ModelError if the verifier and the draft model do not fit into memory together."""
        verifier, draft = _plans(settings)
        check_memory([verifier, *draft])

    #
    # text in, text out
    #

    def stream(
        self,
        text: str,
        *,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        sampling: SamplingParams | None = None,
        stop: Sequence[str] = (),
        watcher: Watcher | None = None,
        raw: bool = False,
        chat_template: str | None = None,
    ) -> Generator[str, None, None]:
        """Answer a prompt; yields the answer's text, in whole characters, as soon as it is decided.

        The prompt is rendered as in `prompt_tokens`. `max_tokens` None generates to the end of the context. The answer
        ends before the first of the `stop` strings. `engine.stats` counts while the answer is read; `finish_reason`
        is set at its end. Closing the iterator early leaves the session usable; another call ends this answer. Raises
        ValueError or ModelError at the call for a prompt or a parameter that cannot be used.
        """
        tokens = self.prompt_tokens(text, raw=raw, chat_template=chat_template)
        n, n_ctx = len(tokens), self.engine.verifier.context.n_ctx
        if n > n_ctx or (n == n_ctx and max_tokens != 0):
            raise ValueError(
                f"the prompt has {n} tokens; the context holds {n_ctx} (n_ctx), at least one of them for the answer: "
                "shorten the prompt, or give a larger n_ctx (--n-ctx)"
            )
        steps = self.engine.generate(tokens, max_tokens=max_tokens, sampling=sampling, watcher=watcher)
        self.finish_reason = None
        return self._text_until(StopStrings(stop), steps)

    def complete(
        self,
        text: str,
        *,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        sampling: SamplingParams | None = None,
        stop: Sequence[str] = (),
        watcher: Watcher | None = None,
        raw: bool = False,
        chat_template: str | None = None,
    ) -> str:
        """Answer a prompt and return the whole answer; parameters and exceptions are those of `stream`."""
        answer = self.stream(
            text,
            max_tokens=max_tokens,
            sampling=sampling,
            stop=stop,
            watcher=watcher,
            raw=raw,
            chat_template=chat_template,
        )
        return "".join(answer)

    def prompt_tokens(self, text: str, *, raw: bool = False, chat_template: str | None = None) -> list[int]:
        """The tokens that `stream` prompts with.

        The text becomes a user's message in `chat_template` (Jinja), or else in the chat template of the model. It is
        continued as it is if `raw`, or if there is no template. Raises ModelError if the template cannot be used.
        """
        if raw or (chat_template is None and self.model.chat_template is None):
            return self.model.tokenize_prompt(text) or ([self.model.bos] if self.model.bos >= 0 else [])
        return ChatFormat(self.model, chat_template).tokens([{"role": "user", "content": text}])

    def _text_until(self, stops: StopStrings, steps: Generator[Step, None, None]) -> Generator[str, None, None]:
        with contextlib.closing(text_steps(steps, self.model.piece)) as decoded:
            for step in decoded:
                shown, stopped = stops.push(step.text)
                self.finish_reason = "stop" if stopped else step.finish_reason
                if shown:
                    yield shown
                if stopped:
                    return
        rest = stops.finish()
        if stops.found:
            self.finish_reason = "stop"
        if rest:
            yield rest

    #
    # loading
    #

    def switch(self, settings: Settings) -> None:
        """Go on by other settings with the verifier that is loaded, in a new engine; what fails changes nothing.

        The cache stays, unless the mask changes. Raises ValueError for another verifier, n_ctx, threads or placement,
        and whatever the constructor raises.
        """
        for name in ("verifier", "n_ctx", "threads", "placement"):
            before, after = getattr(self.settings, name), getattr(settings, name)
            if before != after:
                raise ValueError(f"{name} is {before!r} and cannot become {after!r} here; it needs a new start")
        check(settings)
        advice = advise(settings, self.model.path)
        mask = self._mask_of(advice)
        engine, models = self.engine, list(self._models)
        verifier, drafters = engine.verifier, list(engine.drafters)
        made: list[Verifier | Drafter | Engine] = []
        try:
            if mask is not None and mask != verifier.mask:
                verifier = self._open_verifier(settings, verifier.context.n_ctx, mask)
                made.append(verifier)
            if made or _drafting_of(settings, advice) != _drafting_of(self.settings, self.advice):
                if settings.check_memory and advice.choice.mode is not Mode.PLAIN:
                    loaded, draft = _plans(settings)
                    check_memory(draft, loaded=[loaded])
                drafters = self._load_drafters(settings, advice, verifier, made)
            new = self._engine_of(settings, advice, verifier, drafters)
        except BaseException:
            self._discard(made, models)
            raise
        engine.release()
        self.engine = new
        kept: list[Verifier | Drafter | Engine] = [verifier, *drafters]
        before_it, self._open = self._open, [*kept, new]
        self._discard([part for part in before_it if part not in kept and part is not engine], self._used_models())
        self.settings, self.advice = settings, advice

    def _used_models(self) -> list[Model]:
        drafters = self.engine.drafters
        return [self.model, *(drafter.model for drafter in drafters if isinstance(drafter, ModelDrafter))]

    def _discard(self, parts: Sequence[Verifier | Drafter | Engine], models: Sequence[Model]) -> None:
        """Close these parts, and all models but these."""
        for part in reversed(parts):
            part.close()
        for model in self._models:
            if model not in models:
                model.close()
        self._models = [model for model in self._models if model in models]

    def _engine_of(self, settings: Settings, advice: Advice, verifier: Verifier, drafters: Sequence[Drafter]) -> Engine:
        choice = advice.choice
        policy = Policy(choice.mode, settings.draft_tokens, choice.rule, max_deviation=choice.max_deviation)
        automatic = settings.draft_tokens is None and bool(drafters) and verifier.can_rewind
        # on a device it is not certain that resuming pays: hidden states make a round trip
        unsure = self.model.n_devices > 0 and verifier.why_no_resume is None
        costs = None
        if automatic or unsure:
            costs = advice.costs(verifier.mask, verifier.context.n_threads) or costs_of(verifier, drafters)
        return Engine(verifier, list(drafters), policy, costs)

    def _n_ctx(self, settings: Settings) -> int:
        trained = self.model.n_ctx_train
        if settings.n_ctx is not None and settings.n_ctx > trained:
            warnings.warn(
                f"n_ctx is {settings.n_ctx}, but {self.model.path.name} was trained for {trained} tokens",
                RuntimeWarning,
                stacklevel=5,
            )
        return min(DEFAULT_N_CTX, trained) if settings.n_ctx is None else settings.n_ctx

    def _mask_of(self, advice: Advice) -> LayerMask | None:
        mask = advice.choice.mask
        return LayerMask.parse(mask, self.model.n_layer) if mask is not None else None

    def _open_verifier(self, settings: Settings, n_ctx: int, mask: LayerMask | None) -> Verifier:
        return Verifier(self.model, n_ctx=n_ctx, mask=mask, n_threads=settings.threads)

    def _load_model(self, name: str, placement: Placement) -> Model:
        model = Model(resolve(name), placement)
        self._models.append(model)
        return model

    def _load_drafters(
        self, settings: Settings, advice: Advice, verifier: Verifier, made: list[Verifier | Drafter | Engine]
    ) -> list[Drafter]:
        """What the settings name; each is appended to `made` at once, so that nothing is lost if a later one fails."""
        drafters: list[Drafter] = []
        for kind in settings.resolved_drafter.split("+") if advice.choice.mode is not Mode.PLAIN else ():
            drafters.append(self._load_drafter(kind, settings, verifier))
            made.append(drafters[-1])
        return drafters

    def _load_drafter(self, kind: str, settings: Settings, verifier: Verifier) -> Drafter:
        if kind == "lookup":
            return PromptLookup()
        if kind == "self":
            assert settings.draft_mask is not None
            return SelfDrafter(verifier, LayerMask.parse(settings.draft_mask, self.model.n_layer))
        assert settings.draft is not None
        path = resolve(settings.draft)
        same = path.samefile(self.model.path) if path.exists() else False
        shared = same and settings.draft_placement == settings.placement
        draft = self.model if shared else self._load_model(settings.draft, settings.draft_placement)
        return ModelDrafter(draft, self.model, n_ctx=verifier.context.n_ctx, n_threads=settings.threads)

    def close(self) -> None:
        """Free contexts and models."""
        for part in [*reversed(self._open), *reversed(self._models)]:
            part.close()
        self._open.clear()
        self._models.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()


def _plans(settings: Settings) -> tuple[LoadPlan, list[LoadPlan]]:
    """How the verifier will lie in memory, and the draft model if there is one."""
    verifier = plan_of(resolve(settings.verifier), settings.placement, settings.n_ctx, N_BATCH)
    if settings.draft is None:
        return verifier, []
    return verifier, [plan_of(resolve(settings.draft), settings.draft_placement, settings.n_ctx, N_BATCH)]


def _drafting_of(settings: Settings, advice: Advice) -> tuple[str, str | None, str | None, Placement]:
    """What the drafters depend on."""
    if advice.choice.mode is Mode.PLAIN:
        return "none", None, None, settings.draft_placement
    return settings.resolved_drafter, settings.draft, settings.draft_mask, settings.draft_placement

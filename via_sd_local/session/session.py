"""The session: settings in, a loaded engine and the text of answers out."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Sequence
from types import TracebackType

from ..engine import kept_experience
from ..engine.engine import Engine
from ..engine.kept_costs import costs_of, forget
from ..engine.policy import Mode, Policy
from ..engine.steps import FinishReason, Step
from ..engine.watch import Watcher
from ..runtime.chat_format import ChatFormat
from ..runtime.model import Model
from ..sampling.params import SamplingParams
from ..text import StopStrings
from ..tiers.drafter import Drafter
from ..tiers.verifier import Verifier
from .loader import Loader, fitted
from .request import Request
from .settings import Settings
from .text_steps import text_steps

DEFAULT_MAX_TOKENS = 512  # tokens of an answer, where the caller names no limit
_FIXED = ("verifier", "n_ctx", "threads", "placement")  # settings that `switch` cannot change


class Session:
    """The models and the engine of one set of settings; a context manager that frees them.

    `stream` and `complete` answer a text; `engine` generates from token ids.
    """

    def __init__(
        self, settings: Settings, loader: Loader | None = None, *, on_stage: Callable[[str], None] | None = None
    ) -> None:
        """Load everything; raises ModelError, NativeError or ValueError, with nothing left loaded.

        `loader` supplies the verifier and the drafters; the session closes it. `on_stage` is told what is about to be
        done, in a few words, whenever that may take seconds.
        """
        self._on_stage = on_stage or _ignore_stage
        self.settings = settings
        self._loader = loader or Loader()
        self.finish_reason: FinishReason | None = None
        """Why the last `stream` or `complete` ended: `"stop"` or `"length"`; None if it did not come to its end."""
        try:
            self._open(settings.resolve())
        except BaseException:
            with contextlib.suppress(ValueError):  # a part under construction may still hold its model
                self._loader.close()
            raise

    def _open(self, request: Request) -> None:
        loader = self._loader
        if request.check_memory:
            loader.check_memory(request)
        self._on_stage(f"loading {request.verifier.name}")
        self.model = loader.load_verifier(request)
        _warn(request)
        self.route = request.route
        mask = None if self.route.mask is None else fitted(self.route.mask, self.model)
        verifier = loader.open_verifier(request, self.model, mask)
        self._drafters = request.drafters_in_use
        drafters = self._open_drafters(request, verifier)
        self.engine = _engine(request, verifier, drafters, remeasure=request.remeasure)

    def switch(self, settings: Settings) -> None:
        """Continue with other settings and the loaded verifier, in a new engine; a failure changes nothing.

        The KV cache stays unless the mask changes. Raises ValueError for another verifier, n_ctx, threads or placement
        and after `close`, and whatever the constructor raises.
        """
        self.engine.check_open()
        for name in _FIXED:
            before, after = getattr(self.settings, name), getattr(settings, name)
            if before != after:
                raise ValueError(f"{name} is {before!r} and cannot become {after!r} here; it needs a new start")
        request = settings.resolve()
        _warn(request)
        route, specs = request.route, request.drafters_in_use
        loader, verifier, drafters = self._loader, self.engine.verifier, list(self.engine.drafters)
        mask = verifier.mask if route.mask is None else fitted(route.mask, self.model)
        parts = loader.parts
        try:
            if mask != verifier.mask:
                verifier = loader.open_verifier(request, self.model, mask)
            if verifier is not self.engine.verifier or specs != self._drafters:
                if request.check_memory and specs:
                    loader.check_memory(request, is_loaded=True)
                drafters = self._open_drafters(request, verifier)
            engine = _engine(request, verifier, drafters)
        except BaseException:
            loader.close_all_but(parts)
            raise
        self._end_engine()
        loader.close_all_but([verifier, *drafters])
        self.engine, self.settings, self.route, self._drafters = engine, settings, route, specs

    def _open_drafters(self, request: Request, verifier: Verifier) -> list[Drafter]:
        """Open the drafters that a request uses; what follows, for automatic draft lengths, is a measurement."""
        if request.drafters_in_use and request.draft_model is not None:
            self._on_stage(f"loading {request.draft_model.path.name}")
        drafters = [self._loader.open_drafter(request, spec, verifier) for spec in request.drafters_in_use]
        if drafters and request.draft_tokens is None:
            self._on_stage("measuring how long passes take")
        return drafters

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that are loaded, the verifier's first."""
        return self._loader.models

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
        """Return the tokens of the prompt that `stream` evaluates.

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

    def close(self) -> None:
        """Free contexts and models."""
        self._end_engine()
        self._loader.close()

    def _end_engine(self) -> None:
        """Let no other answer begin, keep what was learned, and forget kept costs that answers have disproved."""
        engine = self.engine
        kept_experience.keep(engine.paces, engine.verifier, engine.drafters, engine.policy, engine.stats.blocks)
        engine.release()
        if engine.pace is not None and engine.pace.costs.were_disproved:
            forget(engine.verifier, engine.drafters)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()


def _ignore_stage(_text: str) -> None:
    """Say nothing of what is being done."""


def _warn(request: Request) -> None:
    """Warn of what the user would not expect of the route."""
    if request.route.warning:
        warnings.warn(request.route.warning, RuntimeWarning, stacklevel=5)


def _engine(
    request: Request, verifier: Verifier, drafters: Sequence[Drafter], *, remeasure: bool = False
) -> Engine[Verifier]:
    """Make the engine of a request, with pass costs where it needs them: from the profile, kept, or measured."""
    route = request.route
    length, every, budget = request.draft_tokens, request.audit_every, route.max_deviation
    if route.mode is Mode.VIASD:
        policy = Policy.viasd(length, route.rule, every, budget, write_through=request.write_through)
    else:
        through = request.write_through and route.mode.trusts_slim_tier
        policy = Policy(route.mode, length, route.rule, every, budget, request.router, through)
    is_automatic = policy.draft_tokens is None and bool(drafters) and verifier.can_rewind
    # on a device it is not certain that resuming pays: hidden states make a round trip
    may_resume = verifier.model.n_devices > 0 and verifier.why_no_resume is None
    costs = None
    if is_automatic or may_resume:
        costs = (None if remeasure else route.costs) or costs_of(verifier, drafters, remeasure=remeasure)
    engine = Engine(verifier, list(drafters), policy, costs)
    kept_experience.recall(engine.paces, verifier, drafters, engine.policy)
    return engine

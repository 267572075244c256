"""From what a user asks for (names, texts, numbers) to a loaded engine."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from types import TracebackType

from .catalog import resolve
from .drafters import Drafter, ModelDrafter, PromptLookup
from .engine import Engine
from .gate import DEFAULT_RULE, parse_rule
from .mask import LayerMask
from .measure import costs_of
from .model import Model
from .policy import Policy
from .settings import DEFAULT_N_CTX, Settings
from .tiers import Verifier


class Session:
    """The models and the engine that settings ask for; a context manager that frees them."""

    def __init__(self, settings: Settings) -> None:
        """Load everything; raises ModelError, NativeError or ValueError, with nothing left loaded."""
        self.settings = settings
        self._models: list[Model] = []
        self._open: list[Verifier | Drafter | Engine] = []
        try:
            self._load(settings)
        except BaseException:
            with contextlib.suppress(ValueError):  # a part under construction may still hold its model
                self.close()
            raise

    def _load(self, settings: Settings) -> None:
        policy = _policy_of(settings)
        model = self.model = self._load_model(settings.verifier)
        n_ctx = min(DEFAULT_N_CTX, model.n_ctx_train) if settings.n_ctx is None else settings.n_ctx
        if n_ctx > model.n_ctx_train:
            warnings.warn(
                f"n_ctx is {n_ctx}, but {model.path.name} was trained for {model.n_ctx_train} tokens",
                RuntimeWarning,
                stacklevel=4,
            )
        verifier = Verifier(model, n_ctx=n_ctx, mask=self._mask_of(settings), n_threads=settings.threads)
        self._open.append(verifier)
        drafter = self._load_drafter(settings, n_ctx)
        if drafter is not None:
            self._open.append(drafter)
        self.engine = _engine_of(settings, policy, verifier, drafter)
        self._open.append(self.engine)

    def switch(self, settings: Settings) -> None:
        """Go on by other settings with the verifier that is loaded, in a new engine; what fails changes nothing.

        The cache stays, unless the mask changes. Raises ValueError for another verifier, n_ctx or threads, and whatever
        the constructor raises.
        """
        for name in ("verifier", "n_ctx", "threads"):
            before, after = getattr(self.settings, name), getattr(settings, name)
            if before != after:
                raise ValueError(f"{name} is {before!r} and cannot become {after!r} here; it needs a new start")
        policy, mask = _policy_of(settings), self._mask_of(settings)
        engine, models = self.engine, list(self._models)
        verifier, drafter = engine.verifier, engine.drafter
        n_ctx = verifier.context.n_ctx
        made: list[Verifier | Drafter] = []
        try:
            if mask is not None and mask != verifier.mask:
                verifier = Verifier(self.model, n_ctx=n_ctx, mask=mask, n_threads=settings.threads)
                made.append(verifier)
            if (settings.resolved_drafter, settings.draft) != (self.settings.resolved_drafter, self.settings.draft):
                drafter = self._load_drafter(settings, n_ctx)
                made += [drafter] if drafter is not None else []
            new = _engine_of(settings, policy, verifier, drafter)
        except BaseException:
            self._discard(made, models)
            raise
        engine.release()
        self.engine = new
        kept = [part for part in (verifier, drafter) if part is not None]
        self._open, before_it = [*kept, self.engine], self._open
        self._discard([part for part in before_it if part not in kept and part is not engine], self._used_models())
        self.settings = settings

    def _used_models(self) -> list[Model]:
        drafter = self.engine.drafter
        return [self.model, *([drafter.model] if isinstance(drafter, ModelDrafter) else [])]

    def _discard(self, parts: Sequence[Verifier | Drafter | Engine], models: Sequence[Model]) -> None:
        """Close these parts, and all models but these."""
        for part in reversed(parts):
            part.close()
        for model in self._models:
            if model not in models:
                model.close()
        self._models = [model for model in self._models if model in models]

    def _mask_of(self, settings: Settings) -> LayerMask | None:
        return LayerMask.parse(settings.mask, self.model.n_layer) if settings.mask is not None else None

    def _load_model(self, name: str) -> Model:
        model = Model(resolve(name))
        self._models.append(model)
        return model

    def _load_drafter(self, settings: Settings, n_ctx: int) -> Drafter | None:
        if settings.resolved_drafter == "lookup":
            return PromptLookup()
        if settings.resolved_drafter == "none" or settings.draft is None:
            return None
        path = resolve(settings.draft)
        same = path.samefile(self.model.path) if path.exists() else False
        draft = self.model if same else self._load_model(settings.draft)
        return ModelDrafter(draft, self.model, n_ctx=n_ctx, n_threads=settings.threads)

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


def _policy_of(settings: Settings) -> Policy:
    rule = parse_rule(settings.thresholds) if settings.thresholds is not None else DEFAULT_RULE
    return Policy(settings.resolved_mode, settings.draft_tokens, rule, max_deviation=settings.max_deviation)


def _engine_of(settings: Settings, policy: Policy, verifier: Verifier, drafter: Drafter | None) -> Engine:
    automatic = settings.draft_tokens is None and drafter is not None and verifier.can_rewind
    return Engine(verifier, drafter, policy, costs_of(verifier, drafter) if automatic else None)

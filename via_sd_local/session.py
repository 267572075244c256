"""From what a user asks for (names, texts, numbers) to a loaded engine."""

from __future__ import annotations

import contextlib
import warnings
from types import TracebackType

from .catalog import resolve
from .drafters import Drafter, ModelDrafter, PromptLookup
from .engine import Engine
from .gate import DEFAULT_RULE, parse_rule
from .mask import LayerMask
from .measure import costs_of
from .model import Model
from .placement import Placement
from .policy import Policy
from .self_drafter import SelfDrafter
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
        rule = parse_rule(settings.thresholds) if settings.thresholds is not None else DEFAULT_RULE
        policy = Policy(settings.resolved_mode, settings.draft_tokens, rule, max_deviation=settings.max_deviation)
        model = self.model = self._load_model(settings.verifier, settings.placement)
        n_ctx = min(DEFAULT_N_CTX, model.n_ctx_train) if settings.n_ctx is None else settings.n_ctx
        if n_ctx > model.n_ctx_train:
            warnings.warn(
                f"n_ctx is {n_ctx}, but {model.path.name} was trained for {model.n_ctx_train} tokens",
                RuntimeWarning,
                stacklevel=4,
            )
        mask = LayerMask.parse(settings.mask, model.n_layer) if settings.mask is not None else None
        verifier = Verifier(model, n_ctx=n_ctx, mask=mask, n_threads=settings.threads)
        self._open.append(verifier)
        drafters: list[Drafter] = []
        for kind in settings.resolved_drafter.split("+") if settings.resolved_drafter != "none" else ():
            drafters.append(self._load_drafter(kind, settings, verifier))
            self._open.append(drafters[-1])
        automatic = settings.draft_tokens is None and bool(drafters) and verifier.can_rewind
        # on a device it is not certain that resuming pays: hidden states make a round trip
        unsure = model.n_devices > 0 and verifier.no_resume is None
        costs = costs_of(verifier, drafters) if automatic or unsure else None
        self.engine = Engine(verifier, drafters, policy, costs)
        self._open.append(self.engine)

    def _load_model(self, name: str, placement: Placement) -> Model:
        model = Model(resolve(name), placement)
        self._models.append(model)
        return model

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

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
        rule = parse_rule(settings.thresholds) if settings.thresholds is not None else DEFAULT_RULE
        policy = Policy(settings.resolved_mode, settings.draft_tokens, rule, max_deviation=settings.max_deviation)
        model = self.model = self._load_model(settings.verifier)
        n_ctx = self._n_ctx(settings)
        mask = LayerMask.parse(settings.mask, model.n_layer) if settings.mask is not None else None
        verifier = self._open_verifier(settings, n_ctx, mask)
        self._open.append(verifier)
        drafter = self._load_drafter(settings, n_ctx)
        if drafter is not None:
            self._open.append(drafter)
        automatic = settings.draft_tokens is None and drafter is not None and verifier.can_rewind
        costs = costs_of(verifier, drafter) if automatic else None
        self.engine = Engine(verifier, drafter, policy, costs)
        self._open.append(self.engine)

    def _n_ctx(self, settings: Settings) -> int:
        trained = self.model.n_ctx_train
        if settings.n_ctx is not None and settings.n_ctx > trained:
            warnings.warn(
                f"n_ctx is {settings.n_ctx}, but {self.model.path.name} was trained for {trained} tokens",
                RuntimeWarning,
                stacklevel=5,
            )
        return min(DEFAULT_N_CTX, trained) if settings.n_ctx is None else settings.n_ctx

    def _open_verifier(self, settings: Settings, n_ctx: int, mask: LayerMask | None) -> Verifier:
        return Verifier(self.model, n_ctx=n_ctx, mask=mask, n_threads=settings.threads)

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

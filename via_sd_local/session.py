"""From what a user asks for (names, texts, numbers) to a loaded engine."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from types import TracebackType

from . import profiles
from .catalog import resolve
from .choice import Choice, choose
from .context import default_threads
from .costs import Costs
from .drafters import Drafter, ModelDrafter, PromptLookup
from .engine import Engine
from .gate import parse_rule
from .machine import machine
from .mask import LayerMask
from .measure import costs_of
from .model import Model
from .policy import Mode, Policy
from .profiles import Found
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
        if settings.thresholds is not None:
            parse_rule(settings.thresholds)
        Policy(draft_tokens=settings.draft_tokens)
        path = resolve(settings.verifier)
        uses_draft = settings.resolved_drafter == "model" and settings.draft is not None
        draft = resolve(settings.draft) if uses_draft and settings.draft is not None else None
        model = self.model = self._load_model(path)
        self.profile = self._find_profile(settings, path, draft)
        choice = self.choice = self._choose(settings)
        policy = Policy(choice.mode, settings.draft_tokens, choice.rule, max_deviation=choice.max_deviation)
        n_ctx = min(DEFAULT_N_CTX, model.n_ctx_train) if settings.n_ctx is None else settings.n_ctx
        if n_ctx > model.n_ctx_train:
            warnings.warn(
                f"n_ctx is {n_ctx}, but {model.path.name} was trained for {model.n_ctx_train} tokens",
                RuntimeWarning,
                stacklevel=4,
            )
        mask = LayerMask.parse(choice.mask, model.n_layer) if choice.mask is not None else None
        verifier = Verifier(model, n_ctx=n_ctx, mask=mask, n_threads=settings.threads)
        self._open.append(verifier)
        drafter = self._load_drafter(settings, draft, n_ctx) if choice.mode is not Mode.PLAIN else None
        if drafter is not None:
            self._open.append(drafter)
        automatic = settings.draft_tokens is None and drafter is not None and verifier.can_rewind
        costs = (self._known_costs(verifier) or costs_of(verifier, drafter)) if automatic else None
        self.engine = Engine(verifier, drafter, policy, costs)
        self._open.append(self.engine)

    def _find_profile(self, settings: Settings, verifier: Path, draft: Path | None) -> Found | None:
        """The profile that the settings name, or the one that fits; ModelError for a named one that does not."""
        if settings.profile is None:
            return None
        if settings.profile == "auto":
            # where nothing could come of it, not even a look at the files
            given = settings.mask is not None and settings.thresholds is not None
            if given or settings.mode == Mode.SD.value or settings.resolved_mode is Mode.PLAIN:
                return None
            return profiles.find(verifier, draft)
        return profiles.matching(profiles.named(settings.profile), verifier, draft)

    def _choose(self, settings: Settings) -> Choice:
        found = self.profile
        threads = settings.threads or default_threads()
        here = found is not None and found.profile.costs_on(machine(), threads) is not None
        pair = found is not None and found.pair
        choice = choose(settings, found.profile if found else None, pair=pair, here=here)
        if choice.doubt:
            warnings.warn(choice.doubt, RuntimeWarning, stacklevel=5)
        return choice

    def _known_costs(self, verifier: Verifier) -> Costs | None:
        """The profile's, where they were measured here, with this draft model and what the slim tier is."""
        found = self.profile
        if found is None or not found.pair:
            return None
        if verifier.mask and verifier.mask != LayerMask.parse(found.profile.mask, verifier.model.n_layer):
            return None
        return found.profile.costs_on(machine(), verifier.context.n_threads)

    def _load_model(self, path: Path) -> Model:
        model = Model(path)
        self._models.append(model)
        return model

    def _load_drafter(self, settings: Settings, path: Path | None, n_ctx: int) -> Drafter | None:
        if settings.resolved_drafter == "lookup":
            return PromptLookup()
        if path is None:
            return None
        same = path.samefile(self.model.path) if path.exists() else False
        draft = self.model if same else self._load_model(path)
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

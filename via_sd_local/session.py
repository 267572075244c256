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
from .placement import DEFAULT, Placement
from .policy import Mode, Policy
from .profiles import Found
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
        if settings.thresholds is not None:
            parse_rule(settings.thresholds)
        Policy(draft_tokens=settings.draft_tokens)
        path = resolve(settings.verifier)
        draft = resolve(settings.draft) if settings.draft is not None else None
        model = self.model = self._load_model(path, settings.placement)
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
        drafters: list[Drafter] = []
        for kind in settings.resolved_drafter.split("+") if choice.mode is not Mode.PLAIN else ():
            drafters.append(self._load_drafter(kind, settings, verifier, draft))
            self._open.append(drafters[-1])
        automatic = settings.draft_tokens is None and bool(drafters) and verifier.can_rewind
        # on a device it is not certain that resuming pays: hidden states make a round trip
        unsure = model.n_devices > 0 and verifier.no_resume is None
        costs = (self._known_costs(verifier) or costs_of(verifier, drafters)) if automatic or unsure else None
        self.engine = Engine(verifier, drafters, policy, costs)
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
        placed = settings.placement == settings.draft_placement == DEFAULT
        here = found is not None and placed and found.profile.costs_on(machine(), threads) is not None
        pair = self._is_pair(settings)
        choice = choose(settings, found.profile if found else None, pair=pair, here=here)
        if choice.doubt:
            warnings.warn(choice.doubt, RuntimeWarning, stacklevel=5)
        return choice

    def _known_costs(self, verifier: Verifier) -> Costs | None:
        """The profile's, where they were measured here, with this draft model and what the slim tier is."""
        found = self.profile
        placed = self.settings.placement == self.settings.draft_placement == DEFAULT
        if found is None or not (self._is_pair(self.settings) and placed):
            return None
        if verifier.mask and verifier.mask != LayerMask.parse(found.profile.mask, verifier.model.n_layer):
            return None
        return found.profile.costs_on(machine(), verifier.context.n_threads)

    def _is_pair(self, settings: Settings) -> bool:
        """Whether what drafts is what the profile was made with: its draft model, and nothing else."""
        return self.profile is not None and self.profile.pair and settings.resolved_drafter == "model"

    def _load_model(self, path: Path, placement: Placement) -> Model:
        model = Model(path, placement)
        self._models.append(model)
        return model

    def _load_drafter(self, kind: str, settings: Settings, verifier: Verifier, path: Path | None) -> Drafter:
        if kind == "lookup":
            return PromptLookup()
        if kind == "self":
            assert settings.draft_mask is not None
            return SelfDrafter(verifier, LayerMask.parse(settings.draft_mask, self.model.n_layer))
        assert path is not None
        same = path.samefile(self.model.path) if path.exists() else False
        shared = same and settings.draft_placement == settings.placement
        draft = self.model if shared else self._load_model(path, settings.draft_placement)
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

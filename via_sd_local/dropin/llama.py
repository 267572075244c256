"""The drop-in for `llama_cpp.Llama`: its constructor, and `install`, which puts it in place of the original."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..interrupts import interrupts_after
from ..native_log import take_errors
from ..runtime.memory_check import check_memory as refuse_too_large
from ..tiers.drafter import Drafter
from .arguments import read_whole, warn_without_effect
from .chat_completion import add_bos_to_templates
from .completions import Completions
from .drafter_defaults import install_defaults, with_defaults
from .engine_loading import generates_text, open_session
from .load_plan import plans_of
from .message_text import MessageText
from .options import TierOptions
from .original import Original
from .paths import model_file, path_text
from .pretrained import fetch
from .runner import Runner
from .seeds import RANDOM_SEED
from .shared_context import SharedContext
from .verbose import show_log

# wrappers pass these, and the original has no use for them either
_OBSOLETE = {"device", "f16_kv", "low_vram", "mul_mat_q", "n_gqa", "n_parts", "rms_norm_eps"}


class Llama(Completions):
    """`llama_cpp.Llama` (0.3.36) with a drafter and a slim tier; every argument and method keeps its meaning.

    An object runs one generation at a time. A call from another thread waits, and a call from within a callback
    raises RuntimeError. A new call ends a stream that is left half read (`Turns` says when).
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        draft_model_path: str | os.PathLike[str] | None = None,
        drafter: str | Drafter = "auto",
        mode: str = "auto",
        profile: str | None = "auto",
        max_deviation: float | None = None,
        draft_tokens: int | None = None,
        router: str | None = None,
        audit_every: int | str | None = None,
        write_through: bool = False,
        draft_mask: str | None = None,
        mask: str | None = None,
        thresholds: str | None = None,
        draft_n_gpu_layers: int | None = None,
        draft_n_threads: int | None = None,
        check_memory: bool = True,
        message_control_tokens: bool = False,
        remeasure: bool = False,
        draft_model: Any = None,
        logits_all: bool = False,
        seed: int | None = RANDOM_SEED,
        verbose: bool = True,
        **original: Any,
    ) -> None:
        """Load the model, and the draft model if there is one.

        Raises ValueError, TypeError, ModelError or NativeError, with nothing left loaded.

        Parameters
        ----------
        model_path, draft_model_path
            GGUF files, or names from the catalogue.
        drafter
            `auto` (the draft model if there is one), `lookup` (tokens that followed the same n-gram before), `self`,
            a chain like `lookup+model`, `none`, or a `Drafter` object, which no profile applies to.
        mode, profile, max_deviation, draft_tokens, router, audit_every, write_through, draft_mask, mask, thresholds
            The fields of `Settings`. Mode `auto` stays lossless unless `max_deviation` is above 0.
        draft_n_gpu_layers, draft_n_threads
            GPU layers and threads of the draft model; by default the verifier's.
        check_memory
            Refuse models that exceed the available main memory by an estimate.
        message_control_tokens
            Let control tokens that are typed in chat messages, such as `<|im_end|>`, be control tokens, as in
            llama-cpp-python; otherwise they are text.
        remeasure
            Time passes anew, instead of using costs that an earlier process or the profile has measured.
        draft_model
            A draft model of llama-cpp-python (`LlamaDraftModel`), in place of `drafter`.
        logits_all
            Keep the logits of every decoded position in `scores`; log-probabilities do not need it.
        seed
            Makes the sequence of all calls reproducible; -1 or None is random in every process.
        **original
            llama-cpp-python's other arguments.
        """
        path = model_file("model_path", model_path)
        draft_path = None if draft_model_path is None else model_file("draft_model_path", draft_model_path)
        for name in ("lora_path", "lora_base"):
            if original.get(name) is not None:
                original[name] = path_text(name, original[name])
        draft_path, drafter, mode = with_defaults(draft_path, drafter, mode, draft_model)
        self._options = TierOptions(
            draft_model_path=draft_path,
            drafter=drafter,
            mode=mode,
            profile=profile,
            max_deviation=max_deviation,
            draft_tokens=draft_tokens,
            router=router,
            audit_every=audit_every,
            write_through=write_through,
            draft_mask=draft_mask,
            mask=mask,
            thresholds=thresholds,
            draft_n_gpu_layers=draft_n_gpu_layers,
            draft_n_threads=draft_n_threads,
            check_memory=check_memory,
            message_control_tokens=message_control_tokens,
            remeasure=remeasure,
        )
        known = set(inspect.signature(Original.__init__).parameters) | _OBSOLETE
        if unknown := {name for name, value in original.items() if value is not None} - known:
            warnings.warn(f"Llama does not know the argument {min(unknown)!r}", RuntimeWarning, stacklevel=2)
        n_ctx = read_whole("n_ctx", original.get("n_ctx"))
        if n_ctx is not None and n_ctx < 0:
            raise ValueError(
                f"n_ctx is {n_ctx}; it must be a number of positions, or 0 for the length the model was trained for"
            )
        self._options.check(draft_model)
        show_log(verbose)
        if original.get("n_threads_batch") is None:
            original["n_threads_batch"] = original.get("n_threads")
        if check_memory:
            refuse_too_large(plans_of(path, original, draft_path, draft_n_gpu_layers))
        try:
            with interrupts_after():
                self._load_original(path, verbose, original)
            self.draft_model, self._logits_all = draft_model, logits_all
            self.set_seed(RANDOM_SEED if seed is None else seed)
            if generates_text(self):
                self._load_engine()
        except BaseException:
            self.close()
            raise

    def _load_original(self, model_path: str, verbose: bool, original: dict[str, Any]) -> None:
        """Run llama-cpp-python's constructor, and add llama.cpp's reason to its errors."""
        take_errors()
        try:
            super().__init__(model_path, verbose=verbose, **original)
        except ValueError as error:
            reasons = take_errors()
            if not reasons:
                raise
            raise ValueError(f"{error}: {reasons[0].strip()}") from None
        if self.lora_path and not self._lora_adapter:  # the original goes on with a null pointer
            reason = next(iter(take_errors()), "it cannot be loaded").strip()
            raise ModelError(f"{self.lora_path}: this is no LoRA adapter of {Path(model_path).name}: {reason}")

    def _load_engine(self) -> None:
        """Open the engine on the loaded context."""
        self._set_embeddings(False)
        session = open_session(self, self._options, self.draft_model)
        self._stack.callback(session.close)
        shared = SharedContext(session.engine.verifier, self._tokens, keeps_all=self._logits_all)
        self._runner = Runner(session, shared, self._turns, self._seeds, self._states)
        if not self._options.message_control_tokens:
            self._message_text = MessageText(session.model.control_texts)
        add_bos_to_templates(self)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: list[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        local_dir_use_symlinks: bool | str = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        draft_repo_id: str | None = None,
        draft_filename: str | None = None,
        **kwargs: Any,
    ) -> Llama:
        """Download a model from the Hugging Face hub, and the draft model that `draft_filename` names, and load them.

        File names may be patterns that match one file. `draft_repo_id` defaults to `repo_id`; `kwargs` go to the
        constructor. Raises ValueError for a name that matches no file or several, ModelError where the hub cannot be
        reached.
        """
        warn_without_effect(local_dir_use_symlinks=(local_dir_use_symlinks, "auto"))
        if draft_repo_id is not None and draft_filename is None:
            raise ValueError(f"draft_repo_id is {draft_repo_id!r}; name a file in that repository, too: draft_filename")
        if draft_filename is not None:
            if kwargs.get("draft_model_path") is not None:
                raise ValueError("draft_filename and draft_model_path both name a draft model; pass only one of them")
            kwargs["draft_model_path"] = fetch(
                draft_repo_id or repo_id, draft_filename, local_dir=local_dir, cache_dir=cache_dir
            )
        path = fetch(repo_id, filename, additional_files, local_dir=local_dir, cache_dir=cache_dir)
        return cls(path, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, **self._options.to_arguments()}


def install(
    *, draft_model_path: str | os.PathLike[str] | None = None, drafter: str | None = None, mode: str | None = None
) -> None:
    """Replace `llama_cpp.Llama` by the drop-in, for libraries that import it from there, now or later.

    The arguments hold for every object that names neither a drafter nor a mode; without them, the environment variables
    `VIA_SD_DRAFT`, `VIA_SD_DRAFTER` and `VIA_SD_MODE` do. Raises ModelError for a draft model that is not there.
    """
    install_defaults(draft_model_path, drafter, mode)
    package: Any = sys.modules["llama_cpp"]
    package.Llama = package.llama.Llama = Llama

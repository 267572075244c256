"""The drop-in: llama-cpp-python's `Llama` with drafts and tiers, and a completion layer of its own."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..binding import llama
from ..catalog import lookup
from ..errors import ModelError
from ..interrupts import interrupts_after
from ..native_log import take_errors
from ..runtime.context import Context
from ..runtime.memory_check import check_memory as refuse_too_large
from ..runtime.model import Model
from ..runtime.placement import DEFAULT, Placement
from ..sampling.chain import make_sampler
from ..session.session import Session
from ..session.settings import Settings
from ..tiers.drafter import Drafter
from ..tiers.llama_cpp_drafter import LlamaDraftModelDrafter
from . import chat_completion
from .adopted import AdoptedLoader
from .load_plan import plans_of
from .low_level import LowLevel, Original
from .pretrained import fetch
from .prompt import check_ignored, read_prompt
from .request import (
    RANDOM_SEED,
    Request,
    read_callbacks,
    read_logprobs,
    read_max_tokens,
    read_sampling,
    read_stops,
    read_whole,
)
from .responses import Envelope, usage_of
from .runner import Runner
from .verbose import show_log

_OBSOLETE = {"f16_kv", "n_parts", "low_vram", "mul_mat_q", "n_gqa", "rms_norm_eps"}  # once known, still passed on


class Llama(LowLevel):
    """`llama_cpp.Llama` (0.3.36) with a drafter and a slim tier; every argument and method keeps its meaning.

    One generation at a time: calls from other threads wait, a call from within a callback raises RuntimeError. A new
    call ends a stream that the same thread has left half read.
    """

    def __init__(
        self,
        model_path: str,
        *,
        draft_model_path: str | None = None,
        drafter: str | Drafter = "auto",
        mode: str = "auto",
        profile: str | None = "auto",
        max_deviation: float | None = None,
        draft_tokens: int | None = None,
        draft_mask: str | None = None,
        mask: str | None = None,
        thresholds: str | None = None,
        draft_n_gpu_layers: int | None = None,
        draft_n_threads: int | None = None,
        check_memory: bool = True,
        draft_model: Any = None,
        logits_all: bool = False,
        seed: int | None = RANDOM_SEED,
        verbose: bool = True,
        **original: Any,
    ) -> None:
        """Load the model, and the drafter if there is one.

        `model_path` and `draft_model_path` are files, or names of the catalogue. `drafter` is `auto` (the draft model
        if there is one), `lookup` (what followed the same tokens before), `none`, or a `Drafter`; `draft_model` is a
        draft model of llama-cpp-python. `mode`, `profile`, `max_deviation`, `draft_tokens`, `mask` and `thresholds` are
        those of `Settings`, but that an object as drafter has no profile; `mode` auto never lets the text differ unless
        `max_deviation` is above 0. The draft model has the verifier's GPU layers and threads unless
        `draft_n_gpu_layers` and `draft_n_threads` say otherwise. `check_memory` refuses to load what does not fit into
        main memory by an estimate.

        `seed` -1 or None is a random one in every process, any other makes all calls reproducible. `logits_all` keeps
        the logits of every evaluated position in `scores`; log-probabilities do not need it. All other arguments are
        llama-cpp-python's. Raises ValueError, ModelError or NativeError, with nothing left loaded.
        """
        self._ours: dict[str, Any] = {
            "draft_model_path": draft_model_path,
            "drafter": drafter,
            "mode": mode,
            "profile": profile,
            "max_deviation": max_deviation,
            "draft_tokens": draft_tokens,
            "draft_mask": draft_mask,
            "mask": mask,
            "thresholds": thresholds,
            "draft_n_gpu_layers": draft_n_gpu_layers,
            "draft_n_threads": draft_n_threads,
            "check_memory": check_memory,
        }
        unknown = set(original) - set(inspect.signature(Original.__init__).parameters) - _OBSOLETE
        if unknown:
            warnings.warn(f"Llama does not know the argument {min(unknown)!r}", RuntimeWarning, stacklevel=2)
        n_ctx = read_whole("n_ctx", original.get("n_ctx"))
        if n_ctx is not None and n_ctx < 0:
            raise ValueError(f"n_ctx is {n_ctx}; it is a number of positions, or 0 for what the model was trained for")
        if not isinstance(drafter, str | Drafter):
            raise TypeError(f"drafter is {drafter!r}; it is a name, or of a subclass of via_sd_local.drafters.Drafter")
        if draft_model is not None and not (draft_model_path is None and drafter == "auto"):
            raise ValueError("draft_model is a drafter; give one of draft_model, draft_model_path and drafter")
        if draft_n_threads is not None and draft_model_path is None:
            raise ValueError("draft_n_threads is given, but there is no draft model (draft_model_path)")
        if (
            draft_tokens is not None
            and draft_model_path is None
            and draft_model is None
            and drafter in ("auto", "none")
        ):
            raise ValueError(
                "draft_tokens is given, but nothing drafts: name a draft model (draft_model_path) or a drafter"
            )
        show_log(verbose)
        path = _file_of(model_path)
        if check_memory:
            refuse_too_large(plans_of(path, original, draft_model_path, draft_n_gpu_layers))
        try:
            with interrupts_after():
                self._load_original(path, verbose, original)
            self.draft_model, self._logits_all = draft_model, logits_all
            self.set_seed(RANDOM_SEED if seed is None else seed)
            self._load_engine()
        except BaseException:
            self.close()
            raise

    def _load_original(self, model_path: str, verbose: bool, original: dict[str, Any]) -> None:
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
        self.input_ids = np.zeros(self._n_ctx, dtype=np.intc)

    def _load_engine(self) -> None:
        """The engine on the loaded context; none where the model cannot generate (an encoder)."""
        model = self._model.model
        if llama.llama_model_has_encoder(model) or not llama.llama_model_has_decoder(model) or not self._ctx.memory:
            return
        self._set_embeddings(False)
        given = self._ours["drafter"] if not isinstance(self._ours["drafter"], str) else None
        if self.draft_model is not None:
            given = LlamaDraftModelDrafter(self.draft_model)
        placement, draft_placement = self._placements()
        settings = Settings(
            self.model_path,
            draft=self._ours["draft_model_path"],
            drafter="lookup" if given is not None else self._ours["drafter"],
            draft_mask=self._ours["draft_mask"],
            mode=self._ours["mode"],
            profile=self._ours["profile"] if given is None else None,  # a profile is of a pair that it knows
            mask=self._ours["mask"],
            thresholds=self._ours["thresholds"],
            max_deviation=self._ours["max_deviation"],
            draft_tokens=self._ours["draft_tokens"],
            n_ctx=self._n_ctx,
            threads=self.n_threads,
            placement=placement,
            draft_placement=draft_placement,
            check_memory=False,  # done before the verifier was loaded
        )
        context = Context.borrow(Model.borrow(self.model_path, model, placement), self._ctx.ctx)
        keeps_all = self.context_params.swa_full or not llama.llama_model_n_swa(model)
        if not keeps_all and settings.drafter_kinds:
            raise ValueError(
                "swa_full is False; a cache that forgets cannot take drafts back: leave out one of the two"
            )
        loader = AdoptedLoader(context, given, self._ours["draft_n_threads"], can_rewind=keeps_all)
        session = Session(settings, loader)
        self._stack.callback(session.close)
        self._runner = Runner(self, session, logits_all=self._logits_all)
        self._use_one_bos()

    def _placements(self) -> tuple[Placement, Placement]:
        """Where the verifier lies, and where the draft model is to lie: the same, unless asked otherwise."""
        layers = min(self.model_params.n_gpu_layers, llama.llama_model_n_layer(self._model.model) + 1)
        placement = Placement(n_gpu_layers=layers)
        if self._ours["draft_model_path"] is None:
            if self._ours["draft_n_gpu_layers"] is not None:
                raise ValueError("draft_n_gpu_layers is given, but there is no draft model (draft_model_path)")
            return placement, DEFAULT
        wanted = self._ours["draft_n_gpu_layers"]
        return placement, placement if wanted is None else Placement(n_gpu_layers=wanted)

    def _use_one_bos(self) -> None:
        """Let the file's chat templates have a BOS where the model wants one, whether they write it or not."""
        if not self._model.add_bos_token():
            return
        bos, eos = (self._model.token_get_text(token) for token in (self.token_bos(), self.token_eos()))
        for name in self._chat_handlers:
            key = "tokenizer.chat_template" if name == "chat_template.default" else f"tokenizer.{name}"
            template = self.metadata.get(key) or self.metadata.get(f"tokenizer.chat_template.{name}")
            if template is not None:
                self._chat_handlers[name] = chat_completion.one_bos_handler(template, bos, eos, self.token_eos())

    #
    # completions
    #

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | int | Sequence[str | int] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        grammar: Any = None,
        logit_bias: Mapping[Any, float] | None = None,
        stream_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Continue a text (or tokens); a response dict, or an iterator of chunks if `stream`.

        `max_tokens` None or below 0 is to the end of the context, 0 is none. `stop` takes token ids, too; the stop that
        is complete first counts, and it is not part of the text. `stream_options={"include_usage": True}` ends a stream
        with a chunk that has the usage. `usage["via_sd"]` has the statistics of the run. Raises ValueError or TypeError
        for bad arguments, at the call.
        """
        run = self._run
        streams_usage = chat_completion.includes_usage(stream_options, stream)
        check_ignored(tfs_z=(tfs_z, 1.0))
        processors, criteria = read_callbacks(logits_processor, stopping_criteria)
        stops, stop_tokens = read_stops(stop)
        sampling = read_sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            mirostat_mode=mirostat_mode,
            mirostat_tau=mirostat_tau,
            mirostat_eta=mirostat_eta,
            penalty_last_n=self.last_n_tokens_size,
            grammar=grammar,
            logit_bias=logit_bias,
        )
        run.check_open()
        make_sampler(run.model, sampling).close()  # a grammar that does not parse is an error now
        request = Request(
            read_prompt(self, prompt, suffix),
            sampling,
            processors,
            read_max_tokens(max_tokens),
            stops,
            stop_tokens,
            criteria,
            read_logprobs(logprobs),
            echo,
            read_whole("seed", seed),
        )
        run.check(request)
        envelope = Envelope(model or self.model_path, logprobs=logprobs is not None, streams_usage=streams_usage)
        if stream:
            return self._stream(request, envelope, streams_usage)
        deltas = []
        for progress in run.answer(request):
            deltas += progress.deltas
        return envelope.whole(deltas, progress.reason, self._usage(request, progress.stats))

    def _stream(self, request: Request, envelope: Envelope, with_usage: bool) -> Iterator[dict[str, Any]]:
        with contextlib.closing(self._run.answer(request)) as steps:
            for progress in steps:
                for delta in progress.deltas:
                    yield envelope.chunk(delta)
        usage = self._usage(request, progress.stats)
        yield envelope.last_chunk(progress.reason)
        if with_usage:
            yield envelope.usage_chunk(usage)

    def _usage(self, request: Request, stats: dict[str, Any] | None) -> dict[str, Any]:
        usage = usage_of(stats or {}, len(request.prompt.tokens))
        chat_completion.note_usage(usage)
        return usage

    def __call__(self, prompt: str | Sequence[int], *args: Any, **kwargs: Any) -> Any:
        """`create_completion`."""
        return self.create_completion(prompt, *args, **kwargs)

    def create_chat_completion(self, *args: Any, stream_options: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """Answer a conversation, by the model's chat format; the arguments are llama-cpp-python's.

        Also here: `stream_options` as in `create_completion`, a `response_format` of type `json_schema`, and `logprobs`
        without `top_logprobs`.
        """
        given = _CHAT.bind(self, *args, **kwargs).arguments
        given["messages"] = messages = given["messages"] if isinstance(given["messages"], str) else [*given["messages"]]
        if not all(isinstance(message, Mapping) for message in messages):
            raise TypeError(
                f'messages is {messages!r:.80}; it must be a list like [{{"role": "user", "content": "…"}}]'
            )
        del given["self"]
        given["response_format"] = chat_completion.read_response_format(given.get("response_format"))
        if given.get("logprobs") and given.get("top_logprobs") is None:
            given["top_logprobs"] = 0
        if chat_completion.includes_usage(stream_options, given.get("stream", False)):
            return chat_completion.with_usage(lambda: super(Llama, self).create_chat_completion(**given))
        return super().create_chat_completion(**given)

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
        """Fetch a model from the hub, and a draft model if `draft_filename` names one; file names may be patterns.

        `draft_repo_id` is the same repository unless it is given. `kwargs` go to the constructor. Raises ValueError for
        a name that fits no file or several, ModelError where the hub cannot be reached.
        """
        check_ignored(local_dir_use_symlinks=(local_dir_use_symlinks, "auto"))
        if draft_repo_id is not None and draft_filename is None:
            raise ValueError(f"draft_repo_id is {draft_repo_id!r}; name the file in it, too (draft_filename)")
        if draft_filename is not None:
            if kwargs.get("draft_model_path") is not None:
                raise ValueError("draft_filename and draft_model_path both name a draft model; give one of them")
            kwargs["draft_model_path"] = fetch(
                draft_repo_id or repo_id, draft_filename, local_dir=local_dir, cache_dir=cache_dir
            )
        path = fetch(repo_id, filename, additional_files, local_dir=local_dir, cache_dir=cache_dir)
        return cls(path, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, **self._ours}


_CHAT = inspect.signature(Original.create_chat_completion)


def _file_of(model: str) -> str:
    """The file of a path, or of a name of the catalogue."""
    if not Path(model).exists() and lookup.is_known(model):
        return str(lookup.resolve(model))
    return str(model)


def install() -> None:
    """Make `llama_cpp.Llama` ours, for programs and libraries that import it from there (also those imported later)."""
    package: Any = sys.modules["llama_cpp"]
    package.Llama = package.llama.Llama = Llama

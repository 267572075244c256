"""Shared by the tests: the two real models, and short ways to open what must be closed again."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import tiny

from via_sd_local.mask import LayerMask
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import DEFAULT, Placement
from via_sd_local.tiers.verifier import Verifier

pytest.register_assert_rewrite("commands", "conversations", "generations", "patching", "pulls", "testbeds")

THREADS = 1  # two threads on a shared machine can stall each other for seconds


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct; fetched if it is not here."""
    from via_sd_local.catalog.puller import pull

    return pull("smollm2-135m")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma-3-270M; fetched if it is not here."""
    from via_sd_local.catalog.puller import pull

    return pull("gemma-3-270m")


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[Model]:
    with closing(Model(smollm2_path)) as model:
        yield model


@pytest.fixture(scope="session")
def gemma(gemma_path: Path) -> Iterator[Model]:
    with closing(Model(gemma_path)) as model:
        yield model


@pytest.fixture(autouse=True)
def _costs_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured costs of the tests' models stay out of the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "costs"
    monkeypatch.setattr("via_sd_local.engine.measure._folder", lambda: folder)


@pytest.fixture(autouse=True)
def profiles_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests' own folder of profiles, empty at first: neither the user's nor the package's change what is tested."""
    folder = tmp_path / "profiles"
    monkeypatch.setattr("via_sd_local.profiles.store.folder", lambda: folder)
    monkeypatch.setattr("via_sd_local.profiles.store.SHIPPED", ())
    return folder


def pytest_configure() -> None:
    """Programs that the tests start must hear Ctrl-C, also where this one was started in the background, without it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Close what llama-cpp-python leaves open at exit."""
    utils = sys.modules.get("llama_cpp._utils")
    for file in (getattr(utils, "outnull_file", None), getattr(utils, "errnull_file", None)):
        if file is not None:
            file.close()


@pytest.fixture
def keep() -> Iterator[Callable[[Any], Any]]:
    """`keep(x)` returns x and closes it after the test, the last one first."""
    with ExitStack() as stack:
        yield lambda thing: stack.enter_context(closing(thing))


@pytest.fixture
def tiny_model(tmp_path: Path, keep: Callable[[Any], Any]) -> Callable[..., Model]:
    """`tiny_model(spec, tensors=None, placement=…, **options of tiny.write)` writes and loads a tiny model."""

    def make(
        spec: tiny.Spec, tensors: tiny.Tensors | None = None, placement: Placement = DEFAULT, **options: Any
    ) -> Model:
        number = len(list(tmp_path.glob("*.gguf")))
        model: Model = keep(Model(tiny.write(tmp_path / f"{number}.gguf", spec, tensors, **options), placement))
        return model

    return make


@pytest.fixture
def context(keep: Callable[[Any], Any]) -> Callable[..., Context]:
    """`context(model, n_ctx=256)` opens a context."""
    return lambda model, n_ctx=256: keep(Context(model, n_ctx=n_ctx, n_threads=THREADS))


@pytest.fixture
def verifier(keep: Callable[[Any], Any]) -> Callable[..., Verifier]:
    """`verifier(model, mask text, n_ctx=256)` opens a verifier."""

    def make(model: Model, mask: str = "", n_ctx: int = 256, **options: Any) -> Verifier:
        parsed = LayerMask.parse(mask, model.n_layer)
        made: Verifier = keep(Verifier(model, n_ctx=n_ctx, mask=parsed, n_threads=THREADS, **options))
        return made

    return make

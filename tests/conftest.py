"""Shared by the tests: rings, a cache folder of their own, the two real models, and short ways to open and close.

Nothing here imports the compiled library before a test asks for it, so that the rings `pure` and `engine` run without.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from via_sd_local.files import cache_folder
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.placement import DEFAULT, Placement

if TYPE_CHECKING:
    import tiny

    from via_sd_local.runtime.context import Context
    from via_sd_local.runtime.model import Model
    from via_sd_local.tiers.verifier import Verifier

pytest.register_assert_rewrite("commands", "conversations", "generations", "patching", "pulls", "testbeds")

_HOME = pytest.StashKey[tuple[Path, str | None]]()
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
    from via_sd_local.runtime.model import Model

    with closing(Model(smollm2_path)) as model:
        yield model


@pytest.fixture(scope="session")
def gemma(gemma_path: Path) -> Iterator[Model]:
    from via_sd_local.runtime.model import Model

    with closing(Model(gemma_path)) as model:
        yield model


@pytest.fixture(autouse=True)
def profiles_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests' own folder of profiles, empty at first: neither the user's nor the package's change what is tested."""
    folder = tmp_path / "profiles"
    monkeypatch.setattr("via_sd_local.profiles.store.folder", lambda: folder)
    monkeypatch.setattr("via_sd_local.profiles.store.SHIPPED", ())
    return folder


@pytest.fixture(autouse=True)
def experience_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder of what paces learned, empty at first, so that no test depends on those before it."""
    folder = tmp_path / "experience"
    monkeypatch.setattr("via_sd_local.engine.kept_experience._folder", lambda: folder)
    return folder


RINGS = ("pure", "engine", "native", "model", "packaging", "clients")
TINY_MODELS = {"tiny_model", "context", "verifier"}
REAL_MODELS = {"smollm2", "smollm2_path", "gemma", "gemma_path"}
FAST_RINGS = "pure or engine"  # as in the Makefile


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its ring: that of its folder, or of the models that it asks for, unless it names its own."""
    for item in items:
        if any(item.get_closest_marker(ring) for ring in RINGS):
            continue
        ring, fixtures = item.path.parent.name, set(getattr(item, "fixturenames", ()))
        # tests that get a fixture by its name have the name among their parameters
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        fixtures |= {value for value in parameters.values() if isinstance(value, str)}
        if ring != "packaging" and REAL_MODELS & fixtures:
            ring = "model"
        elif ring in ("pure", "engine") and TINY_MODELS & fixtures:
            ring = "native"
        if ring in RINGS:
            item.add_marker(ring)


class _NoLibrary:
    """An import hook that refuses the compiled library and llama-cpp-python."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in ("via_sd_local.binding", "llama_cpp"):
            raise ImportError(f"{name} belongs to the rings that need the compiled library", name=name)


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests a cache folder of their own, and let the programs that they start hear Ctrl-C.

    A run of the fast rings alone refuses to import the compiled library, also where there is one.

    The models and the sources of llama.cpp, which take minutes to fetch, are those of the user's cache; a model that is
    absent there is fetched into it, as `make chat` does. All else that is written goes to the tests' folder.
    """
    if config.getoption("markexpr") == FAST_RINGS:
        sys.meta_path.insert(0, _NoLibrary())
    real, home = cache_folder(), Path(tempfile.mkdtemp(prefix="via-sd-tests-"))
    for name in ("models", "sources"):
        (real / name).mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(real / name)
    config.stash[_HOME] = (home, os.environ.get("VIA_SD_HOME"))
    os.environ["VIA_SD_HOME"] = str(home)
    # where this program was started in the background, it ignores SIGINT, and so would its children
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache folder, and close what llama-cpp-python leaves open at exit."""
    home, before = config.stash[_HOME]
    shutil.rmtree(home, ignore_errors=True)
    if before is None:
        del os.environ["VIA_SD_HOME"]
    else:
        os.environ["VIA_SD_HOME"] = before
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
    import tiny

    from via_sd_local.runtime.model import Model

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
    from via_sd_local.runtime.context import Context

    return lambda model, n_ctx=256: keep(Context(model, n_ctx=n_ctx, n_threads=THREADS))


@pytest.fixture
def verifier(keep: Callable[[Any], Any]) -> Callable[..., Verifier]:
    """`verifier(model, mask text, n_ctx=256)` opens a verifier."""
    from via_sd_local.tiers.verifier import Verifier

    def make(model: Model, mask: str = "", n_ctx: int = 256, **options: Any) -> Verifier:
        parsed = LayerMask.parse(mask, model.n_layer)
        made: Verifier = keep(Verifier(model, n_ctx=n_ctx, mask=parsed, n_threads=THREADS, **options))
        return made

    return make

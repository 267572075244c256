"""Loads the patched libllama through llama-cpp-python's ctypes bindings, and declares what the patch adds.

Import `llama` from here instead of importing `llama_cpp`: llama-cpp-python binds the first libllama that it finds, and
only the patched one has layer masks. The bindings are vendored in the version that the library was built from, so
another installed llama-cpp-python cannot be bound to it by mistake.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import native_log
from .interrupts import interrupts_after
from .libraries import LIBRARIES, PACKAGE, library_file

__all__ = [
    "allocate",
    "build_info",
    "declare",
    "get_layer_input",
    "get_layer_skip",
    "import_llama_cpp",
    "llama",
    "never_stop",
    "set_layer_input",
    "set_layer_skip",
    "shared_library",
    "stop_if_not_empty",
]

VENDORED = PACKAGE / "_vendor"


@contextmanager
def _import_ours() -> Iterator[None]:
    """Make `import llama_cpp` find the vendored bindings, and those the patched library, inside the `with` block."""
    variable = "LLAMA_CPP_LIB_PATH"
    before = os.environ.get(variable)
    os.environ[variable] = str(LIBRARIES)
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # if llama.cpp aborts, no debugger prints a backtrace
    sys.path.insert(0, str(VENDORED))
    try:
        yield
    finally:
        sys.path.remove(str(VENDORED))
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _check_importable() -> None:
    loaded = sys.modules.get("llama_cpp")
    if loaded is not None and not Path(loaded.__file__ or "").is_relative_to(VENDORED):
        raise ImportError(
            f"llama_cpp was imported from {loaded.__file__} before via_sd_local, and its llama.cpp has no layer masks; "
            "import via_sd_local.binding first (it also provides llama_cpp)"
        )
    if not (VENDORED / "llama_cpp").is_dir() or not (LIBRARIES / "build.json").is_file():
        raise ImportError(
            f"{PACKAGE} has no built llama.cpp; run `make install` in the project's folder, or `pip install .`"
        )


_check_importable()
if TYPE_CHECKING:
    import llama_cpp.llama_cpp as llama
else:
    with _import_ours():
        import llama_cpp.llama_cpp as llama

_lib: ctypes.CDLL = llama._lib


class _NoMultimodal(MetaPathFinder):
    """Rejects the bindings of llama.cpp's multimodal library, which is not built, with an error that says so."""

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> None:
        if name in ("llama_cpp.mtmd_cpp", "llama_cpp.llava_cpp"):
            raise ImportError(
                "this build of llama.cpp has no multimodal library (mtmd), so chat handlers for images and audio do "
                "not work; use a stock llama-cpp-python for them, or leave out the chat handler"
            )


sys.meta_path.insert(0, _NoMultimodal())


def import_llama_cpp(module: str) -> Any:
    """Return a module of the vendored `llama_cpp` package, for example `"llama_chat_format"`."""
    return importlib.import_module(f"llama_cpp.{module}")


def build_info() -> dict[str, Any]:
    """Return what the build recorded: llama.cpp's commit, the hash of the patches, compiler, backends, AMX verdict."""
    info: dict[str, Any] = json.loads((LIBRARIES / "build.json").read_text(encoding="utf-8"))
    return info


@functools.cache  # each ctypes.CDLL is a reference cycle
def shared_library(name: str) -> ctypes.CDLL:
    """Return a built library that libllama has already loaded; ImportError if there is none of this name."""
    path = LIBRARIES / library_file(name)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded ({error}); build again with `make install`") from None


def declare(library: ctypes.CDLL, name: str, arguments: list[Any], result: Any) -> Any:
    """Return a function of a library with its ctypes signature; ImportError if the library lacks it."""
    try:
        function = getattr(library, name)
    except AttributeError:
        raise ImportError(
            f"{library._name} has no {name}: it is not the patched llama.cpp; build again with `make install`"
        ) from None
    function.argtypes, function.restype = arguments, result
    return function


_context = llama.llama_context_p_ctypes
_bytes = ctypes.POINTER(ctypes.c_uint8)

# const char * (ctx, skip [n], n): None, or the reason why the mask is refused
set_layer_skip = declare(_lib, "llama_set_layer_skip", [_context, ctypes.c_char_p, ctypes.c_size_t], ctypes.c_char_p)
# size_t (ctx, skip [n], n): length of the mask in force
get_layer_skip = declare(_lib, "llama_get_layer_skip", [_context, _bytes, ctypes.c_size_t], ctypes.c_size_t)
# bool (ctx, il, enable): false if there is no layer il
set_layer_input = declare(_lib, "llama_set_layer_input", [_context, ctypes.c_int32, ctypes.c_bool], ctypes.c_bool)
# const float * (ctx, il): [n_tokens, n_embd] or None
get_layer_input = declare(_lib, "llama_get_layer_input", [_context, ctypes.c_int32], ctypes.POINTER(ctypes.c_float))


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    native_log.record(level, text)


llama.llama_log_set(_on_log, ctypes.c_void_p(0))
if build_info().get("dynamic_backends"):
    # the CPU variant that fits this processor best, and every other backend that was built
    load = declare(shared_library("ggml"), "ggml_backend_load_all_from_path", [ctypes.c_char_p], None)
    load(os.fsencode(LIBRARIES))
llama.llama_backend_init()


# An abort callback of a context, which the CPU backend calls after every graph node (`llama_set_abort_callback`): the C
# library's strlen, which returns 0, false, for an empty string. The callback's data is then a flag in memory, and no
# node waits for the interpreter's lock, as it would with a callback in Python.
_c_library = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
stop_if_not_empty = ctypes.cast(_c_library.strlen, llama.ggml_abort_callback)
never_stop = llama.ggml_abort_callback()


def allocate(create: Callable[[], int | None], free: Callable[[int], Any]) -> int | None:
    """Return the handle that a long native call creates, or None if it fails.

    Ctrl-C during the call raises KeyboardInterrupt after it, with the handle freed.
    """
    handle = None
    try:
        with interrupts_after():
            handle = create()
    except KeyboardInterrupt:
        if handle:
            free(handle)
        raise
    return handle

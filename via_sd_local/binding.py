"""Loads the patched libllama under llama-cpp-python's own bindings, and declares what the patch adds.

Import `llama` from here instead of importing llama_cpp: llama-cpp-python binds whichever libllama it finds first,
and only ours has layer masks. Its Python side comes with this package, in the version that the library was built
from, so no other installed version can get between them.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .interrupts import interrupted, interrupts_after

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
    "stop_if_interrupted",
    "take_errors",
]

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = PACKAGE / "lib"
VENDORED = PACKAGE / "_vendor"

_LOG_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}  # ggml_log_level


@contextmanager
def _import_ours() -> Iterator[None]:
    """While inside, `import llama_cpp` finds the vendored bindings, and they find our library."""
    variable = "LLAMA_CPP_LIB_PATH"
    before = os.environ.get(variable)
    os.environ[variable] = str(LIBRARIES)
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # where llama.cpp must abort, no debugger writes into the output
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
            f"llama_cpp was imported from {loaded.__file__} before via_sd_local, with a llama.cpp that has no layer "
            "masks; import via_sd_local.binding first (it provides llama_cpp, too)"
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
    """Refuses the bindings of llama.cpp's multimodal library, which is not built; theirs would only miss a file."""

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> None:
        if name in ("llama_cpp.mtmd_cpp", "llama_cpp.llava_cpp"):
            raise ImportError(
                "this build of llama.cpp has no multimodal library (mtmd), so handlers of images and audio do not "
                "work; take llama-cpp-python's own build for them, or leave the chat handler out"
            )


sys.meta_path.insert(0, _NoMultimodal())


def import_llama_cpp(module: str) -> Any:
    """A module of the vendored llama_cpp package, e.g. `"llama_chat_format"`."""
    return importlib.import_module(f"llama_cpp.{module}")


def build_info() -> dict[str, Any]:
    """What the build recorded: llama.cpp's commit, the patch's hash, compiler, backends, AMX verdict."""
    info: dict[str, Any] = json.loads((LIBRARIES / "build.json").read_text(encoding="utf-8"))
    return info


def library_file(name: str, platform: str = sys.platform) -> str:
    """The file name of a library of the build, e.g. `ggml-base`, on a platform as `sys.platform` names it."""
    if platform == "win32":
        return f"{name}.dll"
    return f"lib{name}.dylib" if platform == "darwin" else f"lib{name}.so"


def shared_library(name: str) -> ctypes.CDLL:
    """A library of the build that libllama has loaded already; ImportError if there is none of this name."""
    path = LIBRARIES / library_file(name)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded ({error}); build again with `make install`") from None


def declare(library: ctypes.CDLL, name: str, arguments: list[Any], result: Any) -> Any:
    """A function of a library with its types; ImportError if the library has none of this name."""
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

# const char * (ctx, skip [n], n): None, or why the mask is refused
set_layer_skip = declare(_lib, "llama_set_layer_skip", [_context, ctypes.c_char_p, ctypes.c_size_t], ctypes.c_char_p)
# size_t (ctx, skip [n], n): the length of the mask in force
get_layer_skip = declare(_lib, "llama_get_layer_skip", [_context, _bytes, ctypes.c_size_t], ctypes.c_size_t)
# bool (ctx, il, enable)
set_layer_input = declare(_lib, "llama_set_layer_input", [_context, ctypes.c_int32, ctypes.c_bool], ctypes.c_bool)
# const float * (ctx, il): [n_tokens, n_embd] or None
get_layer_input = declare(_lib, "llama_get_layer_input", [_context, ctypes.c_int32], ctypes.POINTER(ctypes.c_float))

#
# llama.cpp's log: errors become the text of exceptions, everything goes to the `via_sd_local.llama_cpp` logger
#

_logger = logging.getLogger("via_sd_local.llama_cpp")
_logger.addHandler(logging.NullHandler())
_logger.propagate = False
_errors: deque[str] = deque(maxlen=16)
_last_level = logging.INFO
_SPEAKER = re.compile(r"^(?:error loading model: |[\w:~]+: )+")


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    global _last_level
    _last_level = _LOG_LEVELS.get(level, _last_level)  # level 5 continues the previous line
    line = text.decode("utf-8", "replace").rstrip("\n")
    if line.strip(" ."):
        if _last_level == logging.ERROR:
            _errors.append(line)
        _logger.log(_last_level, "%s", line)


llama.llama_log_set(_on_log, ctypes.c_void_p(0))
if build_info().get("dynamic_backends"):
    # the variant for this processor, and what else was built
    load = declare(shared_library("ggml"), "ggml_backend_load_all_from_path", [ctypes.c_char_p], None)
    load(os.fsencode(LIBRARIES))
llama.llama_backend_init()


@llama.ggml_abort_callback  # type: ignore[untyped-decorator]
def stop_if_interrupted(_data: ctypes.c_void_p) -> bool:
    """For llama_set_abort_callback; llama.cpp asks it after every node of a graph (on a CPU)."""
    return interrupted()


never_stop = llama.ggml_abort_callback()


def allocate(create: Callable[[], int | None], free: Callable[[int], Any]) -> int | None:
    """What a long native call creates, None if it fails; freed again where Ctrl-C arrived in the meantime."""
    handle = None
    try:
        with interrupts_after():
            handle = create()
    except KeyboardInterrupt:
        if handle:
            free(handle)
        raise
    return handle


def take_errors() -> list[str]:
    """llama.cpp's error lines since the last call, oldest first, without the names of its functions."""
    lines = [_SPEAKER.sub("", line) for line in _errors]
    _errors.clear()
    return lines

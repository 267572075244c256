"""The patched library is the one that llama_cpp binds, in every order of imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from via_sd_local import binding
from via_sd_local.libraries import LIBRARIES, PACKAGE


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_llama_cpp_comes_with_the_package_and_binds_our_library() -> None:
    run = python("import via_sd_local.binding, llama_cpp; print(llama_cpp.__version__, llama_cpp.llama_cpp._lib._name)")
    version, library = run.stdout.split()
    assert version == binding.build_info()["llama_cpp_python"]
    assert Path(library).parent == LIBRARIES


def test_a_stock_llama_cpp_that_came_first_is_an_import_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("")
    run = python("import llama_cpp, via_sd_local.binding", PYTHONPATH=str(tmp_path))
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: llama_cpp was imported from {tmp_path}")
    assert "import via_sd_local.binding first" in last


def test_an_installed_stock_llama_cpp_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise RuntimeError('the wrong one')")
    run = python("import via_sd_local.binding, llama_cpp; print(llama_cpp.__version__)", PYTHONPATH=str(tmp_path))
    assert run.stdout.strip() == binding.build_info()["llama_cpp_python"]


def test_the_users_library_variable_is_ignored_and_left_as_it_was(tmp_path: Path) -> None:
    code = "import os, via_sd_local.binding as b; print(b._lib._name); print(os.environ['LLAMA_CPP_LIB_PATH'])"
    run = python(code, LLAMA_CPP_LIB_PATH=str(tmp_path))
    library, variable = run.stdout.splitlines()
    assert Path(library).parent == LIBRARIES
    assert variable == str(tmp_path)


def test_a_missing_build_is_an_import_error_with_a_remedy(tmp_path: Path) -> None:
    package = tmp_path / "via_sd_local"
    package.mkdir()
    for name in ("__init__.py", "binding.py", "faces.py", "interrupts.py", "libraries.py", "native_log.py"):
        (package / name).write_text((PACKAGE / name).read_text(encoding="utf-8"), encoding="utf-8")
    code = f"import sys; sys.meta_path[:] = sys.meta_path[-3:]; sys.path.insert(0, {str(tmp_path)!r}); "
    run = python(code + "import via_sd_local.binding")
    assert run.returncode == 1
    assert "has no built llama.cpp; run `make install`" in run.stderr.splitlines()[-1]


def test_an_unpatched_library_is_an_import_error_with_a_remedy() -> None:
    run = python("import via_sd_local.binding as b; b.declare(b._lib, 'llama_no_such_function', [], None)")
    assert "it is not the patched llama.cpp; build again with `make install`" in run.stderr.splitlines()[-1]

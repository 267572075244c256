# `make chat` and `make test` do all set-up by themselves; a second run starts in seconds.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed

.PHONY: chat install test test-fast test-clients lint check clean

chat: install
	@if [ -n "$$PROMPT" ]; then printf '%s' "$$PROMPT" | $(BIN)/python -m via_sd_local.chat $(ARGS); \
	 else exec $(BIN)/python -m via_sd_local.chat $(ARGS); fi

install: $(STAMP)

# the build depends on these; Python code does not need it (the installation refers to this folder), but for new packages
$(STAMP): pyproject.toml CMakeLists.txt models/registry.json $(wildcard native/* patches/* via_sd_local/*/__init__.py via_sd_local/*/*/__init__.py)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	 { echo "error: Python 3.10 or newer is needed; name one with make PYTHON=…" >&2; exit 1; }
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV) || \
	 { rm -rf $(VENV); echo "error: no virtual environment; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || \
	 { echo "error: no C++ compiler; on Debian or Ubuntu: apt install g++, on macOS: xcode-select --install" >&2; exit 1; }
	@echo "installing into $(VENV); the first time this compiles llama.cpp (about 4 minutes on 2 cores)" >&2
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $(STAMP)

test: install
	$(BIN)/python -m pytest $(ARGS)

# the tests that need no compiled library; an environment without it is enough
test-fast: $(VENV)/dependencies
	$(BIN)/python -m pytest -m "pure or engine" tests/pure tests/engine $(ARGS)

$(VENV)/dependencies: pyproject.toml
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/dependencies.py > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement $(VENV)/requirements.txt
	@touch $@

# fetches the libraries (about 500 MB) into build/ the first time
test-clients: install
	$(BIN)/python -m pytest -m clients tests/clients $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

clean:
	rm -rf build $(VENV) via_sd_local/lib via_sd_local/_vendor

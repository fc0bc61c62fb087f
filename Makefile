# On a bare clone: `make demo`, `make test`, `make test-all`. Each first installs what it needs, and no more, into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check kernels format install clean

demo: $(VENV)/.demo-ready
	$(BIN)/manyheads demo

test: $(VENV)/.test-ready
	$(BIN)/pytest --numprocesses 2 -m 'not slow'
	@echo 'These are the quick tests. All of them: make test-all'

test-all: $(VENV)/.all-ready
	$(BIN)/pytest --numprocesses 2

check: $(VENV)/.all-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

kernels: $(VENV)/.all-ready  # those of a GPU, interpreted on the CPU
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[triton]'
	$(BIN)/pytest -m interpreted

format: $(VENV)/.all-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(VENV)/.all-ready

$(VENV)/.demo-ready: WHAT := .
$(VENV)/.test-ready: WHAT := .[test]
$(VENV)/.all-ready: WHAT := .[dev]

$(VENV)/.%-ready: pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '$(WHAT)'
	touch $@

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "manyheads needs Python 3.11 or later: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

# Two commands on a bare clone: `make demo` and `make test`. Each makes the virtual environment when it has to.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check kernels format install clean

demo: $(READY)
	$(BIN)/manyheads demo

test: $(READY)
	$(BIN)/pytest --numprocesses 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

kernels: $(READY)  # those of a GPU, interpreted on the CPU
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[triton]'
	$(BIN)/pytest -m interpreted

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "manyheads needs Python 3.11 or later: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

# Needs Python 3.11 or newer, make and a package index; everything else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test lint format bench bench-check sabotage clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py

# One process more than there are cores: tests of processes wait as much as they work.
test: $(READY)
	$(BIN)/python -m pytest --dist worksteal -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 1)')

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m bench $(if $(QUICK),--quick)

bench-check: $(READY)
	$(BIN)/python -m bench check

sabotage: $(READY)
	$(BIN)/python -m tests.sabotage

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

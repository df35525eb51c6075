# Needs Python 3.11 or newer, make and a package index; everything else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

# Most tests start processes: each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-cli test-web quick strace powercut soak lint format bench bench-check sabotage clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py

# Two processes more than there are cores: tests of processes wait as much as they work.
PYTEST = $(BIN)/python -m pytest --dist worksteal
EVERY_CORE = -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 2)')

test: $(READY) strace
	$(PYTEST) --ignore tests/web --ignore tests/cli $(EVERY_CORE)

# The command line, in processes of its own.
test-cli: $(READY)
	$(PYTEST) tests/cli $(EVERY_CORE)

# Web servers with several processes each.
test-web: $(READY)
	$(PYTEST) tests/web -n 2

# What differs between versions of Python shows here, in a few minutes.
quick: $(READY)
	$(PYTEST) tests/unit tests/store tests/testing -k 'not postgres' $(EVERY_CORE)

# Power cuts are rebuilt from the system calls that strace records.
strace:
	@command -v strace >/dev/null || (apt-get update -qq && apt-get install -y -qq strace)

powercut: $(READY) strace
	$(BIN)/python -m tests.powercut

soak: $(READY)
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30)

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
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

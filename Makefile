# Needs Python 3.11 or newer, make and a package index; everything else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

# Most tests start processes: each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick strace powercut soak lint format bench bench-check sabotage clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py

# Two processes more than there are cores: tests of processes wait as much as they work.
PYTEST = $(BIN)/python -m pytest --dist worksteal
EVERY_CORE = -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 2)')

# Everything a user can rely on: the library on both stores, the command line, web servers.
test: $(READY) strace
	$(PYTEST) $(EVERY_CORE)

# The inner loop, under a minute: no server, no child process. It also shows what differs between
# versions of Python.
IN_PROCESS = tests/unit tests/operations tests/testing --ignore tests/testing/test_plugin.py \
	--ignore tests/testing/test_documented.py
quick: $(READY)
	$(PYTEST) $(IN_PROCESS) -k 'not postgres' $(EVERY_CORE)

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
	$(BIN)/python -m tests.mutants

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

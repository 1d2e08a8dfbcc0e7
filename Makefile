# The two commands of a newcomer are `make demo` and `make test`. Both set up a virtual environment first.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first interpreter that is 3.11 to 3.14 and runs; a name on the path may be a shim that does not.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null \
	&& echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TIMED := .ci/timed
# Two workers, each with servers of its own; a file is run by one of them, for its tests share what they prepared.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help demo dev dev-demo up down test lint types imports unit test-slow test-faults test-live bench clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(READY) ## Run the main job on the embedded stack and show its result
	@$(BIN)/memory-pipeline demo

dev: $(READY) ## Serve the Dagster UI over the embedded stack (Ctrl-C stops it)
	@$(BIN)/memory-pipeline dev

dev-demo: $(READY) ## Serve the Dagster UI over what the demo left
	@MEMORY_STATE=$${MEMORY_STATE:-.memory_pipeline}/demo $(BIN)/memory-pipeline dev

up: $(READY) ## Start the embedded servers
	@$(BIN)/memory-pipeline up

down: $(READY) ## Stop the embedded servers
	@$(BIN)/memory-pipeline down

test: lint types imports unit ## Run every check and every test but the slow ones

lint: $(READY)
	@$(TIMED) lint $(BIN)/ruff check .
	@$(TIMED) format $(BIN)/ruff format --check .

types: $(READY)
	@$(TIMED) types $(BIN)/mypy

imports: $(READY)
	@$(TIMED) imports $(BIN)/lint-imports --no-logo

unit: $(READY)
	@$(TIMED) tests $(BIN)/pytest -q -m "not slow and not faults" $(PARALLEL) --durations=10

test-slow: $(READY) ## Run the tests that take longer than CI wants
	@$(TIMED) slow $(BIN)/pytest -q -m slow

test-faults: $(READY) ## Kill every server and every worker at every step, and let servers misbehave
	@$(TIMED) faults $(BIN)/pytest -q memory_pipeline_tests/faults $(PARALLEL)

test-live: $(READY) ## Run the integration tests against the servers that the environment names
	@$(TIMED) live $(BIN)/pytest -q -m "integration and not embedded"

bench: $(READY) ## Measure against the bare limits of the servers (BENCH="--full --json figures.json" for more)
	@$(BIN)/python -m benchmarks $(BENCH)

clean: ## Stop the embedded servers, remove all their data and the virtual environment
	@[ ! -x $(BIN)/memory-pipeline ] || { MEMORY_STATE=.memory_pipeline/demo $(BIN)/memory-pipeline down --purge; \
		MEMORY_STATE=.memory_pipeline $(BIN)/memory-pipeline down --purge; }
	@rm -rf .memory_pipeline $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 to 3.14 with its venv module is needed (Debian: python3-venv)" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON): some 300 MB are fetched, which takes a few minutes"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[embedded,dev]'
	@touch $@

# One command each. Set-up happens inside `up`, `test` and `check`; it is quick when nothing changed.
# Variables of `up`: DETACH=1, MODEL=<folder or Hugging Face id>, EMBEDDING_MODEL=<the same, or demo or
# none>, ENGINE=vllm|simulated, GATEWAYS=2 (processes, default 1), DATABASE_URL (as the application),
# DATABASE_OWNER_URL (as who migrates), REDIS_URL, PENSTOCK_HOME (data, default .penstock),
# PENSTOCK_PORT_BASE (default 8700).

PYTHON ?= python3
BIN := .venv/bin
PYTEST := python -m pytest -n 3 --dist loadgroup
TEST_SETTINGS := DJANGO_SETTINGS_MODULE=tests.fixtures.settings

# Bytecode is kept, whatever the shell says: without it each process compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=
export PENSTOCK_ENGINE := $(or $(ENGINE),$(PENSTOCK_ENGINE))
export PENSTOCK_MODEL := $(or $(MODEL),$(PENSTOCK_MODEL))
export PENSTOCK_EMBEDDING_MODEL := $(or $(EMBEDDING_MODEL),$(PENSTOCK_EMBEDDING_MODEL))
export PENSTOCK_GATEWAYS := $(or $(GATEWAYS),$(PENSTOCK_GATEWAYS))
UP_OPTIONS := $(if $(filter-out 0,$(DETACH)),--detach)

.DEFAULT_GOAL := help
.PHONY: help up down reset status test test-fast test-all test-long check bench clients mutants pins setup setup-browser

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  Variables of up: DETACH=1 MODEL= EMBEDDING_MODEL= ENGINE=simulated GATEWAYS=2 DATABASE_URL= DATABASE_OWNER_URL= REDIS_URL= PENSTOCK_HOME= PENSTOCK_PORT_BASE="

up: setup ## Run the whole platform here, until Ctrl-C (DETACH=1: in the background).
	@exec $(BIN)/penstock up $(UP_OPTIONS)

down: ## End what `make up` started; data stay.
	@exec $(BIN)/penstock down

status: ## Show processes, replicas, ports and versions.
	@exec $(BIN)/penstock status

reset: ## End it and delete its data, after asking.
	@exec $(BIN)/penstock reset

test: setup-browser ## Run the tests: unit, integration, Chromium, one platform with real vLLM (P=control/webhooks: one package).
	@exec $(BIN)/$(PYTEST) -m "not full and not long" $(if $(P),tests/$(P),--check-budget)

test-fast: setup ## The same without vLLM and Chromium.
	@exec $(BIN)/$(PYTEST) -m "not e2e and not browser and not full and not long"

test-all: setup-browser ## Run every end-to-end, fault and seed test as well, and the whole of each corpus.
	@exec $(BIN)/$(PYTEST) -m "not long"

test-long: setup-browser ## Run other servers' versions, fuzz, artefacts, soak, thousands of seeds and mutants: hours; says how far it is.
	@echo "Some hours: named parts, each also alone by python -m tests.long.parts NAME; tests marked long, with 4,000 seeds of the books; then mutants of the books. What fails does not stop the rest."
	@status=0; $(BIN)/python -m tests.long.parts || status=1; \
	$(BIN)/python -m pytest -m long --ignore=tests/infra/artefacts || status=1; \
	$(BIN)/python -m tests.long.mutants || status=1; exit $$status

check: setup ## Lint, format, types, import contracts, structure, migrations.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.gates
	@$(TEST_SETTINGS) $(BIN)/python -W ignore::RuntimeWarning -m control.manage makemigrations --check --dry-run

bench: setup ## Measure gateway, engine and books; prints hardware, versions and commands.
	@exec $(BIN)/python -m tests.benchmarks

clients: setup ## Try other people's clients against real vLLM: who can do what, as a table.
	@exec $(BIN)/python -m tests.clients

mutants: setup ## Break the books on purpose, thirty times, and see the simulator find it.
	@exec $(BIN)/python -m tests.long.mutants

pins: setup ## Resolve the pinned versions anew, after a change of pyproject.toml.
	@$(PYTHON) infra/local/setup.py --pin

setup:
	@$(PYTHON) infra/local/setup.py

setup-browser:
	@$(PYTHON) infra/local/setup.py --browser

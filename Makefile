# One command each. Set-up happens inside `up`, `test` and `check`; it is quick when nothing changed.
# Variables of `up`: DETACH=1, MODEL=<folder or Hugging Face id>, ENGINE=vllm|simulated, DATABASE_URL
# (as the application), DATABASE_OWNER_URL (as who migrates), REDIS_URL, PENSTOCK_HOME (data, default
# .penstock), PENSTOCK_PORT_BASE (default 8700).

PYTHON ?= python3
BIN := .venv/bin
TEST_SETTINGS := DJANGO_SETTINGS_MODULE=tests.support.settings

export PENSTOCK_ENGINE := $(or $(ENGINE),$(PENSTOCK_ENGINE))
UP_OPTIONS := $(if $(filter-out 0,$(DETACH)),--detach) $(if $(MODEL),--model "$(MODEL)")

.DEFAULT_GOAL := help
.PHONY: help up down reset status test test-fast check bench mutants pins setup setup-browser

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  Variables of up: DETACH=1 MODEL= ENGINE=simulated DATABASE_URL= DATABASE_OWNER_URL= REDIS_URL= PENSTOCK_HOME= PENSTOCK_PORT_BASE="

up: setup ## Run the whole platform here, until Ctrl-C (DETACH=1: in the background).
	@exec $(BIN)/penstock up $(UP_OPTIONS)

down: ## End what `make up` started; data stay.
	@exec $(BIN)/penstock down

status: ## Show processes, replicas, ports and versions.
	@exec $(BIN)/penstock status

reset: ## End it and delete its data, after asking.
	@exec $(BIN)/penstock reset

test: setup-browser test-fast ## Run every test: unit, integration, house, faults.
	@exec $(BIN)/python -m pytest -m "house or faults"

test-fast: setup ## Run the tests without vLLM and browser, in under 2 minutes.
	@exec $(BIN)/python -m pytest -n 2 -m "not house and not faults"

check: setup ## Lint, format, types, import contracts, migrations.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(TEST_SETTINGS) $(BIN)/python -W ignore::RuntimeWarning platform/manage.py makemigrations --check --dry-run

bench: setup ## Measure gateway, engine and books; prints hardware, versions and commands.
	@exec $(BIN)/python -m tests.benchmarks

mutants: setup ## Break the books on purpose, thirty times, and see the simulator find it.
	@exec $(BIN)/python -m tests.mutants

pins: setup ## Resolve the pinned versions anew, after a change of pyproject.toml.
	@$(PYTHON) infra/local/setup.py --pin

setup:
	@$(PYTHON) infra/local/setup.py

setup-browser:
	@$(PYTHON) infra/local/setup.py --browser

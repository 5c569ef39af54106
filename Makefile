# The everyday commands; docs/contribute/development.md lists the others. Needs Python 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export VAR_DIR ?= var
# A single process runs all tests of a file, so that they share servers and fixtures. Tests often
# wait, so three processes keep two cores busy.
PYTEST := $(BIN)/pytest -n 3 --dist loadfile
# Keep compiled modules: otherwise every process of a test run compiles them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help dev demo tools test test-all test-fast check format bench docs release shots drill-cells clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

dev: $(VENV)/sandbox ## Run the whole sandbox: database, API, workers, gateways, shop, chains (PORT_BASE=N, VAR_DIR=D)
	@exec $(BIN)/payintent dev

demo: $(VENV)/sandbox ## Run a payment to each final status, and refunds, in a running `make dev`
	@$(BIN)/python -m payintent_sandbox.demo

tools: $(VENV)/dev ## Install the tools of tests and drills: Node packages, Chromium, Java, nginx, PHP and others
	@$(BIN)/python -m tools.prepare

test: tools ## Run the tests that a change could plausibly break, in five minutes (PYTEST_ARGS="tests/webhooks -x" selects some)
	$(PYTEST) -m "not full and not long" $(PYTEST_ARGS)

test-all: tools ## Run all tests except the long ones
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

test-fast: $(VENV)/dev ## Run the main domains' tests without browsers, chains and processes, in 50 seconds on two idle cores
	$(PYTEST) -m "not slow and not full and not long" tests/core tests/db tests/merchants tests/payments tests/payment_sessions tests/refunds tests/cases tests/accounting tests/webhooks tests/gateways $(PYTEST_ARGS)

check: tools ## Check format, lint, types, layers, migrations, dependencies and their vulnerabilities, the API contract, scripts and styles
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry payintent
	$(BIN)/deptry --config payintent_sandbox/pyproject.toml payintent_sandbox
	$(BIN)/python -m tools.web.check
	$(BIN)/python -m tools.openapi.check
	$(BIN)/python -m tools.migrations
	$(BIN)/python -m tools.prose
	@$(BIN)/python -m tools.audit
	@$(BIN)/python -m tools.sbom $(VAR_DIR)

format: $(VENV)/dev ## Format the code, and apply ruff's automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

shots: tools ## Take screenshots of every checkout state (STATES="card paid"; ALL=1 adds dark mode and all languages)
	@$(BIN)/python -m tests.web.shots $(STATES)

bench: $(VENV)/dev ## Measure every figure in the README, in a single run on this machine
	$(BIN)/python -m bench

docs: tools ## Write the generated files: schema, settings table, dashboards, compiled contracts, grader reports
	$(BIN)/python -m tools.schema
	$(BIN)/python -m tools.settings_page
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tools.contract
	REWRITE_GRADER_REPORTS=1 $(BIN)/pytest -k reports_of_the_page tests/sdks/test_grader.py

release: tools ## Build a release into dist/, install it into an empty environment and make a payment
	$(BIN)/python -m tools.release dist --verify

drill-cells: $(VENV)/dev ## Run the drill of two installations behind HAProxy (RUNS=3 ONLY=kill-database-a1,join RATE=40)
	@$(BIN)/python -m drills.cells --runs $(or $(RUNS),3) --rate $(or $(RATE),40) --only "$(ONLY)"

clean: ## Remove the virtual environment and the sandbox's data
	rm -rf $(VENV) var

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  echo "installing python3-venv from Debian (this Python has no ensurepip)"; rm -rf $(VENV); \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get -qq update && apt-get install -y -qq python3-venv' >/dev/null 2>&1 && \
	  $(PYTHON) -m venv $(VENV) || { echo "install python3-venv, then run make again"; exit 1; }; }

$(VENV)/sandbox: requirements/sandbox.txt pyproject.toml payintent_sandbox/pyproject.toml | $(VENV)/bin/python
	@echo "installing the sandbox's packages into $(VENV)"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/sandbox.txt
	@$(BIN)/python tools/link.py
	@touch $@

$(VENV)/dev: requirements/dev.txt pyproject.toml payintent_sandbox/pyproject.toml | $(VENV)/bin/python
	@echo "installing the development packages into $(VENV)"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python tools/link.py
	@$(BIN)/python -m payintent_sandbox.chains.anvil_binary
	@touch $@ $(VENV)/sandbox

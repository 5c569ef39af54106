# Every command of the project; `make help` lists them. The only needs are Python 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export VAR_DIR ?= var
# A file's tests run in one process, so that what they share starts once. Tests wait more than they
# compute: four such processes keep two cores busy.
PYTEST := $(BIN)/pytest -n 4 --dist loadfile
# Compiled modules are kept: without them every process of a test run compiles them all again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help dev demo browser peers test-tools test test-long test-fast test-burn test-pg15 fuzz storms chaos chaos-chain chaos-gateway chaos-books drill-restart drill-ha drill-cells stranger examples plugins-long clients-long vitest check web-check contract-check check-helm sdk-pack sdk-typescript plugin-medusa grader-reports format bench bench-quick bench-flat bench-reconcile bench-web bench-cells bench-outsiders profile shots schema contract dashboards lock clean

help: ## This list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

dev: $(VENV)/sandbox ## Run the whole sandbox: database, API, workers, gateways, shop, chains (PORT_BASE=N, VAR_DIR=D)
	@exec $(BIN)/payintent dev

demo: $(VENV)/sandbox ## Show create, pay, webhook, refund and every other ending against a running `make dev`
	@$(BIN)/python -m payintent_sandbox.demo

test-tools: $(VENV)/dev $(VENV)/web/installed $(VENV)/openapi/installed browser peers ## Install what tests need beside Python: node packages, clients' generators, Chromium, Java, PHP and others

test: test-tools ## Run every test but the long forms (needs nothing installed: a PostgreSQL is bundled)
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

test-long: test-tools ## Long forms of the tests: whole benchmarks, generated clients, the page of installing
	$(PYTEST) -m long $(PYTEST_ARGS)

test-fast: $(VENV)/dev ## The inner loop, below a minute: no browser, no chain, no processes, no HTTP
	$(PYTEST) -n 3 -m "not slow" $(PYTEST_ARGS)

test-burn: test-tools ## `make test` ten times, five of them with every core busy; prints a table (RUNS=5 LOAD=busy)
	$(BIN)/python -m tools.burn $(VAR_DIR)/burn $(PYTEST) -m "not long" $(PYTEST_ARGS)

test-pg15: test-tools ## The same suite on Debian's PostgreSQL 15, the oldest we promise
	@test -x /usr/lib/postgresql/15/bin/initdb || { echo "installing postgresql-15 from Debian"; apt-get install -y -qq postgresql-15; }
	POSTGRES_BIN=/usr/lib/postgresql/15/bin $(PYTEST) $(PYTEST_ARGS)

fuzz: $(VENV)/dev ## The long forms: a thousand random histories, 20,000 requests made from the contract
	HYPOTHESIS_PROFILE=long $(PYTEST) --timeout 1800 tests/payments/test_history.py tests/openapi/test_fuzz.py $(PYTEST_ARGS)

storms: $(VENV)/dev ## The long forms of the storms: 10,000 callbacks over 2,000 payments, 10,000 creates with one key
	STORM_PAYMENTS=2000 STORM_CREATES=10000 $(BIN)/pytest --timeout 1800 tests/e2e/test_callback_storm.py tests/api/test_storm.py $(PYTEST_ARGS)

chaos: $(VENV)/dev ## The long form of the kill test (KILL_SEEDS=2,3,4 KILL_PAYMENTS=800)
	$(BIN)/pytest --timeout 1800 tests/e2e/test_kill.py $(PYTEST_ARGS)

chaos-chain: $(VENV)/dev ## The long form of random chain histories (SEEDS=50): prints what is lost and made up
	CHAIN_SEEDS=$(or $(SEEDS),50) $(BIN)/pytest -q -s -p no:randomly --timeout 1800 --show-capture=no tests/onchain/test_chaos.py $(PYTEST_ARGS)

chaos-gateway: $(VENV)/dev ## The long form of the outage test: a gateway that is away for a real minute (OUTAGE_S=60)
	OUTAGE_S=$(or $(OUTAGE_S),60) $(BIN)/pytest --timeout 1800 tests/e2e/test_outage.py $(PYTEST_ARGS)

chaos-books: $(VENV)/dev ## Kills, doubled and late callbacks, refunds, disputes, payouts: feeds, books and statements at the end (PAYMENTS=20000 MERCHANTS=20)
	@$(BIN)/python -m drills.books --payments $(or $(PAYMENTS),20000) --merchants $(or $(MERCHANTS),20)

drill-restart: $(VENV)/dev peers ## Restart API processes under load, behind nginx and by SIGHUP; prints what was lost (RATE=100 RESTARTS=6 ROLLS=3)
	@$(BIN)/python -m drills.restart --rate $(or $(RATE),100) --restarts $(or $(RESTARTS),6) --rolls $(or $(ROLLS),3)

stranger: $(VENV)/dev ## Play docs/quickstart.md in a clean clone, as it stands: sandbox, libraries, webhooks, clock, refund; minutes
	@$(BIN)/python -m drills.stranger

examples: $(VENV)/examples/installed ## Sell a book by each shop of examples/: FastAPI, Django, Flask, Express, Next.js; minutes (ONLY="flask express")
	@$(BIN)/python -m drills.examples $(ONLY)

plugins-long: $(VENV)/openapi/installed $(VENV)/medusa/installed php ## Grade the plugins, WooCommerce's against a stand-in and Medusa's in Medusa, and pay an order of each; minutes (ONLY=medusa)
	@$(BIN)/python -m drills.plugins $(ONLY)

drill-ha: $(VENV)/dev ## Three databases with Patroni in network namespaces, and their faults under load; as root (RUNS=5 ONLY=freeze,haproxy RATE=40)
	@$(BIN)/python -m drills.ha --runs $(or $(RUNS),5) --rate $(or $(RATE),40) --only "$(ONLY)"

drill-cells: $(VENV)/dev ## Two cells on two servers: kills, freezes and moves under load; prints what was lost (RUNS=3 ONLY=kill-1,move RATE=40)
	@$(BIN)/python -m drills.cells --runs $(or $(RUNS),3) --rate $(or $(RATE),40) --only "$(ONLY)"

clients-long: $(VENV)/dev $(VENV)/clients-long/installed peers maven ## Java and Python clients by openapi-generator, compiled and used against the service
	$(BIN)/pytest -v -s -p no:randomly --timeout 1800 tests/clients/long_form.py $(PYTEST_ARGS)

vitest: $(VENV)/dev $(VENV)/openapi/installed $(VENV)/vitest/installed ## The TypeScript SDK's example of a shop's tests, run by vitest against the service
	$(BIN)/pytest -v -p no:randomly --timeout 600 tests/sdks/vitest_long_form.py $(PYTEST_ARGS)

check: $(VENV)/dev web-check contract-check ## Format, lint, types, layers, dependencies and their known vulnerabilities
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry payintent
	$(BIN)/deptry --config payintent_sandbox/pyproject.toml payintent_sandbox
	@$(BIN)/python -m tools.audit
	@$(BIN)/python -m tools.sbom $(VAR_DIR)

web-check: $(VENV)/web/installed ## The types of the browser's scripts, and what a supported browser lacks of scripts and styles
	$(BIN)/python -m tools.web.check

contract-check: $(VENV)/openapi/installed ## Redocly and Spectral over docs/openapi.yaml
	$(BIN)/python -m tools.openapi.check

check-helm: $(VENV)/dev ## Lint, render and validate the chart where Helm is on PATH (HELM=FILE); else says what was not checked
	@$(BIN)/python -m tools.chart

sdk-pack: $(VENV)/dev ## Write the npm package of the browser SDK's loader to var/
	@$(BIN)/python -m tools.web.pack $(VAR_DIR)

sdk-typescript: $(VENV)/openapi/installed ## Build and write the npm package of the TypeScript SDK to var/
	@$(BIN)/python -m tools.openapi.pack_typescript $(VAR_DIR)

plugin-medusa: $(VENV)/openapi/installed $(VENV)/medusa/installed ## Build and write the npm package of the plugin for Medusa to var/
	@$(BIN)/python -m tools.medusa $(VAR_DIR)

grader-reports: $(VENV)/dev $(VENV)/openapi/installed ## Write the reports of docs/grader.md anew: the demo shop's and a broken shop's
	REWRITE_GRADER_REPORTS=1 $(BIN)/pytest -k reports_of_the_page tests/sdks/test_grader.py

format: $(VENV)/dev ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev ## Print every figure of the README, in one run on this machine
	$(BIN)/python -m bench

bench-quick: $(VENV)/dev ## The same in half a minute, to see that it works; its figures mean little
	$(BIN)/python -m bench --quick

profile: $(VENV)/dev $(VENV)/profile/installed ## Flame graphs of create, get, quotes, catalog, settle and deliver into var/profile; prints what is heaviest
	$(BIN)/python -m bench.profile $(VENV)/profile/bin/py-spy

bench-flat: $(VENV)/dev ## What each operation costs at 1,000, 100,000 and PAYMENTS=1000000 payments; minutes, more for more
	PAYMENTS=$(or $(PAYMENTS),1000000) $(BIN)/python -m bench.flat

bench-reconcile: $(VENV)/dev ## Compare a gateway's list of LINES=1000000 as a worker does; prints lines/s and its most memory; minutes
	$(BIN)/python -m bench.reconcile --lines $(or $(LINES),1000000)

bench-web: $(VENV)/dev $(VENV)/web/installed browser ## Weigh and time pages of checkout, console and portal on a slow phone; ends with 1 beyond a budget
	$(BIN)/python -m bench.web

bench-cells: $(VENV)/dev ## Creates in one cell and in two cells on two servers, in turns; four minutes (CLIENTS=64 of each merchant, HOST_CORES=0.2 of each server in the second part)
	$(BIN)/python -m bench.cells --clients $(or $(CLIENTS),64) --host-cores $(or $(HOST_CORES),0.2)

bench-outsiders: $(VENV)/dev ## Measure what a gateway and a picture host that hang cost other buyers: the ratio of their p99; ends with 1 above 1.2
	$(BIN)/python -m bench.outsiders

shots: $(VENV)/dev browser ## Take pictures of every page and state of the checkout and the console (STATES="choose paid"; STATES=docs: those of docs/console.md)
	$(BIN)/python -m tests.web.shots $(STATES)

schema: $(VENV)/dev ## Write payintent/storage/schema.sql anew after a migration
	$(BIN)/python -m tools.schema

contract: $(VENV)/dev ## Compile the contracts anew: ABI and byte code beside their sources
	$(BIN)/python -m tools.contract

dashboards: $(VENV)/dev ## Write deploy/grafana/*.json anew after a change of tools/dashboards
	$(BIN)/python -m tools.dashboards

lock: $(VENV)/dev ## Pin and hash all dependencies anew
	$(BIN)/python -m tools.lock

clean: ## Forget the virtual environment and the sandbox's data
	rm -rf $(VENV) var

browser: $(VENV)/dev
	@$(BIN)/python -m tests.support.browser 2>/dev/null || { \
	  echo "installing chromium and its headless shell from Debian (the tests of the checkout page run in them)"; \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get -qq update; for package in chromium chromium-headless-shell; do \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package || failed=1; done; exit $$failed' >/dev/null 2>&1 || \
	  echo "not all could be installed: without the shell the tests take longer, without chromium they fail"; }

# Java's HTTP client, curl and nginx. nginx would be started where it is installed, so a policy keeps it still.
peers: $(VENV)/dev
	@missing=$$($(BIN)/python -m tests.support.tools) || { \
	  echo "installing $$missing from Debian (tests send requests with them)"; \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'policy=/usr/sbin/policy-rc.d; ours=; \
	    [ -e $$policy ] || { ours=$$policy; printf "#!/bin/sh\nexit 101\n" >$$policy && chmod +x $$policy; }; \
	    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$@"; \
	    done=$$?; [ -z "$$ours" ] || rm -f $$ours; exit $$done' peers $$missing >/dev/null 2>&1 || \
	  echo "$$missing cannot be installed; the tests that need it will fail"; }

php:
	@command -v php >/dev/null || { \
	  echo "installing php-cli from Debian (the WooCommerce plugin runs in it)"; \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends php-cli' >/dev/null 2>&1 || \
	  echo "php-cli cannot be installed; the plugin will not be graded"; }

maven:
	@command -v mvn >/dev/null || { \
	  echo "installing maven from Debian (it compiles the generated Java client)"; \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven' >/dev/null 2>&1 || \
	  echo "maven cannot be installed; the Java client will fail"; }

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
	@echo "installing the developers' packages into $(VENV)"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python tools/link.py
	@$(BIN)/python -m payintent_sandbox.chains.anvil_binary
	@touch $@ $(VENV)/sandbox

$(VENV)/web/installed: tools/web/package.json tools/web/package-lock.json | $(VENV)/dev
	@echo "installing the checks of the browser's part into $(VENV)/web"
	@$(BIN)/python -m tools.web.install
	@touch $@

$(VENV)/openapi/installed: tools/openapi/package.json tools/openapi/package-lock.json requirements/clients.txt requirements/mcp.txt | $(VENV)/dev
	@echo "installing what checks the contract and makes clients of it into $(VENV)/openapi, $(VENV)/clients and $(VENV)/mcp"
	@$(BIN)/python -m tools.openapi.install
	@touch $@

$(VENV)/vitest/installed: tools/vitest/package.json tools/vitest/package-lock.json | $(VENV)/dev
	@echo "installing vitest into $(VENV)/vitest"
	@$(BIN)/python -m tools.vitest.install
	@touch $@

$(VENV)/examples/installed: tools/examples.py $(wildcard examples/*/requirements.txt examples/*/package-lock.json) | $(VENV)/openapi/installed
	@echo "installing what the shops of examples/ need into $(VENV)/examples"
	@$(BIN)/python -m tools.examples
	@touch $@

$(VENV)/medusa/installed: plugins/medusa/shop/package.json plugins/medusa/shop/package-lock.json | $(VENV)/openapi/installed
	@echo "installing Medusa into $(VENV)/medusa"
	@$(BIN)/python -m tools.medusa
	@touch $@

$(VENV)/profile/installed: requirements/profile.txt | $(VENV)/dev
	@echo "installing py-spy into $(VENV)/profile"
	@$(PYTHON) -m venv $(VENV)/profile
	@$(VENV)/profile/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/profile.txt
	@touch $@

$(VENV)/clients-long/installed: requirements/clients-long.txt | $(VENV)/dev
	@echo "installing openapi-generator into $(VENV)/clients-long"
	@$(BIN)/python -m tools.openapi.install long
	@touch $@

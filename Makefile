# Everything a newcomer needs: `make run` and `make test`. Both build the virtual environment themselves.
# The newest of these that works and can make virtual environments: a version manager's command may exist and not work.
PYTHONS := python3.14 python3.13 python3.12 python3.11
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for each in $(PYTHONS); do $$each -c 'import ensurepip, venv' >/dev/null 2>&1 && echo $$each && exit; done; echo python3)
endif
VENV := .venv
BIN := $(VENV)/bin
# One stamp per set of packages, each with the ones before it: a deployment, unit tests, everything that must pass.
DEPLOY_STAMP := $(VENV)/.installed-deploy
TEST_STAMP := $(VENV)/.installed-test
STAMP := $(VENV)/.installed
# pip compiles packages on one core, compileall on all. Some packages have files that are no Python 3: compileall says so.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
ARGS ?=
# pytest keeps the tests as it has rewritten them: without that, every worker rewrites all of them in every run.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help docs screenshots run practice test test-fast test-slow test-strict faults mutants lint types contracts unused unit package release bench clean lock
.PHONY: deploy check undeploy

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(DEPLOY_STAMP): requirements-deploy.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] < (3, 15) else "Outscaler needs Python 3.11, 3.12, 3.13 or 3.14; set PYTHON=…")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements-deploy.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(TEST_STAMP): $(DEPLOY_STAMP) requirements-test.txt
	$(PIP) --require-hashes -r requirements-test.txt
	@$(COMPILE)
	@touch $@

$(STAMP): $(TEST_STAMP) requirements-vendors.txt requirements-tools.txt
	$(PIP) --require-hashes -r requirements-test.txt -r requirements-vendors.txt -r requirements-tools.txt
	@$(COMPILE)
	@touch $@

run: $(STAMP) ## the main job on the local emulation, told live (ARGS=--stay keeps it up)
	@$(BIN)/python -m infra.demo $(ARGS)

practice: $(STAMP) ## an emulated AWS account and a cluster, on which docs/start.md can be tried
	@$(BIN)/python -m infra.emulators.practice $(ARGS)

# mypy and vulture have one thread each, the tests have one per core: this order fills the cores to the end, and the
# tests do not begin if code is unused.
test: $(STAMP) lint contracts ## everything that must pass
	@$(MAKE) --no-print-directory -j 2 types unused unit

PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
test-fast: $(TEST_STAMP) lint contracts ## lint, import contracts, unit tests
	$(PYTEST) -m "not slow and not strict" tests/unit $(ARGS)

lint: $(TEST_STAMP) ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

contracts: $(TEST_STAMP) ## the import contract
	$(BIN)/lint-imports

unused: $(STAMP) ## code that nothing calls; exceptions with reasons in infra/tools/unused_code.py
	$(BIN)/python -m infra.tools.unused_code

unit: $(STAMP) ## pytest, one process per core
	$(PYTEST) -m "not slow and not strict" tests $(ARGS)

test-slow: $(STAMP) ## the long runs
	OUTSCALER_LONG=1 $(BIN)/python -m pytest -m "slow or more" tests $(ARGS)

STRICT := $(BIN)/python -m infra.emulators.dynamodb_local --
test-strict: $(STAMP) ## store, scenarios and fault seeds on Amazon's DynamoDB Local (needs an AWS account, npm, Java 17)
	$(STRICT) $(BIN)/python -m pytest -m "strict or not strict" tests/unit/store $(ARGS)
	$(STRICT) $(BIN)/python -m pytest -m "not slow" -k one-process tests/scenario $(ARGS)
	$(STRICT) $(BIN)/python -m tests.faults.run --seeds 0-9

faults: $(STAMP) ## 1,000 fault seeds, in half of them nodes are replaced; a workflow runs them every night
	$(BIN)/python -m tests.faults.run --seeds 0-499 --jobs 2
	$(BIN)/python -m tests.faults.run --seeds 0-499 --jobs 2 --consolidation

mutants: $(TEST_STAMP) ## faults drawn by lot into the code, and which of them no test notices (ARGS="--seed 1 --count 50")
	$(BIN)/python -m tests.mutation.run $(ARGS)

docs: $(STAMP) ## the pages of docs/ that are made from the code and its tests
	$(BIN)/python -m infra.tools.generated_pages docs
	$(BIN)/python -m infra.aws.cost > docs/cost.md
	$(BIN)/python -m infra.tools.prometheus_rules rules > infra/prometheus/rules.yaml
	$(BIN)/python -m infra.tools.prometheus_rules resource > infra/prometheus/prometheusrule.yaml
	$(BIN)/python -m infra.tools.grafana_dashboard > infra/grafana/outscaler.json
	$(BIN)/python -m infra.tools.terminal_cast > docs/images/plan.svg

screenshots: $(STAMP) ## the pictures of docs/page.md, by headless Chromium
	$(BIN)/python -m infra.tools.screenshots

package: $(DEPLOY_STAMP) ## build/sam.json, build/deployment.zip (ARGS="--architecture x86_64" for that processor)
	$(BIN)/python -m infra.aws.package --stage $(STAGE) --out build $(ARGS)

# Against AWS, with the credentials of the environment; docs/deploy.md.
STAGE ?= dev
deploy: $(DEPLOY_STAMP) ## a stage into an AWS account (STAGE=dev)
	@$(BIN)/python -m infra.aws.deploy deploy --stage $(STAGE) $(ARGS)

check: $(DEPLOY_STAMP) ## whether a stage is as it should be (STAGE=dev)
	@$(BIN)/python -m infra.aws.deploy check --stage $(STAGE)

undeploy: $(DEPLOY_STAMP) ## a stage out of the account; the tables stay (STAGE=dev, ARGS=--with-table)
	@$(BIN)/python -m infra.aws.deploy undeploy --stage $(STAGE) $(ARGS)

bench: $(STAMP) ## benchmarks, as ratios measured in one run
	$(BIN)/python -m pytest -s -m "slow or not slow" tests/benchmarks $(ARGS)

LOCK := uv pip compile --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --generate-hashes
lock: ## recompile the pinned requirements with their hashes (needs uv)
	$(LOCK) requirements.in -o requirements.txt
	$(LOCK) infra/watcher/requirements.in -c requirements.txt -o infra/watcher/requirements.txt
	$(LOCK) requirements-cli.in -c requirements.txt -o requirements-cli.txt
	$(LOCK) requirements-deploy.in -c requirements-cli.txt -o requirements-deploy.txt
	$(LOCK) requirements-test.in -c requirements-deploy.txt -o requirements-test.txt
	$(LOCK) requirements-vendors.in -c requirements-test.txt -o requirements-vendors.txt
	$(LOCK) requirements-tools.in -c requirements-test.txt -c requirements-vendors.txt -o requirements-tools.txt

release: $(STAMP) ## dist/: wheel, zips, template, SBOM and checksums of the commit (ARGS=--allow-dirty to try it)
	$(BIN)/python -m infra.release --out dist $(ARGS)

clean: ## remove what was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

# The ways to build, check and try Blockhouse. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup lock generate lint test unit seen browser certify demo demo-mirror chaos alerts simulate mutate bench images e2e e2e-faults e2e-node scale docs clean

BIN := .venv/bin
ARGS ?=
# Each worker has a cluster of its own; one that is given has room for one operator.
E2E_WORKERS := $(if $(BLOCKHOUSE_E2E_KUBECONFIG),-n 0,-n 3 --dist loadgroup)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  ARGS="..." adds arguments: make unit ARGS="-k codec", make demo ARGS="--help"'

setup: ## Install packages, the virtual environment and Kafka; quick when all is there
	@scripts/setup

lock: setup ## Compile requirements.lock after a dependency changed
	@scripts/lock $(ARGS)

generate: setup ## Write the CRDs, their copies in the chart, docs/reference.md and docs/openapi.yaml
	@scripts/generate

lint: setup ## Check style, types and layers
	@scripts/lint

test: setup ## Everything: lint, unit, property and integration tests (SEED=n repeats a run)
	@scripts/test $(ARGS)

unit: setup ## The tests that need no servers
	@$(BIN)/pytest -q -m "not integration and not browser" $(ARGS)

browser: setup ## The page of an aggregator in a real Chromium
	@scripts/setup browser
	@$(BIN)/pytest -q -n 0 -m browser tests/browser $(ARGS)

seen: setup ## Eight faults on real servers, and where each is seen within 15 s; some minutes
	@$(BIN)/pytest -q -n 0 -rP -m seen --timeout=600 tests/integration $(ARGS)

certify: setup ## What Blockhouse needs of a ClickHouse, tested on yours: CLICKHOUSE=/path/to/clickhouse-server
	@[ -n "$(CLICKHOUSE)" ] || { echo "which one? make certify CLICKHOUSE=/path/to/clickhouse-server" >&2; exit 2; }
	@CLICKHOUSE="$(CLICKHOUSE)" $(BIN)/pytest -q -n 0 -m clickhouse --timeout=600 tests/integration $(ARGS)

demo: setup ## Two Kafka clusters into replicated ClickHouse, with kills and an audit (REPLICAS=4 SEED=n ROWS=n)
	@$(BIN)/blockhouse demo $(ARGS)

demo-mirror: setup ## A mirror between two Kafka clusters follows its load, with kills and an audit (SEED=n)
	@$(BIN)/blockhouse demo mirror $(ARGS)

chaos: setup ## Random faults on real servers, then an audit (SEED=n MINUTES=3 SHARDS=1 REPLICAS=4 RATE=200)
	@$(BIN)/blockhouse chaos random $(ARGS)

alerts: setup ## Faults on real servers until the shipped alerts fire, and each is resolved; some minutes
	@$(BIN)/blockhouse chaos run e2e/chaos/scenarios/alerts.yaml $(ARGS)

simulate: setup ## The real driver in thousands of simulated worlds (SEED=n repeats them; ARGS="--seeds 100000")
	@$(BIN)/python -m tests.simulation $(ARGS)

mutate: setup ## Break each safeguard and see that a test notices
	@$(BIN)/python -m tests.mutations $(ARGS)

bench: setup ## Measure the whole path against its limits
	@$(BIN)/python bench/end_to_end.py $(ARGS)

e2e: setup ## The operator on a real Kubernetes API with fake nodes (SEED=n repeats a run)
	@[ -n "$(BLOCKHOUSE_E2E_KUBECONFIG)" ] || scripts/cluster-binaries kube kwok helm >/dev/null
	@$(BIN)/pytest -q $(E2E_WORKERS) -m "not node and not faults" --timeout=1800 e2e/scenarios $(ARGS)

e2e-faults: setup ## The API server down, frozen, cut off, slow, the operator killed, clocks apart: in a rolling restart
	@scripts/cluster-binaries kube kwok helm >/dev/null
	@$(BIN)/pytest -q -m faults --timeout=1800 e2e/scenarios/test_faults.py $(ARGS)

e2e-node: setup ## The operator, ClickHouse and PySpark as real pods; needs root
	@scripts/setup images node
	@scripts/cluster-binaries >/dev/null
	@$(BIN)/pytest -q -m node --timeout=1800 e2e/scenarios $(ARGS)

scale: setup ## What the operator costs by its number of shards, on a real Kubernetes API (ARGS="--shards 50")
	@scripts/cluster-binaries kube kwok helm >/dev/null
	@$(BIN)/python bench/operator_scale.py $(ARGS)

docs: setup ## The pages as a site that works without internet: build/docs/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)

images: setup ## Build the container images, without a daemon, into the cache
	@scripts/images $(ARGS)

clean: ## Stop a running stack; remove the virtual environment and everything generated here
	@if [ -x $(BIN)/blockhouse ] && [ -e .run/stack/stack.json ]; then $(BIN)/blockhouse stack down; fi
	@rm -rf .venv .run build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Isthmus. `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
FAST := -n 2 --dist loadfile -q

export GOFLAGS := -mod=readonly

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not on PATH; set PYTHON to a Python of 3.11 or newer" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-virtualenv --require-hashes --requirement constraints.txt
	$(BIN)/pip install --quiet --require-virtualenv --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(VENV)/ready ## make the environment in .venv

.PHONY: demo
demo: setup ## a real control plane, the operator and a ModelServing on this machine (KEEP=1, KUBECONFIG=FILE)
	@$(BIN)/isthmus sandbox demo $(if $(KEEP),--keep) $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig '$(KUBECONFIG)')

.PHONY: demo-export
demo-export: setup ## a graph, its relay and the exports that come, change and go on a real control plane (KEEP=1)
	@$(BIN)/isthmus sandbox demo-export $(if $(KEEP),--keep)

.PHONY: demo-global
demo-global: setup ## one address for the pools of two clusters, of which one is lost and comes back (KEEP=1)
	@$(BIN)/isthmus sandbox demo-global $(if $(KEEP),--keep)

.PHONY: check
check: setup ## format, lint, types, import contracts, fast tests: below 60 seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell src tests docs README.md CONTRIBUTING.md CHANGELOG.md Makefile
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) $(FAST) tests/unit tests/property

.PHONY: test
test: setup controlplane helm redis ## everything that must hold
	$(PYTEST) $(FAST) tests/unit tests/property
	$(PYTEST) -q -p no:randomly tests/services tests/cli tests/chart tests/apiserver

.PHONY: test-multicluster
test-multicluster: setup controlplane ## pools over Cilium's and Karmada's Multi-Cluster Services, both built once per machine
	@$(BIN)/isthmus sandbox build cilium
	@$(BIN)/isthmus sandbox build karmada
	$(PYTEST) -q -p no:randomly tests/multicluster

.PHONY: controlplane
controlplane: setup ## build the control plane once per machine
	@$(BIN)/isthmus sandbox build

.PHONY: helm
helm: setup ## build Helm once per machine, for the tests of the chart
	@$(BIN)/isthmus sandbox build helm

.PHONY: redis
redis: setup ## a Redis server for tests, from Debian's packages where there is none, once per machine
	@$(BIN)/isthmus sandbox build redis

.PHONY: bench
bench: setup controlplane ## requests, CPU and memory beside the Go implementation's figures
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.pools
	$(BIN)/python -m benchmarks.router
	$(BIN)/python -m benchmarks.discovery

.PHONY: coverage
coverage: setup controlplane ## all tests with coverage of src/
	$(PYTEST) --cov --cov-report=term

.PHONY: mutate
mutate: setup ## break one guard at a time; each must fail a test (ROOM="modelserving poolrelay graph")
	nice -n 19 $(BIN)/python scripts/mutate.py $(ROOM)

.PHONY: chaos
chaos: setup controlplane ## random histories against a real API server (SECONDS=600 SEED=7)
	$(BIN)/python -m tests.chaos.run --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(if $(STEPS),--steps $(STEPS))

.PHONY: format
format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: conformance
conformance: setup ## write docs/conformance.md from the rules and the tests' marks
	$(BIN)/python scripts/conformance.py

.PHONY: chart-crds
chart-crds: setup ## write the chart's CRDs from the definitions in src/
	$(BIN)/python scripts/generate_chart_crds.py

.PHONY: constraints
constraints: ## pin the newest versions that fit, with hashes
	$(BIN)/pip-compile --quiet --extra dev --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header --output-file constraints.txt pyproject.toml

.PHONY: clean
clean: ## remove what make made in this folder
	rm -rf $(VENV) build dist .coverage* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The commands of this project. Each does all of its own set-up.
.DEFAULT_GOAL := help
PY := .venv/bin/python
DEMO_ARGS ?=
UP_ARGS ?=
TEST_ARGS ?=

.PHONY: help setup setup-services demo up test check bench compose-check lock format

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## the Python environment in .venv
	@scripts/setup.sh

setup-services: ## the same, and what the tests drive: Chromium, Redis, Apache Kafka
	@scripts/setup.sh services

demo: setup ## everything on this machine, a fleet, real traffic, the pages, and a count that must agree
	@$(PY) -m tallygate demo $(DEMO_ARGS)

up: setup ## everything on this machine, until Ctrl-C
	@$(PY) -m tallygate up $(UP_ARGS)

test: setup-services ## the whole test suite on real engines
	@$(PY) -m pytest -n 2 --dist worksteal $(TEST_ARGS)

check: setup ## linters, types, import rules
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports

bench: setup-services ## every benchmark, one table each
	@for name in check lock wire owner simulate sidecar envoy pipeline queries; do $(PY) -m benchmarks.$$name || exit 1; done

compose-check: ## docker-compose.yml on a Docker engine of its own, with traffic and crashes (Debian, root, ten minutes)
	@scripts/compose-check.sh

lock: ## compile the hashed requirement files from pyproject.toml
	@scripts/lock.sh

format: setup ## let ruff put the code in order
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

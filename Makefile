# The front door: `make demo` and `make test` do everything on a machine with Python >= 3.11.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready-$(shell cat requirements.lock pyproject.toml | sha256sum | cut -c1-12)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install demo test bench lock stubs format check clean

help: ## Say what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

install: $(READY) ## Make .venv with exactly what requirements.lock names

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	rm -f .venv/ready-* && touch $@

demo: $(READY) ## Play every bundled task with three scripted agents, score, and write a report
	$(BIN)/railgym run --name demo --overwrite

test: $(READY) ## Run the tests
	$(BIN)/pytest -n auto $(ARGS)

bench: $(READY) ## Measure speed and size, as ratios within one run
	$(BIN)/python tests/bench/bench.py $(ARGS)

lock: ## Write requirements.lock anew (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --quiet --extra server --extra dev pyproject.toml -o requirements.lock

stubs: $(READY) ## Generate the Python stubs from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=clients/python \
		--grpc_python_out=clients/python --mypy_out=quiet:clients/python \
		--mypy_grpc_out=quiet:clients/python proto/railgym/v1/*.proto

format: $(READY) ## Format Python and proto
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/buf format -w proto

check: $(READY) ## Everything that is checked without running: format, lint, types, imports, proto, stubs, tasks
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf format -d --exit-code proto
	$(BIN)/buf lint proto
	for wire in tests/golden/*/wire.binpb; do $(BIN)/buf breaking proto --against $$wire || exit 1; done
	$(BIN)/python tests/stubs_are_fresh.py
	$(BIN)/railgym tasks lint

clean: ## Remove what was made
	rm -rf .venv build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The front door: `make demo` and `make test` do everything on a machine with Python >= 3.11.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready-$(shell cat requirements.lock pyproject.toml | sha256sum | cut -c1-12)
READY_CI := .venv/ready-ci-$(shell cat requirements-ci.lock pyproject.toml | sha256sum | cut -c1-12)
PEERS := .venv-bench/ready-$(shell sha256sum < tests/bench/requirements-peers.lock | cut -c1-12)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header --quiet

.DEFAULT_GOAL := help
.PHONY: help install install-ci demo test bench load lock stubs format check check-deploy chaos fuzz image-test clean

help: ## Say what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

install: $(READY) ## Make .venv with exactly what requirements.lock names

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	rm -f .venv/ready-* && touch $@

install-ci: $(READY_CI) ## The same with what `make check` and a few tests need besides

$(READY_CI): $(READY) requirements-ci.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-ci.lock
	rm -f .venv/ready-ci-* && touch $@

demo: $(READY) ## Play every bundled task with three scripted agents, score, and write a report
	$(BIN)/railgym run --name demo --overwrite

test: $(READY) ## Run the tests
	$(BIN)/pytest -n auto $(ARGS)

bench: $(READY) ## Measure speed and size beside other systems, as ratios within one run
	-$(MAKE) --no-print-directory $(PEERS)
	$(BIN)/python tests/bench/bench.py $(ARGS)

load: $(READY) ## Put a server under load: 10,000 sessions with think time, PASS or what broke
	$(BIN)/python tests/bench/load.py $(ARGS)

$(PEERS): tests/bench/requirements-peers.lock
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	rm -f .venv-bench/ready-* && touch $@

lock: ## Write the lock files anew (needs uv): for work, for CI, what the image runs, what builds it
	$(COMPILE) --extra server --extra dev --extra ci pyproject.toml -o requirements-ci.lock
	$(COMPILE) --extra server --extra dev pyproject.toml -c requirements-ci.lock -o requirements.lock
	$(COMPILE) --extra server pyproject.toml -c requirements.lock -o requirements-server.lock
	$(COMPILE) tests/bench/requirements-peers.in -o tests/bench/requirements-peers.lock
	echo hatchling | $(COMPILE) - -c requirements.lock -o requirements-build.lock

stubs: $(READY) ## Generate the Python stubs from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=clients/python \
		--grpc_python_out=clients/python --mypy_out=quiet:clients/python \
		--mypy_grpc_out=quiet:clients/python proto/railgym/v1/*.proto

format: $(READY) ## Format Python and proto
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/buf format -w proto

check: $(READY_CI) check-deploy ## Everything that is checked without running: format, lint, types, imports, proto, stubs, tasks, deploy
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf format -d --exit-code proto
	$(BIN)/buf lint proto
	for wire in tests/golden/*/wire.binpb; do $(BIN)/buf breaking proto --against $$wire || exit 1; done
	$(BIN)/python tests/stubs_are_fresh.py
	$(BIN)/railgym tasks lint

check-deploy: $(READY_CI) ## Check Dockerfile, compose.yaml and deploy/k8s with their own tools
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	mkdir -p build
	$(BIN)/kubectl kustomize deploy/k8s -o build/k8s.yaml
	$(BIN)/kubernetes-validate --strict build/k8s.yaml

chaos: $(READY) ## Let 200 clients play while servers are killed, frozen and starved; PASS or what broke
	$(BIN)/python tests/chaos/run.py $(ARGS)

fuzz: $(READY) ## Fuzz every decoder that reads bytes from outside (needs the extra "fuzz")
	$(BIN)/python tests/fuzz/run.py all $(ARGS)

image-test: $(READY) ## Build the image and run it for real (needs root, buildah, podman, runc, debootstrap)
	bash tests/image/run

clean: ## Remove what was made
	rm -rf .venv .venv-bench build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

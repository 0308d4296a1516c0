# Every command of the project. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
EXAMPLE ?= flight_recovery
STAMP  := $(VENV)/.installed-$(shell cat requirements*.lock pyproject.toml sdk/python/pyproject.toml | cksum | cut -d' ' -f1)

.PHONY: help setup demo test check format lock openapi bench storm clean
.DEFAULT_GOAL := help

help:  ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make the virtual environment and install everything into it

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Plangate needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: -r requirements-demo-build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-build-isolation -r requirements-demo.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e sdk/python -e .
	@rm -f $(VENV)/.installed-*
	@touch $@

demo: setup  ## Run an example: EXAMPLE=flight_recovery, pricing or handover (ARGS: --yes approves without asking, --graph)
	@$(BIN)/python -m examples.$(EXAMPLE) $(ARGS)

test: setup  ## Run every test (with ARGS: pytest with these)
ifdef ARGS
	@$(BIN)/python -m pytest $(ARGS)
else
	@# Those with real processes mostly wait: the others run beside them and are shown after them.
	@log=$$(mktemp); \
	$(BIN)/python -m pytest --ignore=tests/processes -p no:cacheprovider > $$log 2>&1 & others=$$!; \
	$(BIN)/python -m pytest tests/processes; processes=$$?; \
	wait $$others; others=$$?; cat $$log; rm -f $$log; \
	if [ $$processes -eq 0 ] && [ $$others -eq 0 ]; then echo "make test: every test passed"; exit 0; fi; \
	echo "make test: FAILED (pytest ended with $$processes for tests/processes and $$others for all other tests)"; \
	exit 1
endif

check: setup  ## Lint, types, floors, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy
	@$(BIN)/plangate openapi | diff -u openapi/openapi.json - || (echo "openapi/openapi.json is not what the code says: run make openapi"; exit 1)

format: setup  ## Format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

openapi: setup  ## Write openapi/openapi.json from the code
	@$(BIN)/plangate openapi > openapi/openapi.json.new && mv openapi/openapi.json.new openapi/openapi.json

lock: setup  ## Resolve the dependencies again into requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-emit-package plangate --no-header -o requirements.lock --quiet --upgrade

bench: setup  ## Measure the service against the floor (ARGS: --quick, --write)
	@$(BIN)/python -m bench $(ARGS)

storm: setup  ## Run the fault scenarios at full size, about 40 minutes (ARGS: names, --small, --write)
	@$(BIN)/python -m tests.storm $(ARGS)

clean:  ## Remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Every command of the project. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
EXAMPLE ?= flight_recovery
STAMP  := $(VENV)/.installed-$(shell cat requirements*.lock pyproject.toml sdk/python/pyproject.toml | cksum | cut -d' ' -f1)
TEST_STAMP := $(STAMP)-test-$(shell cat tests/support/*.lock tests/processes/*/package-lock.json sdk/typescript/package-lock.json console/package-lock.json | cksum | cut -d' ' -f1)
# uv from PATH, else the locked one inside the virtual environment.
UV     := $(shell command -v uv || echo $(BIN)/uv)
UPGRADE ?= --upgrade
COMPILE := $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-emit-package plangate --no-emit-package plangate-server --no-header --quiet
INSTALL := $(UV) pip install --quiet --no-progress --python $(BIN)/python

# The processes that run tests. Most tests wait now and then, so there may be more of them than processors.
WORKERS ?= 4
define run-tests
$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder --quiet $(2); status=$$?; \
	if [ $$status -eq 0 ]; then echo "make $(1): every test passed"; exit 0; fi; \
	echo "make $(1): FAILED (pytest ended with $$status)"; exit 1
endef

# Compiled modules are kept: every process that a test starts would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-test console docs demo test test-quick test-long check format lines lock openapi examples bench storm clean
.DEFAULT_GOAL := help

help:  ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# A newer checkout has other pages.
setup: $(STAMP)  ## Make the virtual environment with what `make demo` and `plangate serve` need
	@$(BIN)/python -m docsite

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Plangate needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@echo "Installing the locked dependencies into $(VENV) (less than a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-installer.lock
	@$(INSTALL) --require-hashes -r requirements.lock -r requirements-build.lock
	@$(INSTALL) --no-deps --require-hashes --no-build-isolation -r requirements-demo.lock
	@$(INSTALL) --no-deps --no-build-isolation -e sdk/python -e .
	@rm -f $(VENV)/.installed-*
	@touch $@

setup-test: $(TEST_STAMP)  ## Add every extra and the programs of `make check` and `make test`

$(TEST_STAMP): $(STAMP)
	@echo "Installing the test programs"
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m tests.support.programs
	@touch $@

demo: setup  ## Run an example: EXAMPLE=flight_recovery, pricing, handover or questions (ARGS: --console decides in the browser, --yes without asking, --graph)
	@$(BIN)/python -m examples.$(EXAMPLE) $(ARGS)

test: setup-test  ## Run every test but the long ones, in parallel (with ARGS: pytest with these)
ifdef ARGS
	@$(BIN)/python -m pytest $(ARGS)
else
	@$(call run-tests,test,-m "not long")
endif

test-quick: setup-test  ## Run what a developer needs at each save, in less than 90 seconds
	@$(call run-tests,test-quick,-m "not long" tests/pure)

test-long: setup-test  ## Run the tests that take long by their nature
	@$(call run-tests,test-long,-m "long or hypothesis" --hypothesis-profile=many-examples)

check: setup-test  ## Lint, types, floors, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy
	@$(BIN)/python -m tests.support.typescript
	@$(BIN)/python -m tests.support.openapi_client
	@$(BIN)/python -m tests.support.python_client --check
	@$(BIN)/python -m tests.support.api_compatibility
	@$(BIN)/python -m tests.support.console
	@$(BIN)/python -m docsite
	@$(BIN)/plangate openapi | diff -u openapi/openapi.json - || (echo "openapi/openapi.json is not what the code says: run make openapi"; exit 1)

format: setup-test  ## Format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

console: setup-test  ## Build the console into the service (app/api/pages/static/console)
	@$(BIN)/python -m tests.support.console --write

docs: setup  ## Build the site of the documentation, with its links checked (ARGS: --serve shows it at http://127.0.0.1:8701)
	@$(BIN)/python -m docsite $(ARGS)

lines:  ## Count the lines of the service and the library without blanks, comments and docstrings (ARGS: a commit)
	@$(PYTHON) -m tests.support.code_lines $(ARGS)

openapi: setup-test  ## Write openapi/openapi.json from the code, and the Python client from it
	@$(BIN)/plangate openapi > openapi/openapi.json.new && mv openapi/openapi.json.new openapi/openapi.json
	@$(BIN)/python -m tests.support.python_client

examples: setup-test  ## Record the examples of the API document from a service, and write the document
	@$(BIN)/python -m tests.support.api_examples
	@$(MAKE) --no-print-directory openapi

lock:  ## Resolve the dependencies again into the lock files (UPGRADE= keeps the versions that are locked)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-installer.lock
	@$(COMPILE) $(UPGRADE) pyproject.toml --extra all --group dev -o requirements-dev.lock
	@$(COMPILE) pyproject.toml --extra all -c requirements-dev.lock -o requirements-all.lock
	@$(COMPILE) pyproject.toml --extra data -c requirements-dev.lock -o requirements.lock
	@$(COMPILE) $(UPGRADE) --group build -c requirements-dev.lock -o requirements-build.lock
	@$(COMPILE) $(UPGRADE) --group installer -o requirements-installer.lock

bench: setup-test  ## Measure the service against the floor (ARGS: --quick, --write)
	@$(BIN)/python -m bench $(ARGS)

storm: setup-test  ## Run the fault scenarios at full size, about 40 minutes (ARGS: names, --small, --write)
	@$(BIN)/python -m tests.storm $(ARGS)

clean:  ## Remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

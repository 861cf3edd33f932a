# Everything from nothing: each target makes the virtual environment it needs. `make` alone lists them.
PYTHON ?= python3
VENV ?= .venv
# -e: an edit takes effect at once. Empty (as in CI): the tests meet a copy, installed as a user installs it.
EDITABLE ?= -e
# Passed on to pytest and to the demo, for example: make test ARGS="tests/ir -x"
ARGS ?=
# The newest Triton that the runtime must work with, for `make test-versions`.
TRITON ?= 3.9.0

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-versions bench lint types ci constraints clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 20

demo: $(INSTALLED)  ## search a text file with a real model that runs on opgraft's kernels (ARGS="--query '...'")
	$(BIN)/python examples/sentence_encoder.py $(ARGS)

test: $(INSTALLED)  ## the tests, without the slow ones
	$(PYTEST) -m "not slow" $(ARGS)

test-full: $(INSTALLED)  ## every test that this machine can run
	$(PYTEST) $(ARGS)

test-versions: $(INSTALLED)  ## the runtime's tests with another Triton beside the pinned one (TRITON=3.9.0)
	$(PIP) install --quiet --no-deps --upgrade --target build/triton-$(TRITON) triton==$(TRITON)
	PYTHONPATH=build/triton-$(TRITON) $(PYTEST) -m "not slow" tests/jit $(ARGS)

bench: $(INSTALLED)  ## the demo's replaced subgraphs against Inductor's code for them
	$(BIN)/python benchmarks/subgraphs.py $(ARGS)

lint: $(INSTALLED)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The root of the repository is the package, so mypy reads a copy that lies under its own name.
types: $(INSTALLED)  ## mypy, strict, on an installed copy
	rm -rf build/lib build/typed
	$(PIP) install --quiet --no-deps --no-build-isolation --target build/typed .
	MYPYPATH=build/typed $(BIN)/mypy -p opgraft

ci: lint types test  ## what .ci/run runs

constraints:  ## resolve constraints.txt anew, for every Python that is supported
	rm -rf build/resolver && $(PYTHON) -m venv build/resolver
	build/resolver/bin/pip install --quiet uv
	build/resolver/bin/uv pip compile --quiet --universal --no-python-downloads --python-version 3.10 --all-extras \
	  --no-annotate --no-header pyproject.toml --output-file build/constraints.txt
	{ echo "# Every distribution that a target of the Makefile installs. Made by: make constraints"; \
	  sed -E "s/ (;|and) platform_python_implementation == 'CPython' and sys_platform == 'linux'$$//" \
	    build/constraints.txt; } > constraints.txt

clean:  ## remove what these targets made
	rm -rf $(VENV) build opgraft.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) .ci/check_machine.py
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --constraint constraints.txt "setuptools>=77"
	rm -rf build/lib
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation $(EDITABLE) ".[demo,test,dev,bench]"
	touch $@

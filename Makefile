# `make demo` and `make test` need nothing but Python 3.10 to 3.13. Every command sets up .venv first.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
export OMP_NUM_THREADS ?= 1

.PHONY: help demo check lint test test-oldest cpus mutants bench docs notebooks clean

help:
	@echo "make demo         run pnml demo on a real network and write its report to out/demo"
	@echo "make check        ruff, mypy and the core of the tests: the inner loop, in about a minute"
	@echo "make lint         ruff and mypy alone"
	@echo "make test         every check: ruff, mypy, doctests, all tests with branch coverage, and what was skipped and why"
	@echo "make test-oldest  the tests with the oldest dependencies allowed, in a .venv-oldest of their own (Python up to 3.12)"
	@echo "make cpus         the tests under six CPU settings (PATHS=tests/core for some of them)"
	@echo "make mutants      change one operator or number of the core at a time: which changes do the tests notice? (an hour)"
	@echo "make bench        measure speed beside the peers (about ten minutes, on a quiet machine)"
	@echo "make docs         build the documentation site into site/; a broken link is an error"
	@echo "make notebooks    run the notebooks of examples/ and store what they print and draw"
	@echo "make clean        remove .venv and everything the other commands made"

.venv/base: pyproject.toml constraints.txt
	@echo "== Setting up .venv with the pinned versions of constraints.txt (once; PyTorch is the large one)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,sklearn]' scikit-image
	@touch $@

.venv/installed: .venv/base
	@echo "== Adding what the checks need"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

.venv/docs: .venv/base
	@echo "== Adding what the site needs"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

demo: .venv/base
	$(BIN)/pnml demo --out out/demo

lint: .venv/installed
	@echo "== ruff and mypy"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint
	@echo "== The core of the tests"
	$(PYTEST) -q -n 2 -m "not slow" tests/core tests/backend tests/pytorch tests/test_architecture.py tests/test_metrics.py

test: lint
	@echo "== Tests and doctests, with branch coverage; skipped tests are listed at the end"
	$(PYTEST) -n auto --cov --cov-report=term

.venv-oldest/installed: pyproject.toml constraints-oldest.txt
	@echo "== Setting up .venv-oldest with the oldest versions that pyproject.toml allows"
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt torch
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable '.[dev]'
	@touch $@

test-oldest: .venv-oldest/installed
	@echo "== The quick tests; what old releases warn one another of is not our concern"
	.venv-oldest/bin/python -m pytest -q -n 2 -m "not slow" -W ignore::DeprecationWarning -W ignore::ResourceWarning \
		-W ignore::pytest.PytestUnraisableExceptionWarning \
		-W "ignore:Attempted to insert a get_attr Node:UserWarning" -W ignore::UserWarning:torch.fx.graph

cpus: .venv/installed
	$(BIN)/python -m studies.checks.cpus $(PATHS)

mutants: .venv/installed
	$(BIN)/python -m studies.checks.mutants --processes 2 --out out/mutants.md

bench: .venv/installed
	env -u OMP_NUM_THREADS $(BIN)/python -m studies.speed.run

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "look at it: $(BIN)/python -m http.server --directory site"

notebooks: .venv/installed
	MPLBACKEND=agg $(BIN)/python website/site_notebooks.py examples/*.ipynb

clean:
	rm -rf .venv .venv-oldest out site .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache

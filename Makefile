# Two commands need nothing but Python 3.10 to 3.13: `make demo` and `make test`. Both set up .venv first.

PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint bench clean

help:
	@echo "make demo   set up .venv, show a real network pictures it does not know, and write a report of it"
	@echo "make test   set up .venv and run every check: ruff, mypy, doctests, tests with coverage"
	@echo "make bench  set up .venv and measure speed beside the peers (about ten minutes, on a quiet machine)"
	@echo "make clean  remove .venv and everything the other commands made"

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

demo: .venv/base
	$(BIN)/pnml demo --out out/demo

lint: .venv/installed
	@echo "== ruff and mypy"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	@echo "== Tests and doctests, with branch coverage"
	$(BIN)/python -m pytest -n auto --cov --cov-report=term

bench: .venv/installed
	env -u OMP_NUM_THREADS $(BIN)/python benchmarks/speed.py

clean:
	rm -rf .venv out .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache

# Two commands need nothing but Python 3.10 to 3.13: `make demo` and `make test`. Both set up .venv first.

PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint clean

help:
	@echo "make demo   set up .venv and run the demonstration"
	@echo "make test   set up .venv and run every check: ruff, mypy, doctests, tests with coverage"
	@echo "make clean  remove .venv and everything the other commands made"

.venv/installed: pyproject.toml constraints.txt
	@echo "== Setting up .venv with the pinned versions of constraints.txt (once; PyTorch is the large one)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: .venv/installed
	@echo "== The Iris experiment of the paper: regret of a single-layer network, drawn into out/figures"
	$(BIN)/pnml figures iris --out out/figures
	$(BIN)/pnml figures simulation --out out/figures

lint: .venv/installed
	@echo "== ruff and mypy"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	@echo "== Tests and doctests, with branch coverage"
	$(BIN)/python -m pytest -n auto --cov --cov-report=term

clean:
	rm -rf .venv out .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache

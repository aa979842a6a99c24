# `make demo` and `make test` do all their own set-up, in .venv, from constraints.txt. Nothing here needs a GPU.
#   PYTHON=python3.12 make test      another interpreter (3.11 or later)
#   PYTEST_ARGS="-k lift" make test  arguments for pytest, in place of -n 2 (two processes)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
PYTEST_ARGS ?= -n 2
VENV := .venv
BIN := $(VENV)/bin
ENV := $(VENV)/.installed

.PHONY: demo test lint env clean
.DEFAULT_GOAL := demo

demo: $(ENV)
	@echo "== 1/3 audit: is every call of every op claimed by one kernel, or by a declared winner?"
	@$(BIN)/tileops audit tileops.ops
	@echo "== 2/3 explain: why this kernel for this call?"
	@$(BIN)/tileops explain GQADenseFwdOp gqa_dense \
		arch=90 batch=1 heads=32 heads_kv=4 dim=128 max_seqlen_q=1 seqlen_kv=4096 dtype=float16 is_causal=True
	@echo "== 3/3 run: LayerNorm and GQA decode on the best device here"
	@$(BIN)/python -m tileops.demo

test: $(ENV)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(ENV)
	@echo "== ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy --strict"; $(BIN)/mypy
	@echo "== import-linter"; $(BIN)/lint-imports
	@echo "== interface-names-lint"; $(BIN)/interface-names-lint tileops
	@echo "== wheel contents"; $(BIN)/python .ci/wheel_contents.py

env: $(ENV)

$(ENV): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later on PATH; name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "== environment: creating $(VENV) with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv --clear $(VENV); }
	@echo "== environment: installing the pinned packages (torch and TileLang are large; a few minutes at most)"
	@$(BIN)/python -m pip install -qq -c constraints.txt setuptools
	@$(BIN)/python -m pip install -qq --no-build-isolation -c constraints.txt -e '.[dev,notebooks]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

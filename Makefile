# setup · demo · test · test-slow · lint · bench · docs. Every target sets up what it needs; nothing is installed outside .venv.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard src/xclearn/kernels/native/*)

.PHONY: setup demo test test-slow lint bench docs

setup: .venv/setup.stamp

# Python sources are live (editable install); dependencies and the native core are what has to be installed again.
.venv/setup.stamp: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xclearn needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt scikit-build-core nanobind ninja
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[serve,test,dev,docs]'
	touch $@

demo: setup
	$(BIN)/xc demo

test: lint
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

test-slow: setup  # what takes minutes: the whole demo
	$(BIN)/python -m pytest -m slow

bench: setup
	$(BIN)/python benchmarks/speed/kernels.py

docs: setup
	$(BIN)/mkdocs build --strict

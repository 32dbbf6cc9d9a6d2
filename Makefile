# Two commands serve a fresh machine: `make roofline` and `make test`.
# PYTHON picks the interpreter of the virtual environment; CONSTRAINTS= installs without the pins
# (on a GPU machine whose torch should stay, use pip there instead: see the README). Tests wait for
# processes of their own, so that three test processes keep two processors busy.

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
TEST_PROCESSES ?= 3
VENV := .venv
BIN := $(VENV)/bin
PIN := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: roofline test check mutants clean

roofline: $(VENV)/installed
	$(BIN)/gpuperf roofline --op matmul --sizes 128:8192

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

# Single changes to the code that a test has to notice; takes 20 minutes, and is no part of CI.
mutants: $(VENV)/installed-dev
	$(BIN)/python tests/mutants/run.py

$(VENV)/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIN) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet $(PIN) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info

# make demo    watch a policy learn            make lint   ruff and mypy
# make test    the tests                       make lock   write uv.lock and requirements/ anew
# make lab     JupyterLab on notebooks/        make clean  remove the environment and the caches
#
# Each does the whole set-up first; the second time that takes no time. Settings: EXTRA=cpu or gpu (default: gpu where
# nvidia-smi answers), PYTHON=python3.12, ARGS="..." for the command itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The extra that is installed; else gpu where nvidia-smi answers.
EXTRA ?= $(or $(patsubst $(VENV)/.ready-%,%,$(firstword $(wildcard $(VENV)/.ready-*))),$(DETECTED))
DETECTED = $(shell timeout 10 nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
READY := $(VENV)/.ready-$(EXTRA)
# JupyterLab does not start as root unless told so, and in a container the user is often root.
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)

# A Python that may not keep its bytecode compiles torch, vllm and transformers anew at every start: 8 s.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test lab lint lock clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

$(READY): uv.lock pyproject.toml scripts/bootstrap.py
	@$(PYTHON) scripts/bootstrap.py --extra $(EXTRA) --python $(PYTHON) --stamp $@

setup: $(READY)

demo: setup
	$(BIN)/workbench run recipes/quickstart.ipynb $(ARGS)

test: setup
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lab: setup
	JUPYTER_PREFER_ENV_PATH=1 exec $(BIN)/jupyter lab $(ROOT_FLAG) --LabApp.default_url=/lab/tree/notebooks $(ARGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

lock: setup
	$(BIN)/uv lock
	$(BIN)/python scripts/export_requirements.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache

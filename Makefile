# Every target starts from a fresh clone with nothing installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
export PIP_NO_INPUT := 1
# Modules are compiled when they are imported; most never are.
export PIP_NO_COMPILE := 1
# Compiled once, though: tests and benchmarks start many interpreters.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run quick test docs-check mutants mutants-all house gate venv bench tables gallery cards formulas functions stacks hard-targets regression docs site dist lint clean

help:
	@echo "make run     install the core, compile sin(x)+cos(y), print what is proved, save layer and picture in out/"
	@echo "make quick   the tests to run while working, under a minute: numbers, expressions, structure, targets, every head proved twice"
	@echo "make test    install what the tests need and run them all"
	@echo "make docs-check    every block of every page is run and compared, the slow ones too, some minutes"
	@echo "make mutants a sample of mutants of the proofs and the checker, and what survives the tests (tests/mutants.json), an hour"
	@echo "make mutants-all   all of them, by cosmic-ray, some nights"
	@echo "make house   the rules of the house, measured: lengths, underscore imports, one folder per head, what is written once"
	@echo "make gate    sixty targets over all heads beside their record: tokens, both bounds, hashes of the files, a minute"
	@echo "make venv    the full environment with all extras"
	@echo "make tables  regenerate the tables of the construction (docs/tables.md)"
	@echo "make gallery every target of the gallery through auto (docs/gallery.md), some minutes"
	@echo "make functions 10,000 random NumPy functions read and compared with their text, node by node and bit by bit, and 10,000 that write in place, two minutes"
	@echo "make cards   a picture of every gallery entry and its tokens at three errors, for the site, ten minutes"
	@echo "make formulas  AI Feynman's hundred and classical functions of up to 100 variables through auto (docs/formulas.md), half an hour"
	@echo "make stacks    known formulas and networks as stacks at three errors (docs/stacks.md), some minutes"
	@echo "make hard-targets  67 kinked, jumping, oblique and local targets through auto (docs/hard-targets.md), half an hour"
	@echo "make compile-time  how long compiling takes: gallery, hard targets, 26 requests, refusals (docs/benchmarks.md), 15 minutes"
	@echo "make bench   benchmarks of the CPU against its peers, one thread (docs/benchmarks.md)"
	@echo "make regression    the regressor beside its peers, 5 x 5 folds (docs/regression.md), about an hour"
	@echo "make docs    regenerate the pictures, the token table and the command outputs of README.md and docs/"
	@echo "make site    the documentation as a site with search, built strictly, in out/site/html"
	@echo "make dist    build sdist and wheel, install the wheel in a clean environment, run doctor, a compile and a check from it"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make clean   remove the environment and everything generated outside version control"

$(BIN)/python:
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# A stamp is newer than what it was installed from; `make test` after `make run` adds what is missing.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing maxaffine (core)"
	@$(BIN)/pip install -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing maxaffine with its test tools"
	@$(BIN)/pip install -e ".[test]"
	@touch $@ $(VENV)/.core

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing maxaffine with all extras"
	@$(BIN)/pip install -e ".[all,test]"
	@touch $@ $(VENV)/.core $(VENV)/.test

venv: $(VENV)/.all

run: $(VENV)/.core
	@mkdir -p out
	@$(BIN)/maxaffine compile "sin(x) + cos(y)" --box x=-pi:pi,y=-pi:pi --error 1e-6 \
		--out out/sin-cos.safetensors --figure out/sin-cos.png

test: $(VENV)/.test
	@$(BIN)/ruff check src tests benchmarks docs site $(wildcard examples)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & types=$$!; OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup -q; tests=$$?; \
		wait $$types; typed=$$?; cat $(VENV)/mypy.log; [ $$tests = 0 ] && [ $$typed = 0 ]

tables: $(VENV)/.core
	@$(BIN)/python benchmarks/tables.py

gallery: $(VENV)/.core
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/gallery.py

functions: $(VENV)/.test
	@MAXAFFINE_FUNCTIONS=10000 OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/unit/tracing/test_random_functions.py \
		tests/unit/tracing/test_random_programs.py

cards: $(VENV)/.core
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cards.py

formulas: $(VENV)/.core
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/formulas.py
	@$(BIN)/python benchmarks/formulas.py --page

stacks: $(VENV)/.core
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/stacks.py --write

compile-time: $(VENV)/.core
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/compile_time.py --write
	@$(BIN)/python benchmarks/compile_time.py --page

hard-targets: $(VENV)/.core
	@$(BIN)/python benchmarks/hard_targets.py

regression: $(VENV)/.test
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/regression.py

$(VENV)/.bench: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing maxaffine with what it is measured against"
	@$(BIN)/pip install -e ".[all,bench]"
	@touch $@ $(VENV)/.core

bench: $(VENV)/.bench
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/meanfield.py
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cpu_all.py

# Numbers, the language, decompositions and targets whole; of all heads that every case is proved twice and refuses in a sentence.
QUICK := $(addprefix tests/unit/,core expression structure target) \
	$(addprefix tests/contract/test_heads.py::test_,it_is_proved_twice_and_true what_a_head_does_not_serve_is_refused_in_a_sentence)

quick: $(VENV)/.test
	@OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup -q $(QUICK)

docs-check: $(VENV)/.test
	@MAXAFFINE_DOCS=all OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -q tests/docs tests/examples

mutants: $(VENV)/.test
	@$(BIN)/python tests/mutants.py

$(VENV)/.mutation: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing maxaffine with a mutation tool"
	@$(BIN)/pip install -e ".[test,mutation]"
	@touch $@ $(VENV)/.core $(VENV)/.test

# cosmic-ray edits the files of the working tree while it runs: let it have a clone of its own
mutants-all: $(VENV)/.mutation
	@mkdir -p out
	@for folder in proofs checker; do \
		sed "s/FOLDER/$$folder/" tests/cosmic-ray.toml > out/$$folder.toml; \
		PATH="$(CURDIR)/$(BIN):$$PATH" cosmic-ray init out/$$folder.toml out/$$folder.sqlite && \
		PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 cosmic-ray exec out/$$folder.toml out/$$folder.sqlite; \
		$(BIN)/cr-rate --fail-over 30 out/$$folder.sqlite || exit 1; \
	done

house: $(VENV)/.core
	@$(BIN)/python tests/house.py

gate: $(VENV)/.core
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/gate.py

$(VENV)/.site: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing maxaffine with what builds the site"
	@$(BIN)/pip install -e ".[all,site]"
	@touch $@ $(VENV)/.core

site: $(VENV)/.site
	@$(BIN)/python site/build.py

# A wheel is built from the sdist, installed where nothing else is, and has to answer from there.
dist:
	@rm -rf dist out/dist && mkdir -p out/dist
	@$(PYTHON) -m venv out/dist/tools && out/dist/tools/bin/pip install build
	@out/dist/tools/bin/python -m build --outdir dist . > out/dist/build.log 2>&1 || { tail -40 out/dist/build.log; exit 1; }
	@$(PYTHON) -m venv out/dist/clean && env -u PYTHONPATH out/dist/clean/bin/pip install dist/*.whl
	@cd out/dist && unset PYTHONPATH && clean/bin/maxaffine doctor && clean/bin/maxaffine compile "sin(x) + cos(y)" --box x=-3:3,y=-3:3 --error 1e-6 \
		--out layer.safetensors && clean/bin/maxaffine check layer.safetensors
	@ls -1 dist

docs: $(VENV)/.core
	@$(BIN)/python docs/regenerate.py

lint: $(VENV)/.test
	@$(BIN)/ruff check src tests benchmarks docs site $(wildcard examples)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

clean:
	rm -rf $(VENV) out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# `make demo` and `make test` set up their own environment in .venv; nothing else is needed but Python 3.11 or later.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Two workers with one thread each: numpy's own threads would only get into each other's way. Each worker has half of the
# tests, in order, so that models are made once for the tests that share them; who is done first helps the other.
# Commands that tests start find their modules compiled, whatever the shell says about that.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo outside peers test campaign quick check browser docs bench trusted lemmas rocq clean

demo: $(READY)
	$(BIN)/python examples/demo.py out

test: check browser
	$(PYTEST)

# The same theorems on many more cases; `headsmith selftest` makes up cases at random.
campaign: $(READY)
	HEADSMITH_CAMPAIGN=1 $(PYTEST) -m campaign

# A first answer in about a minute: the foundations, a compile end to end, files.
quick: $(READY)
	$(BIN)/ruff check .
	$(PYTEST) tests/core tests/transformer tests/language/test_[fgl]*.py tests/docs/test_certificate.py \
		tests/test_compile.py tests/lab/test_head_kinds.py --ignore tests/transformer/heads/test_drift.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Chromium and its driver, which the tests of pages need: Debian's packages, where they are missing.
browser:
	command -v chromium >/dev/null && command -v chromedriver >/dev/null \
		|| (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver) \
		|| (echo "make test needs chromium and chromedriver on the PATH: install them" && false)

# The scalar lemmas of the kernel's rules, proved by Rocq about the constants that are in its source; and two models,
# with their own bounds and with one that is false.
lemmas: rocq $(READY)
	$(BIN)/python lemmas/check.py
	$(BIN)/python lemmas/records.py "log(x)" --errors 1e-4
	$(BIN)/python lemmas/records.py "max(x, y)" --errors 1e-4
	$(BIN)/python lemmas/records.py "max(x, y)" --errors 1e-4 --below 0.97

# Rocq (coqc) and its library Interval: Debian's packages, where they are missing.
rocq:
	command -v coqc >/dev/null \
		|| (apt-get update -qq && apt-get install -y -qq --no-install-recommends coq libcoq-interval) >/dev/null \
		|| (echo "make lemmas needs coqc and its library Interval: install coq and libcoq-interval" && false)

# The book, into out/book: pages about heads, claims, records and the reference are made from the code, pictures too.
# The claims are run, which takes some minutes.
docs: $(READY)
	$(BIN)/python docs/make_pages.py docs/made --measure
	$(BIN)/python -m sphinx -q -W -b html docs out/book

# What must be trusted for a proof that a file carries: the kernel's modules, and their lines of code.
trusted: $(READY)
	$(BIN)/python -m headsmith.report.trusted

bench: $(READY)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/budget.py
	$(BIN)/python benchmarks/split.py
	$(BIN)/python benchmarks/catalogue.py
	$(BIN)/python benchmarks/native.py
	$(BIN)/python benchmarks/runtimes.py

# Exports in the tools that they are for: large packages, so they have an environment of their own.
outside: .venv-outside/.ready
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 .venv-outside/bin/python -m pytest tests_outside

.venv-outside/.ready: pyproject.toml
	test -x .venv-outside/bin/python || $(PYTHON) -m venv .venv-outside
	.venv-outside/bin/python -m pip install --quiet -e ".[plot,tools,onnx,sklearn]" pytest
	touch .venv-outside/.ready

# Side by side with Tracr (which brings jax), torchwright and auto_LiRPA: an environment of its own as well. auto_LiRPA
# 0.7 is on no registry: it is taken from its source, AUTO_LIRPA=FOLDER from a copy. It asks for a torch before 2.9 and
# runs with this one.
AUTO_LIRPA ?= git+https://github.com/Verified-Intelligence/auto_LiRPA@a050a3d61f4cb68b108fa7f07dcb3e4d7ef304df
peers: .venv-peers/.ready
	OMP_NUM_THREADS=1 .venv-peers/bin/python -W ignore benchmarks/peers.py
	OMP_NUM_THREADS=1 .venv-peers/bin/python -W ignore benchmarks/lirpa.py

.venv-peers/.ready: pyproject.toml
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet -e . tracr-pypi torch==2.13.0 torchwright==0.2.0 \
		appdirs graphviz ninja packaging pyyaml tqdm
	.venv-peers/bin/python -m pip install --quiet --no-deps "$(AUTO_LIRPA)" \
		|| echo "auto_LiRPA cannot be installed here: its table is left out"
	touch .venv-peers/.ready

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv .venv-outside .venv-peers out docs/made .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

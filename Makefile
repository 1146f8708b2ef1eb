# `make demo` and `make test` set up everything on a fresh machine.
# The main version is 3.12. A python3.12 that does not start, as one that pyenv has not selected,
# does not count.
PYTHON ?= $(shell python3.12 -c 'print("python3.12")' 2>/dev/null || echo python3)
VENV := .venv
BIN := $(VENV)/bin
# A Python from 3.8 to 3.11 for the example of a program in an environment of its own.
MXNET_PYTHON ?= python3.11
# Test processes: more than two cores, as many tests wait.
JOBS ?= 3
# A folder of tests/, such as `make test ROOM=core`; all tests without one.
ROOM ?=
# For `make test-versions`: Pythons with the newest packages, and the tests of each.
VERSIONS ?= 3.12 3.13 3.14
VERSION_ROOMS ?= core config user_code files storage pruners samplers cli
TEST_TOOLS := 'pytest>=8.3' 'pytest-timeout>=2.3' 'pytest-xdist>=3.8' 'hypothesis>=6.102'
# Warnings of old packages are no errors. The test compares two halves of a search, and Optuna 4's
# finds the front in the first one already.
OF_OLDEST := -W default --deselect "tests/samplers/adapters/test_optuna_adapter.py::test_several_objectives_are_searched_for_their_front[TPESampler]"
# One process per file, in the order of tests/conftest.py.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Tests start some thousand processes. Where PYTHONDONTWRITEBYTECODE is set, each would compile
# hptune's modules, which takes a fifth of its processor time.
COMPILE := compileall -q tuner jobqueue tests/support

.PHONY: demo clip-demo test test-merge test-slow test-docs test-versions test-oldest docs figures lint lines clean

# What studies with TensorFlow need: `make test` adds the packages of the tests to the same folder.
$(VENV)/.runs: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "hptune needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which one to use: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing hptune, TensorFlow and scikit-learn in $(VENV): 2.5 GB, about two minutes."
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --editable '.[tensorflow,examples]'
	@touch $@

$(VENV)/.installed: $(VENV)/.runs
	@echo "Adding the packages of the tests to $(VENV): 2 GB, about two minutes."
	$(BIN)/python -m pip install --editable '.[test]'
	@touch $@

# An environment without hptune: MXNet needs an older NumPy.
.venv-mxnet/.installed: examples/own_environment/requirements.txt
	rm -rf .venv-mxnet
	$(MXNET_PYTHON) -m venv .venv-mxnet
	.venv-mxnet/bin/python -m pip install --quiet --requirement $<
	@touch $@

# Frameworks on top of PyTorch, and hptune: their examples are tested by `make test-slow`.
.venv-torch/.installed: examples/requirements-torch.txt pyproject.toml
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --requirement $< --editable .
	@touch $@

demo: $(VENV)/.runs
	$(BIN)/hptune run examples/digits_cnn.py --trials 12
	@echo "The command hptune is in $(BIN); '. $(BIN)/activate' lets the shell find it."

# CLIP from scratch on pictures of shapes: searches for nine minutes.
clip-demo: STUDY := studies/clip-$(shell date +%Y%m%d-%H%M%S)
clip-demo: $(VENV)/.runs
	CLIP_EPOCHS=12 $(BIN)/hptune run examples/clip/clip.py --search tpe --pruner asha --min-epochs 3 --trials 12 --timeout 9m --try "batch_size=64" --study $(STUDY)
	$(BIN)/python examples/clip/show.py $(STUDY) -o $(STUDY)/clip.png

test: $(VENV)/.installed
	$(BIN)/python -m $(COMPILE)
	$(BIN)/python -m pytest -n $(JOBS) $(BY_FILE) -m 'not slow' --durations=20 tests/$(ROOM)

# Longer tests: the same behaviour in more cases.
test-slow: $(VENV)/.installed .venv-torch/.installed
	$(BIN)/python -m $(COMPILE)
	$(BIN)/python -m pytest -n $(JOBS) $(BY_FILE) -m slow --durations=20 tests/$(ROOM)

# Slow tests that must pass before a change is merged; most of their time is waiting. The contract of
# a cluster on Grid Engine. The distributions and the example of a package of plug-ins: built, and
# installed in environments of their own. The documentation's Python code, as a type checker sees it.
test-merge: $(VENV)/.installed
	$(BIN)/python -m $(COMPILE)
	$(BIN)/python -m pytest -n 2 $(BY_FILE) -m slow tests/batch_systems tests/test_wheel.py \
		tests/examples/test_plugin_package.py tests/test_tuner_types.py

# The code of the documentation, run as a reader would; a quarter of an hour.
test-docs: $(VENV)/.installed
	$(BIN)/python -m pytest -n0 -m slow tests/test_doc_code.py

# Other Pythons with the newest packages, and the oldest packages that pyproject.toml allows.
test-versions: test-oldest $(VERSIONS:%=test-python-%)

test-oldest: build/uv/bin/uv
	$< venv --quiet --clear --python 3.11 build/oldest
	$< pip install --quiet --python build/oldest --resolution lowest-direct --editable '.[all]' $(TEST_TOOLS)
	build/oldest/bin/python -m pytest -n $(JOBS) $(BY_FILE) -m 'not slow' $(OF_OLDEST) $(VERSION_ROOMS:%=tests/%)

test-python-%: build/uv/bin/uv
	$< venv --quiet --clear --python $* build/python-$*
	$< pip install --quiet --python build/python-$* --editable '.[test]'
	build/python-$*/bin/python -m pytest -n $(JOBS) $(BY_FILE) -m 'not slow' $(VERSION_ROOMS:%=tests/%)

# uv resolves to the lowest versions, and downloads a Python that is not on the path.
build/uv/bin/uv:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet uv

# The site, in build/site; a broken link or anything that Sphinx warns of is an error.
docs: $(VENV)/.installed
	rm -rf build/site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -b html -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

# The figures of the explanation pages, after a change of a search, a pruner or packing.
figures: $(VENV)/.installed
	$(BIN)/python docs/figures.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Lines of code by folder and by wing, arrows, floors, and lengths of functions.
lines:
	@$(PYTHON) benchmarks/count_code.py

clean:
	rm -rf $(VENV) .venv-mxnet .venv-torch build *.egg-info .mypy_cache .ruff_cache .pytest_cache studies

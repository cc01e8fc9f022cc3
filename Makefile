# Two commands for a fresh machine: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin

# Two workers, each with whole files: what the tests of a file share (a server, a release, a compiled loop) is made once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo documents test test-rest test-all coverage mutants engines clients check reference site publish versions audit bench proofs clean

demo: .venv/ready
	$(BIN)/sfumato demo --out demo --force

# What matters, in about 12 minutes of processor time; the tests marked slow are the rest.
test: .venv/ready
	$(PYTEST) -m "not slow"

# The slow tests, and the properties on more examples.
test-rest: .venv/ready
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=many

test-all: .venv/ready
	$(PYTEST)

# Which lines the tests of `make test` reach; fails below the floor in pyproject.toml.
coverage: .venv/ready
	$(PYTEST) -m "not slow" --cov --cov-report=term:skip-covered

# Faults of what the guarantee rests on, planted one by one in a copy of the source: two tests must notice each.
mutants: .venv/ready
	$(BIN)/python tests/mutants/plant.py

# The five documents end to end: packs simulated, entries run as written, sound and best, scored on one page; and
# every example of the lecture.
documents: .venv/ready
	rm -rf documents && mkdir documents
	$(BIN)/sfumato contest make sprint1 documents/city
	$(BIN)/sfumato contest make sprint3 documents/taxis
	$(BIN)/sfumato contest make match3 documents/census
	for entry in nmd syncity "syncity --as-written" best; do $(BIN)/sfumato contest run $$entry documents/city || exit 1; done
	for entry in adaptive-granularity "adaptive-granularity --as-written" best; do \
	  $(BIN)/sfumato contest run $$entry documents/taxis || exit 1; done
	for entry in gardn999 best; do $(BIN)/sfumato contest run $$entry documents/census --rows 20000 || exit 1; done
	$(BIN)/sfumato contest score documents/city documents/taxis documents/census --html documents/documents.html
	$(BIN)/python -m pytest -q tests/docs/test_examples.py -k lecture

# What tables in PostgreSQL, in Spark and on a lake need besides; without it their tests are skipped.
engines: .venv/engines

# Other clients of PostgreSQL and of agents, in an environment of their own; without it their tests are skipped.
clients: .venv-clients/ready

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# docs/reference.md from the docstrings, docs/sfumato.1 from the commands, docs/images/rooms.svg from the imports; tests fail while they are not current.
reference: .venv/ready
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_man.py
	$(BIN)/python docs/make_exercises.py
	$(BIN)/python docs/draw_rooms.py

# The documentation as a site in site/, with a search that needs no network; in an environment of its own.
site: .site/ready
	rm -rf .site/docs && mkdir -p .site/docs
	cp -r docs CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE examples Dockerfile .site/docs/
	cp README.md .site/docs/index.md
	NO_MKDOCS_2_WARNING=1 .site/bin/mkdocs build --quiet --strict

# Builds what is published, checks and tries it, and with TAG=1 tags the version.
publish:
	.ci/publish

# The wheel, with the lowest versions that pyproject.toml admits and on newer Pythons; makes environments of its own.
versions:
	.ci/versions

# The proofs that a machine checks, in about a minute of processor time; skipped, with the reason, where there is no Coq.
proofs:
	$(PYTHON) proofs/check.py

# The long settings; the fast ones are part of the tests.
audit: .venv/ready
	$(BIN)/python benchmarks/audit.py

bench: .venv/ready
	for script in $(filter-out benchmarks/audit.py benchmarks/contests.py benchmarks/documents.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || exit 1; done

.venv/engines: .venv/ready requirements-engines.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-engines.txt
	touch .venv/engines

.venv-clients/ready: requirements-clients.txt requirements-judges.txt
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-clients.txt
	$(PYTHON) -m venv .venv-clients/judges
	.venv-clients/judges/bin/python -m pip install --quiet --disable-pip-version-check --no-deps csvw-eo==0.2.1
	.venv-clients/judges/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-judges.txt
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .venv-clients/node pg@8.23.1 axe-core@4.14.1; fi
	touch .venv-clients/ready

.site/ready: requirements-docs.txt
	$(PYTHON) -m venv .site
	.site/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-docs.txt
	touch .site/ready

clean:
	rm -rf .venv .venv-clients .site site .proofs dist .bench .coverage demo documents

.venv/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "sfumato needs Python 3.11 or later; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch .venv/ready

# `make` alone lists the targets. Each target that needs the virtual environment first creates it in .venv, with exact versions.
SHELL := /bin/sh
.DEFAULT_GOAL := help

PYTHON3 ?= python3
VENV := .venv
PYTHON := $(VENV)/bin/python
INVENTORY ?= inventory/local
LIMIT ?=
ARGS ?=
SIGNING_KEY ?=
TEST_ARGS ?=

STAMP := $(VENV)/.ready
TEST_STAMP := $(VENV)/.ready-test
DEV_STAMP := $(VENV)/.ready-dev

.PHONY: help requirements audit demo test check bench bench-gpu bench-scale bench-verdicts fuzz collector collection node-image wheel sbom release clean setup setup-dev

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create the virtual environment

setup-dev: $(DEV_STAMP)

# A stamp depends on the files that decide what is installed, so a change of the Makefile reinstalls nothing.
$(STAMP): requirements.txt requirements-build.txt pyproject.toml tools/setup/venv.sh
	@PYTHON3='$(PYTHON3)' sh tools/setup/venv.sh $(VENV) $@ requirements.txt

# Each file of requirements includes the one before it.
$(TEST_STAMP): requirements.txt requirements-test.txt pyproject.toml tools/setup/venv.sh
	@PYTHON3='$(PYTHON3)' sh tools/setup/venv.sh $(VENV) $@ requirements-test.txt && touch $(STAMP)

$(DEV_STAMP): requirements.txt requirements-test.txt requirements-dev.txt requirements-torch.txt pyproject.toml tools/setup/venv.sh
	@PYTHON3='$(PYTHON3)' sh tools/setup/venv.sh $(VENV) $@ requirements-dev.txt && touch $(STAMP) $(TEST_STAMP)

requirements: ## Write requirements*.txt anew with the checksums of their versions, after one was edited
	$(PYTHON3) -I -m venv --clear build/uv
	build/uv/bin/python -I -m pip install --quiet uv==0.13.9
	UV=build/uv/bin/uv sh tools/setup/requirements.sh requirements.txt requirements-test.txt requirements-dev.txt requirements-build.txt

audit: $(STAMP) ## Audit every node:  make audit INVENTORY=inventory/mycluster LIMIT='gpu[001-016]'
	@sh tools/setup/audit.sh $(PYTHON) --inventory '$(INVENTORY)' $(if $(LIMIT),--limit '$(LIMIT)') $(ARGS)

demo: $(STAMP) ## Audit a recorded fleet, without GPU, ssh or compiler
	@sh tools/setup/audit.sh $(PYTHON) --inventory inventory/demo --via ansible $(if $(LIMIT),--limit '$(LIMIT)') $(ARGS)

check: $(DEV_STAMP) ## Lint and format: ruff, mypy, ansible-lint, ansible-doc
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/ansible-lint --offline
	@$(MAKE) --no-print-directory described

.PHONY: described vulnerabilities
vulnerabilities: $(STAMP) # asks the index about the pinned versions
	$(PYTHON3) -I -m venv --clear build/pip-audit
	build/pip-audit/bin/python -I -m pip install --quiet pip-audit==2.10.1
	timeout 400 $(PYTHON) .ci/vulnerabilities.py build/pip-audit/bin/pip-audit requirements.txt requirements-test.txt requirements-dev.txt

described: $(DEV_STAMP) # each module by itself: given several, ansible-doc exits with 0 even if it cannot read one of them
	@for module in $(basename $(notdir $(wildcard library/*.py))); do \
		ANSIBLE_CONFIG=ansible.cfg $(VENV)/bin/ansible-doc --type module "$$module" | grep -q "$$module" || exit 1; \
	done

bench: $(DEV_STAMP) collector ## Run the measurements of docs/benchmarks.md that need no GPU
	@for measurement in $(filter-out %/bench_scale.py,$(wildcard tests/bench/bench_*.py)); do $(PYTHON) "$$measurement" $(ARGS) || exit 2; done

bench-gpu: $(DEV_STAMP) collector ## Run the measurements that need GPUs, in nine minutes:  make bench-gpu ARGS='--python /opt/torch/bin/python'
	$(PYTHON) tests/bench/gpu_bench.py $(ARGS)

bench-scale: $(DEV_STAMP) ## Measure audits of 1,000 real sshd processes and 10,000 recorded answers, as root on Linux:  make bench-scale ARGS='--nodes 50'
	$(PYTHON) tests/bench/bench_scale.py $(ARGS)

bench-verdicts: $(DEV_STAMP) ## Count whom `unhang diagnose` names in 49 recorded jobs, by each kind of evidence:  make bench-verdicts ARGS='--misses'
	$(PYTHON) tests/bench/verdicts/score.py $(ARGS)

fuzz: $(DEV_STAMP) ## Test all readers with a million damaged inputs, starting where the last call stopped:  make fuzz ARGS='--cases 10000'
	$(PYTHON) tests/fuzz/run.py $(ARGS)

collector: $(STAMP) ## Build the one-file collector and the quick check: dist/unhang-collect.pyz, dist/unhang-quick.pyz, dist/unhang-inspect.pyz
	$(PYTHON) tools/collector/build.py
	$(PYTHON) tools/collector/quick.py
	$(PYTHON) tools/collector/job.py

node-image: collector wheel ## Build and push the image for Kubernetes:  make node-image BASE=debian:12-slim@sha256:DIGEST IMAGE=REGISTRY/unhang-node:1
	podman build --build-arg BASE='$(BASE)' --tag '$(IMAGE)' --file deploy/kubernetes/Containerfile .
	podman push --digestfile dist/node-image.digest '$(IMAGE)'
	@image='$(IMAGE)'; echo "next: helm install unhang deploy/kubernetes -n unhang --set image.repository=$${image%:*} --set image.digest=$$(cat dist/node-image.digest)"

collection: $(STAMP) ## Build the Ansible collection of the roles, modules and playbooks: dist/unhang-ops-*.tar.gz
	$(PYTHON) -P tools/release/collection.py

wheel: ## Build dist/unhang-*.whl and the source archive
	$(PYTHON3) -I -m venv --clear build/hatchling
	build/hatchling/bin/python -I -m pip install --quiet --require-hashes -r requirements-build.txt
	build/hatchling/bin/python -P -m hatchling build -d dist

sbom: $(DEV_STAMP) wheel ## Build the bill of materials of the wheel and its exact dependencies: dist/unhang.cdx.json
	$(PYTHON) -I -m venv --clear --without-pip build/sbom
	$(PYTHON) -I -m pip --python build/sbom/bin/python install --quiet --require-hashes -r requirements.txt
	$(PYTHON) -I -m pip --python build/sbom/bin/python install --quiet --no-deps dist/unhang-*.whl
	$(PYTHON) -P tools/release/sbom.py build/sbom/bin/python dist/unhang.cdx.json

release: passed-nightly clean-dist sbom collector collection ## Build and check everything that a release has, and sign its checksums:  make release SIGNING_KEY=~/.ssh/id_ed25519
	$(PYTHON) -I -m venv --clear build/twine
	build/twine/bin/python -I -m pip install --quiet twine==7.0.0
	build/twine/bin/python -I -m twine check --strict dist/*.whl dist/unhang-[0-9]*.tar.gz
	cd dist && sha256sum *.whl *.tar.gz *.pyz *.cdx.json >SHA256SUMS
	ssh-keygen -q -Y sign -f '$(SIGNING_KEY)' -n unhang-release dist/SHA256SUMS
	@echo "next: publish the files of dist/ and the key's public half, as docs/install.md says"

.PHONY: clean-dist passed-nightly
passed-nightly:
	@[ -f '$(SIGNING_KEY)' ] || { echo 'unhang: the ssh key that signs a release is missing; next: make release SIGNING_KEY=~/.ssh/id_ed25519' >&2; exit 2; }
	@sh tests/nightly passed $(NIGHTLY)

clean-dist:
	rm -rf dist

clean: ## Remove everything that was built; runs/ is kept
	rm -rf $(VENV) .cache dist build .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .ansible *.egg-info tools/*.egg-info

include tests/tests.mk

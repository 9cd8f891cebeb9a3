# The test part of the Makefile. docs/testing.md says what each tier is.
# Roles that change a node, on booted nodes: many minutes, and only what makes up a role can break them. They belong to test-packages.
ROLES_ON_NODES := tests/integration/roles
# One more than processors: two workers boot nodes, which they wait for a third of the time.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: test test-unit test-integration system-packages

# The packages come before the environment: python3-venv may be among them.
system-packages:
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages

test: system-packages ## Unit tests, and as root on Linux the integration tests on real nodes:  make test TEST_ARGS='-k driver'
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTHON) -m pytest -n $(WORKERS) --ignore $(ROLES_ON_NODES) $(TEST_ARGS)
	@echo "next: make audit, or make audit INVENTORY=inventory/mycluster LIMIT='gpu[001-016]'"

test-unit: $(DEV_STAMP) ## Unit tests alone
	$(PYTHON) -m pytest -n auto tests/unit $(TEST_ARGS)

test-integration: system-packages ## Integration tests alone, as root on Linux
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTHON) -m pytest tests/integration $(TEST_ARGS)

.PHONY: test-packages
test-packages: system-packages ## Roles at work on booted nodes, all of their faults and the way back; Debian's real drivers; DKMS builds; real dnf. As root on Debian
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTHON) -m pytest -n 2 tests/packages $(ROLES_ON_NODES) $(TEST_ARGS)

.PHONY: test-vm
test-vm: system-packages ## A real kernel upgrade on an emulated machine, as root on Linux: trial boots that succeed, and all that do not
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/vm/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTHON) -m pytest -n 2 --timeout 3600 tests/vm $(TEST_ARGS)

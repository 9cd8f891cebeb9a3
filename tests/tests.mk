# The test part of the Makefile. docs/testing.md says what each tier is.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(PYTHON) -m pytest
# A file of tests is one worker's, in order: what tests of a file share is made once. Those that boot nodes boot a bed of four for each worker.
BY_FILE := --dist loadfile
TIERS := test-sweeps test-plays test-torch test-nodes test-roles test-packages test-vm

.PHONY: test test-unit test-whole test-all simulate kill-points system-packages $(TIERS)

# The packages come before the environment: python3-venv may be among them.
system-packages:
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages

test: system-packages ## Does the project work here: every unit, and the whole on booted nodes (as root on Linux):  make test TEST_ARGS='-k driver'
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/unit $(TEST_ARGS)
	$(PYTEST) -n 2 $(BY_FILE) tests/whole $(TEST_ARGS) || [ $$? = 5 ]
	@echo "next: make audit, or make audit INVENTORY=inventory/mycluster LIMIT='gpu[001-016]'"

test-unit: $(DEV_STAMP) ## Units alone: no Ansible, no torch, no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/unit $(TEST_ARGS)

test-sweeps: $(DEV_STAMP) ## All of it: each rule against each, every release and incident, damaged documents, random rollouts; no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/sweeps $(TEST_ARGS)

simulate: $(DEV_STAMP) ## 10,000 random rollouts with kills, faults and second controllers, and one that is killed in each step (nightly)
	SIMULATED_ROLLOUTS=10000 $(PYTEST) -n $(PROCESSORS) --timeout 7200 tests/sweeps/test_simulated_rollouts.py -k always_hold $(TEST_ARGS)
	KILL_POINTS=every $(PYTEST) --timeout 7200 tests/plays/test_rollout_kill_points.py $(TEST_ARGS)

kill-points: system-packages ## A rollout of a booted node whose controller is killed in each step, as root on Linux (nightly)
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	KILL_POINTS=every $(PYTEST) tests/nodes/test_rollout_kill_points_on_nodes.py $(TEST_ARGS)

test-whole: system-packages
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/whole $(TEST_ARGS)

test-plays: system-packages ## Playbooks, roles and commands as whole programs on this machine; pages in a browser
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/plays $(TEST_ARGS)

test-torch: system-packages ## The smoke test's payload on this machine, with torch and gloo
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/torch $(TEST_ARGS)

test-nodes: system-packages ## Audit, smoke test, gate and remediation over ssh on booted nodes, with their faults, as root on Linux
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/nodes $(TEST_ARGS)

test-roles: system-packages ## Roles at work on booted nodes, with all of their faults and the rollback, as root on Debian
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/roles $(TEST_ARGS)

test-packages: system-packages ## Debian's real drivers on booted nodes, DKMS builds, real dnf, as root on Debian
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/packages $(TEST_ARGS)

test-vm: system-packages ## A real kernel upgrade on an emulated machine, as root on Linux: trial boots that succeed, and all that do not
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/vm/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 --timeout 3600 tests/vm $(TEST_ARGS)

test-all: test $(TIERS) ## Every test there is

# The Makefile's targets for tests. docs/testing.md describes each tier.
# System packages come before the virtual environment, because python3-venv may be one of them: prerequisites are made in their order.
.NOTPARALLEL:
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(PYTHON) -P -m pytest
# One worker runs all tests of a file in their order, so shared fixtures are set up once. Tiers that boot nodes boot four of them for each worker.
BY_FILE := --dist loadfile
TIERS := test-rows test-sweeps test-shipped test-plays test-torch test-nodes test-roles test-packages test-vm test-vm-fleet
NIGHTLY := check test test-slow $(TIERS) simulate kill-points test-longest

.PHONY: test test-unit test-rules test-whole test-slow test-fast test-chosen test-chosen-roles test-longest test-all nightly simulate kill-points pictures installed $(TIERS)
.PHONY: system-packages tier-packages archive-packages machine-packages

INSTALL := PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/system-packages.txt
system-packages:
	@$(INSTALL)
tier-packages:
	@$(INSTALL) tests/tier-packages.txt
archive-packages:
	@$(INSTALL) tests/tier-packages.txt tests/packages/system-packages.txt
machine-packages:
	@$(INSTALL) tests/tier-packages.txt tests/vm/system-packages.txt

installed: archive-packages $(DEV_STAMP)

test: system-packages $(TEST_STAMP) ## Check that the project works on this machine: unit tests, and the whole on booted nodes (as root on Linux):  make test TEST_ARGS='-k driver'
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) --no-loadscope-reorder -m 'not slow' tests/whole tests/unit $(TEST_ARGS)
	@echo "next: make audit, or make audit INVENTORY=inventory/mycluster LIMIT='gpu[001-016]'"

test-unit: $(TEST_STAMP) ## Run the unit tests: no Ansible, no torch, no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/unit $(TEST_ARGS)

# What .ci/run runs for each change beside make test: the slow units, the fast folders, then a file for each mechanism of the slow ones.
FAST := $(addprefix tests/,rows sweeps shipped)
CHOSEN := $(addprefix tests/,\
	nodes/test_role_drain_on_slurm.py plays/test_installed_wheel.py nodes/test_ways_of_the_audit.py plays/test_rollout_failures.py \
	plays/test_rollout_kill_points.py nodes/test_situations.py plays/test_report_browser.py torch/test_watch.py plays/test_collection_at_a_site.py \
	nodes/test_smoke_over_ssh.py)
CHOSEN_ROLES := $(addprefix tests/roles/,test_package_changes_on_a_node.py test_rollback_on_nodes.py)

test-slow: tier-packages $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) -m slow tests/unit $(TEST_ARGS)

test-fast: tier-packages $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) $(FAST) $(TEST_ARGS)

test-chosen: archive-packages $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) --no-loadscope-reorder $(CHOSEN) $(TEST_ARGS)

test-rows: $(DEV_STAMP) ## Prove each rule, signature and row of a table by its examples, and the gallery; no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/rows $(TEST_ARGS)

# A run of its own, because nodes that a folder has booted stay until the end of its run.
test-chosen-roles: archive-packages $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) $(CHOSEN_ROLES) $(TEST_ARGS)

test-sweeps: $(DEV_STAMP) ## Run the sweeps: each rule against each, every release and incident, damaged documents; no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/sweeps $(TEST_ARGS)

simulate: $(DEV_STAMP) ## Simulate 10,000 random rollouts with kills, faults and second controllers, and kill one in each step (nightly)
	SIMULATED_ROLLOUTS=10000 $(PYTEST) -n $(PROCESSORS) --timeout 7200 tests/plays/test_simulated_rollouts.py -k always_hold $(TEST_ARGS)
	KILL_POINTS=every $(PYTEST) --timeout 7200 tests/plays/test_rollout_kill_points.py $(TEST_ARGS)

kill-points: tier-packages $(DEV_STAMP) ## Kill the controller of a booted node's rollout in each step, as root on Linux (nightly)
	KILL_POINTS=every $(PYTEST) tests/nodes/test_rollout_kill_points_on_nodes.py $(TEST_ARGS)

nightly: ## Run everything on one commit, as root on Debian, hours, and write the result on docs/testing.md; a release needs it
	@sh tests/nightly run $(NIGHTLY)

test-longest: archive-packages machine-packages $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) --timeout 3600 -m nightly tests/vm tests/packages tests/nodes $(TEST_ARGS)

pictures: $(DEV_STAMP) ## Write the picture of the report that README shows, from the demo fleet, with the system's Chromium
	@$(MAKE) --no-print-directory demo >/dev/null
	PYTHONPATH=tests/support $(PYTHON) tests/support/report_picture.py runs/latest/report.html

# What reads the rules, signatures and tables that are shipped; one process, so that they are compiled once.
OF_THE_CATALOGUE := $(addprefix tests/unit/,unhang/core/catalogue unhang/jobs unhang/judge unhang/audit test_named_commands.py)

test-rules: tier-packages $(DEV_STAMP) ## Prove a rule, a signature or a row of a table: its examples and unit tests, the sweeps, the commands with the shipped rules
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) $(OF_THE_CATALOGUE) tests/rows tests/sweeps tests/shipped $(TEST_ARGS)

test-whole: tier-packages $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/whole $(TEST_ARGS)

test-shipped: tier-packages $(DEV_STAMP) ## Run commands, the demo fleet and the commands of the pages as whole programs, with the shipped rules
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/shipped $(TEST_ARGS)

test-plays: archive-packages $(DEV_STAMP) ## Run playbooks, roles, rollouts, the wheel and the release as whole programs on this machine; test reports in a browser
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/plays $(TEST_ARGS)

test-torch: tier-packages $(DEV_STAMP) ## Run the smoke test's payload on this machine, with torch and gloo
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/torch $(TEST_ARGS)

test-nodes: archive-packages $(DEV_STAMP) ## Test audit, smoke test, gate and remediation over ssh on booted nodes, with injected faults, as root on Linux
	$(PYTEST) -n 2 $(BY_FILE) tests/nodes $(TEST_ARGS)

test-roles: archive-packages $(DEV_STAMP) ## Test the roles on booted nodes, with injected faults and rollbacks, as root on Debian
	$(PYTEST) -n 2 $(BY_FILE) tests/roles $(TEST_ARGS)

test-packages: archive-packages $(DEV_STAMP) ## Test Debian's real drivers on booted nodes, DKMS builds and real dnf, as root on Debian
	$(PYTEST) -n 2 $(BY_FILE) tests/packages $(TEST_ARGS)

test-vm: machine-packages $(DEV_STAMP) ## Test the role kernel on an emulated machine, as root on Linux: trial boots that succeed and that fail
	$(PYTEST) -n 2 --ignore tests/vm/fleet tests/vm $(TEST_ARGS)

test-vm-fleet: machine-packages $(DEV_STAMP) ## Test playbooks and a rollout of a kernel on emulated machines, as root on Linux
	$(PYTEST) -n 2 tests/vm/fleet $(TEST_ARGS)

test-all: test test-slow $(TIERS) ## Run all tests

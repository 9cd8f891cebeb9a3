# The Makefile's targets for tests. docs/testing.md describes each tier.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(PYTHON) -P -m pytest
# One worker runs all tests of a file in their order, so shared fixtures are set up once. Tiers that boot nodes boot four of them for each worker.
BY_FILE := --dist loadfile
TIERS := test-sweeps test-pages test-shipped test-plays test-torch test-nodes test-roles test-packages test-vm test-vm-fleet

.PHONY: test test-unit test-rules test-whole test-all nightly simulate kill-points pictures system-packages $(TIERS)

# System packages are installed before the virtual environment, because python3-venv may be one of them.
system-packages:
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages

test: system-packages ## Check that the project works on this machine: unit tests, and the whole on booted nodes (as root on Linux):  make test TEST_ARGS='-k driver'
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/unit $(TEST_ARGS)
	$(PYTEST) -n 2 $(BY_FILE) tests/whole $(TEST_ARGS) || [ $$? = 5 ]
	@echo "next: make audit, or make audit INVENTORY=inventory/mycluster LIMIT='gpu[001-016]'"

test-unit: $(DEV_STAMP) ## Run the unit tests: no Ansible, no torch, no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/unit $(TEST_ARGS)

test-sweeps: $(DEV_STAMP) ## Run the sweeps: each rule against each, every release and incident, damaged documents; no node
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/sweeps $(TEST_ARGS)

simulate: $(DEV_STAMP) ## Simulate 10,000 random rollouts with kills, faults and second controllers, 40 months of a fleet of 1,000, and kill one in each step (nightly)
	SIMULATED_ROLLOUTS=10000 $(PYTEST) -n $(PROCESSORS) --timeout 7200 tests/plays/test_simulated_rollouts.py -k always_hold $(TEST_ARGS)
	SIMULATED_MONTHS=40 $(PYTEST) -n $(PROCESSORS) --timeout 7200 tests/plays/test_simulated_month.py -k in_a_month $(TEST_ARGS)
	SIMULATED_NODES=10000 $(PYTEST) -n $(PROCESSORS) --timeout 7200 tests/plays/test_large_rollout.py -k always_hold $(TEST_ARGS)
	KILL_POINTS=every $(PYTEST) --timeout 7200 tests/plays/test_rollout_kill_points.py $(TEST_ARGS)

kill-points: system-packages ## Kill the controller of a booted node's rollout in each step, as root on Linux (nightly)
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	KILL_POINTS=every $(PYTEST) tests/nodes/test_rollout_kill_points_on_nodes.py $(TEST_ARGS)

# All tests, though one failed; then those that a tier leaves out.
nightly: ## Run everything on one commit, as root on Debian, hours: all tests, simulations, kills, the longest tests; a release needs it
	@sh tests/nightly begin
	$(MAKE) --keep-going test-all simulate kill-points test-longest
	@sh tests/nightly end

.PHONY: test-longest
test-longest: system-packages
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/vm/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) --timeout 3600 -m nightly tests/vm tests/packages tests/nodes $(TEST_ARGS)

pictures: $(DEV_STAMP) ## Write the picture of the report that README shows, from the demo fleet, with the system's Chromium
	@$(MAKE) --no-print-directory demo >/dev/null
	PYTHONPATH=tests/support $(PYTHON) tests/support/report_picture.py runs/latest/report.html

# What reads the rules, signatures and tables that are shipped; one process, so that they are compiled once.
OF_THE_CATALOGUE := $(addprefix tests/unit/,unhang/core/catalogue unhang/jobs unhang/audit unhang/audit/rules unhang/audit/reference test_named_commands.py)

test-rules: system-packages ## Prove a rule, a signature or a row of a table in five minutes: its unit tests, the sweeps, the commands with the shipped rules
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) $(OF_THE_CATALOGUE) tests/sweeps tests/shipped $(TEST_ARGS)

test-whole: system-packages
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/whole $(TEST_ARGS)

test-shipped: system-packages ## Run commands, the demo fleet and the commands of the pages as whole programs, with the shipped rules
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/shipped $(TEST_ARGS)

test-plays: system-packages ## Run playbooks, roles, rollouts, the wheel and the release as whole programs on this machine; test reports in a browser
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/plays $(TEST_ARGS)

test-pages: system-packages ## Build the manual as a site, check its links, open it in a browser
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) tests/pages $(TEST_ARGS)

test-torch: system-packages ## Run the smoke test's payload on this machine, with torch and gloo
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n $(PROCESSORS) $(BY_FILE) tests/torch $(TEST_ARGS)

test-nodes: system-packages ## Test audit, smoke test, gate and remediation over ssh on booted nodes, with injected faults, as root on Linux
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/nodes $(TEST_ARGS)

test-roles: system-packages ## Test the roles on booted nodes, with injected faults and rollbacks, as root on Debian
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/roles $(TEST_ARGS)

test-packages: system-packages ## Test Debian's real drivers on booted nodes, DKMS builds and real dnf, as root on Debian
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/packages/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 $(BY_FILE) tests/packages $(TEST_ARGS)

test-vm: system-packages ## Test the role kernel on an emulated machine, as root on Linux: trial boots that succeed and that fail
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/vm/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 --ignore tests/vm/fleet tests/vm $(TEST_ARGS)

test-vm-fleet: system-packages ## Test playbooks and a rollout of a kernel on emulated machines, as root on Linux
	@PYTHON3='$(PYTHON3)' sh tests/install-system-packages tests/vm/system-packages.txt
	@$(MAKE) --no-print-directory $(DEV_STAMP)
	$(PYTEST) -n 2 tests/vm/fleet $(TEST_ARGS)

test-all: test $(TIERS) ## Run all tests

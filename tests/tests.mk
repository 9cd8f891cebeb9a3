# The test part of the Makefile.
test: $(DEV_STAMP) ## Unit tests, and as root on Linux the integration tests on real nodes
	$(PYTHON) -m pytest -n auto $(TEST_ARGS)

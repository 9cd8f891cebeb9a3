"""What every test starts from: none of the caller's own settings, for a test that passes only on its writer's machine proves nothing."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

try:
    from xdist.scheduler import LoadScopeScheduling
except ImportError:  # a single process needs no scheduler
    LoadScopeScheduling = object

PREFIXES = ("ANSIBLE_", "UNHANG_", "NCCL_", "TORCH_", "CUDA_", "NVIDIA_")
NAMES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONPATH", "PYTHONWARNINGS")

for name in list(os.environ):
    if name.startswith(PREFIXES) or name in NAMES:
        del os.environ[name]

# No test may depend on speed, and CI's examples are the same each time, so that a failure there can be had here.
settings.register_profile("unhang", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhang")


LONGEST_FIRST = ("tests/packages/", "tests/integration/")
BEDS = 2  # each is four booted nodes, in namespaces of its own; more of them wait for the same disk and processors


def boots_nodes(scope):
    """True for a file of tests, or a test, that needs booted nodes."""
    return scope.startswith("tests/integration/")


class ByFile(LoadScopeScheduling):
    """Tests of one file run in one worker, in order; those that need booted nodes in as many workers as there are beds, each of which boots its own.

    (pytest-xdist's own loadgroup marks tests in a way that pytest 9 no longer sees, and then splits files between workers.)
    """

    def _split_scope(self, nodeid):
        return nodeid.split("::", 1)[0]

    def _assign_work_unit(self, node):
        with_bed = {one for one, work in self.assigned_work.items() if any(map(boots_nodes, work))}
        may_boot = node in with_bed or len(with_bed) < BEDS
        scope = next((scope for scope in self.workqueue if may_boot or not boots_nodes(scope)), None)
        if scope is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config, log):
    """Called by pytest-xdist."""
    config.option.loadscopereorder = False  # in the order that follows
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """What takes longest first: real packages, then nodes; the others run beside them and fill up the end."""
    items.sort(key=lambda item: next((place for place, folder in enumerate(LONGEST_FIRST) if item.nodeid.startswith(folder)), len(LONGEST_FIRST)))

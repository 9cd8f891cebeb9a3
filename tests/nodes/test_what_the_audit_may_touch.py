"""The audit changes nothing on a node, and without root it reports what it was denied."""

from __future__ import annotations

import hashlib
import os
import stat

import pytest
from four_nodes import NAMES

# Files that any login writes.
LOGIN_RECORDS = ("var/log/", "run/", "tmp/")


def fingerprints(folder):
    """{path: (mode, owner, size, hash or link target, time of change)} of everything below a
    folder, except for files that a login writes."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            inner = os.path.relpath(path, folder)
            if inner.startswith(LOGIN_RECORDS):
                continue
            status = os.lstat(path)
            found[inner] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                content_of(path, status),
                status.st_mtime_ns,
            )
    return found


def content_of(path, status):
    """The hash of a file, the target of a link, "" for other types (a FIFO would block)."""
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return None
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def scratch_files(node):
    """Names below the folders where modules are usually copied to."""
    return node.shell(
        "ls -a /root /home/auditor /tmp /var/tmp /dev/shm; ls /root/.ansible 2>/dev/null || true"
    )


@pytest.mark.parametrize("user", ["root", "auditor"])
def test_an_audit_leaves_every_file_of_a_node_as_it_was(fleet, user):
    fleet.audit(variables={"ansible_user": user})  # the user's first login may create folders
    before = {name: fingerprints(fleet.nodes[name].changes) for name in NAMES}
    listed = {name: scratch_files(fleet.nodes[name]) for name in NAMES}
    audit = fleet.audit(variables={"ansible_user": user})
    assert {audit.node(name)["status"] for name in NAMES} == {"ok"}
    for name in NAMES:
        assert fingerprints(fleet.nodes[name].changes) == before[name]
        assert scratch_files(fleet.nodes[name]) == listed[name]


def test_the_first_audit_of_a_node_leaves_it_as_it_was_too(fleet):
    before = fingerprints(fleet.nodes["gpu003"].changes)
    fleet.audit(groups={"training": ["gpu003"]})
    assert fingerprints(fleet.nodes["gpu003"].changes) == before


@pytest.mark.parametrize(
    "change",
    ["touch /root/.left", "chmod 600 /etc/hostname", "echo >> /etc/hostname", "mkfifo /srv/left"],
)
def test_a_change_would_be_seen(fleet, change):
    before = fingerprints(fleet.nodes["gpu002"].changes)
    fleet.shell(
        "gpu002",
        change,
        undo="rm -f /root/.left /srv/left; chmod 644 /etc/hostname; echo gpu002 > /etc/hostname",
    )
    assert fingerprints(fleet.nodes["gpu002"].changes) != before


@pytest.fixture(scope="module")
def as_auditor(shared_fleet):
    """An audit by a user without root, on a node where some things are readable for root only."""
    shared_fleet.plant("gpu001", "/etc/nccl.conf", "NCCL_DEBUG=INFO\n", mode=0o600)
    return shared_fleet.audit(variables={"ansible_user": "auditor"})


def test_without_root_gpus_kernel_and_driver_are_read(as_auditor):
    for name in NAMES:
        assert as_auditor.node(name)["status"] == "ok"
        assert as_auditor.section(name, "gpus")["count"] == 8
        assert as_auditor.section(name, "driver")["loaded"]["version"] == "580.159.04"
        assert as_auditor.node(name)["facts"]["collector"]["as_root"] is False


def test_what_was_denied_says_so_and_is_not_taken_for_absent(as_auditor):
    rows = as_auditor.section("gpu001", "nccl")["probe"]["unread"]
    assert [
        row["status"]
        for row in rows
        if "/etc/nccl.conf" in row["reason"] or "settings" in row["field"]
    ].count("denied") >= 1
    assert as_auditor.section("gpu001", "nccl")["probe"]["status"] in ("ok", "denied")


def test_a_rule_that_needs_what_was_denied_is_unknown_and_says_which_fact(as_auditor):
    unknown = as_auditor.of("gpu001", "unknown")
    assert unknown
    assert all(entry["evidence"] or entry["found"] for entry in unknown)

"""One set of booted nodes read by each way: the same documents, the same refusals, the same
report."""

from __future__ import annotations

import json

import audits
from four_nodes import NAMES

from unhang.core.ansible.old_python import read_collector
from unhang.core.project import find_project

READ, UNREAD = NAMES[:2], NAMES[2:]


def hosts_file(fleet, **host_variables):
    """The fleet's inventory; gpu002 is reached through gpu001, and as root by sudo where
    host_variables say so."""
    key, known = (f"{fleet.bed.folder}/{name}" for name in ("id_ed25519", "known_hosts"))
    first = fleet.nodes[READ[0]].address
    through = (
        f"ssh -F none -i {key} -o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null -W"
        f" %h:%p root@{first}"
    )
    extra = {"ansible_ssh_extra_args": f"-o ProxyCommand='{through}'"}
    path = fleet.work / "ways.json"
    path.write_text(
        audits.inventory_of(
            fleet.bed,
            {"training": list(NAMES)},
            {"unhang_node_timeout_s": 30},
            {READ[1]: extra, **host_variables},
        )
    )
    return path


def audit(fleet, path, way, *arguments):
    """A finished `unhang audit --via WAY`; its folder is the run's own."""
    runs = fleet.work / f"runs-{way}"
    command = ("audit", "--via", way, "--inventory", str(path), "--out", str(runs), *arguments)
    return fleet.unhang(*command, folder=runs / "latest")


def report_of(done, hosts):
    """Rule, verdict, severity and hosts of each finding that names only these hosts."""
    rows = [
        (one["rule"], one["verdict"], one["severity"], tuple(sorted(audits.names_of(one))))
        for one in done.findings
    ]
    return sorted(row for row in rows if set(row[3]) <= set(hosts))


def collect_documents(fleet, names, folder):
    """A new folder with what the one-file collector prints on each node, as `--via files` reads
    it."""
    folder.mkdir()
    for name in names:
        fleet.plant(name, "/root/collect.pyz", read_collector(find_project()), mode=0o600)
        (folder / f"{name}.json").write_text(
            fleet.nodes[name].ssh("python3 -I -S /root/collect.pyz").stdout
        )
    return folder


def test_ansible_clush_and_files_give_the_same_documents_refusals_and_report(fleet, tmp_path):
    fleet.shell(UNREAD[0], "systemctl stop ssh", undo="systemctl start ssh")
    fleet.power_off(UNREAD[1])
    path, documents = hosts_file(fleet), collect_documents(fleet, READ, tmp_path / "documents")
    ansible, clush, files = (
        audit(fleet, path, way, *more)
        for way, more in (("ansible", ()), ("clush", ()), ("files", (str(documents),)))
    )
    assert "4 hosts by ssh, 64 at a time (as asked)" in clush.stderr
    for other in (clush, files):
        for name in READ:
            mine, theirs = ansible.node(name), other.node(name)
            assert {key: mine[key] for key in mine if key != "facts"} == {
                key: theirs[key] for key in theirs if key != "facts"
            }
            assert (
                list(audits.differences(mine["facts"]["sections"], theirs["facts"]["sections"]))
                == []
            )
        assert report_of(other, READ) == report_of(ansible, READ)
        assert other.code == ansible.code
    assert report_of(clush, NAMES) == report_of(ansible, NAMES)
    for name in UNREAD:
        assert [one.node(name)["status"] for one in (ansible, clush, files)] == [
            "unreachable",
            "unreachable",
            "failed",
        ]
    refused = f"{fleet.nodes[UNREAD[0]].address} port 22: Connection refused"
    assert clush.node(UNREAD[0])["message"].endswith(refused)
    # ansible-core can write to ssh a moment before it sees that ssh has ended
    assert ansible.node(UNREAD[0])["message"].endswith((refused, "Broken pipe"))

    kept = "stat -c '%n %Y %a %u' /root/.cache/unhang /root/.cache/unhang/*"
    before = fleet.shell(READ[0], kept)
    assert before.splitlines()[0].endswith(" 700 0")
    assert len(before.splitlines()) == 2
    fleet.shell(UNREAD[0], "systemctl start ssh")
    runs = str(fleet.work / "runs-clush")
    first = {name: (clush.folder / "nodes" / f"{name}.json").stat().st_mtime_ns for name in READ}
    again = fleet.unhang(
        "audit", "--via", "clush", "--continue", f"{runs}/latest", folder=clush.folder
    )
    assert [again.node(name)["status"] for name in NAMES] == [
        "ok",
        "ok",
        "ok",
        "unreachable",
    ], again.stderr
    assert {
        name: (clush.folder / "nodes" / f"{name}.json").stat().st_mtime_ns for name in READ
    } == first
    audit(fleet, path, "clush")
    assert fleet.shell(READ[0], kept) == before


def test_a_changed_collector_a_planted_folder_and_a_straggler_cost_only_their_own_node(fleet):
    path = hosts_file(fleet)
    assert [audit(fleet, path, "clush").node(name)["status"] for name in NAMES] == ["ok"] * 4
    fleet.shell(
        NAMES[0], "for kept in /root/.cache/unhang/collect-*; do echo planted >> $kept; done"
    )
    fleet.shell(NAMES[1], "chmod 777 /root/.cache/unhang", undo="chmod 700 /root/.cache/unhang")
    fleet.plant(NAMES[2], "/usr/bin/python-that-hangs", "#!/bin/sh\nexec sleep 1000\n", mode=0o755)
    fleet.plant(
        NAMES[3], "/usr/bin/python-without-end", "#!/bin/sh\nexec cat /dev/zero\n", mode=0o755
    )
    interpreters = {NAMES[2]: "/usr/bin/python-that-hangs", NAMES[3]: "/usr/bin/python-without-end"}
    path = hosts_file(
        fleet,
        **{
            name: {"ansible_python_interpreter": place, "unhang_node_timeout_s": 15}
            for name, place in interpreters.items()
        },
    )
    done = audit(fleet, path, "clush")
    assert [done.node(name)["status"] for name in NAMES] == ["ok", "failed", "timeout", "invalid"]
    assert "must be a folder that only its user can write" in done.node(NAMES[1])["message"]
    assert done.node(NAMES[2])["message"] == "no answer within 15 s"
    assert "planted" not in fleet.shell(
        NAMES[0], "tail -c 20 /root/.cache/unhang/collect-*.pyz | tr -dc a-z"
    )
    path.write_text(json.dumps({"all": {"hosts": {NAMES[0]: {"ansible_password": "x"}}}}))
    refused = audit(fleet, path, "clush")
    assert refused.code == 2
    line = (
        "--via clush reads only hosts that ssh alone reaches, not those that need a password (ansible_password)"
        " for gpu001; use --via ansible"
    )
    assert refused.stderr.splitlines()[-1] == f"unhang: {line}"

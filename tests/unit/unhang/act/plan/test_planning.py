"""A whole run becomes a plan: the fleet with the five situations, and limits that cannot be
kept."""

from __future__ import annotations

import copy
import dataclasses
import gc
import html
import json
import random
import re
import shlex
import shutil
import sys

import five_situations
import fleets
import pytest
from documented_command import as_typed

from unhang.act.commands import remediate
from unhang.act.plan.description import describe_limits, describe_manual_work, describe_totals
from unhang.act.plan.plan_document import (
    HostPlan,
    Job,
    PersonNeeded,
    digest_of,
    read_plan,
    render_plan,
    write_plan,
)
from unhang.act.plan.plan_table import render_plan_table
from unhang.act.plan.plan_view import plan_view
from unhang.act.plan.planning import PlanOptions, plan_run, without_collections
from unhang.act.rollout.targets import limits_of
from unhang.audit.report.html import render_html
from unhang.cli import command_and_parser, main
from unhang.core.errors import UserError
from unhang.core.run.actions import Setting
from unhang.core.run.own_runs import mark_as_own
from unhang.core.run.run_folder import file_stem
from unhang.core.schemas.check import check_schema
from unhang.judge.rules.compiled_catalogue import load_catalogue

CATALOGUE = load_catalogue()


def write_fleet(folder, change=None, chance=None):
    """The run folder of the fleet, its files named as the audit names them. chance: shuffles what
    has no order."""
    findings, nodes = copy.deepcopy(five_situations.fleet())
    # the rule reports this remedy as a policy that removes the setting, and no policy can express
    # that
    for one in findings["findings"]:
        if one["rule"] == "nccl-timeout-does-nothing":
            one["remedy"] = {
                "role": "nccl_profile",
                "policy": {"nccl": {"settings": {"NCCL_DEBUG": "WARN"}}},
            }
    if change:
        change(findings, nodes)
    if chance:
        chance.shuffle(findings["findings"])
        chance.shuffle(nodes)
    fleets.write_run(folder, findings, nodes)
    for path in (folder / "nodes").iterdir():
        path.unlink()
    for node in nodes:
        (folder / "nodes" / f"{file_stem(node['host'])}.json").write_text(json.dumps(node))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_fleet(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def plan(folder):
    return plan_run(folder, CATALOGUE)


def test_what_a_role_repairs_is_planned_and_all_else_is_named(folder, plan):
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    for one in findings:
        if one["verdict"] != "fail":
            continue
        for host in one.get("hosts") or [one["host"]]:
            entry = plan.for_host(host)
            by_role = [remedy.role for remedy in entry.remedies if one["rule"] in remedy.because]
            by_person = [row for row in entry.person if row.rule == one["rule"] and row.what]
            refused = [row for row in entry.refused if one["rule"] in row.why]
            assert (by_role and by_role == [one["remedy"]["role"]]) or by_person or refused, (
                host,
                one["rule"],
            )


def test_the_five_situations_come_out_as_they_should(plan):
    roles = {entry.host: entry.roles for entry in plan.hosts if entry.remedies}
    assert roles == {
        **{f"dev{number:02d}": ["gpu_driver"] for number in range(1, 9)},
        **{f"gpu{number:03d}": ["nccl_profile"] for number in (1, 5, 6, 10, 13, 14)},
        "gpu002": ["gpu_binding"],
    }
    dev = plan.for_host("dev01").remedies[0]
    assert (dev.before, dev.after, dev.policy) == (
        "545.23.08",
        "535.154.05",
        {"driver": {"version": "535.154.05", "held": True}},
    )
    assert [row.rule for row in plan.for_host("gpu004").person] == ["nvlink-inactive"]
    assert [row.rule for row in plan.for_host("gpu009").person] == ["node-unreachable"]
    assert "of its flavour" not in plan.for_host("ws1").refused[0].why
    assert plan.for_host("ws1").refused[0].why.startswith("role kernel (for kernel-below-5-5)")


def test_a_waived_finding_and_one_that_is_not_known_are_not_planned(plan):
    assert plan.for_host("gpu003") is None
    assert all(
        "acs-breaks-p2p" not in remedy.because for entry in plan.hosts for remedy in entry.remedies
    )


def test_a_healthy_node_that_only_a_faulty_one_sets_apart_is_no_work(tmp_path):
    findings = fleets.compared_with_a_faulty_node()
    run = fleets.write_run(
        tmp_path / "run", findings, [fleets.node(host, [], {}) for host in ("gpu1", "gpu2")]
    )
    (entry,) = plan_run(run, CATALOGUE).hosts
    assert (entry.host, [one.rule for one in entry.person]) == ("gpu1", ["links-differ", "lost"])


def test_a_fleet_of_which_no_node_answered_has_no_share_of_nodes(tmp_path):
    findings = fleets.document(
        [fleets.finding("node-unreachable", "gone", "error", "Not reached", "e", "f")],
        {"unreachable": 1},
    )
    plan = plan_run(fleets.write_run(tmp_path / "run", findings, []), CATALOGUE)
    assert (plan.limits.in_service, describe_limits(plan)) == (0, "no node answered")


def test_the_plan_follows_its_schema_and_is_read_again(plan, tmp_path):
    assert list(check_schema(json.loads(render_plan(plan)), "plan-1")) == []
    assert read_plan(write_plan(tmp_path, plan)) == plan


@pytest.mark.parametrize("seed", range(5))
def test_the_same_findings_in_another_order_give_the_same_bytes(plan, tmp_path, seed):
    assert render_plan(
        plan_run(write_fleet(tmp_path / "run", chance=random.Random(seed)), CATALOGUE)
    ) == render_plan(plan)


def test_another_day_or_run_is_another_plan(plan, tmp_path):
    later = plan_run(
        write_fleet(
            tmp_path / "run", lambda findings, nodes: findings["run"].update(judged="2026-03-03")
        ),
        CATALOGUE,
    )
    assert (later.day, later.waves) == ("2026-03-03", plan.waves)
    assert render_plan(later) != render_plan(plan)


def test_waves_begin_with_one_of_each_kind_alone_whatever_the_limit(plan):
    assert plan.limits.max_unavailable == 2
    assert [(wave.name, wave.hosts) for wave in plan.waves[:3]] == [
        ("canary 1", ("dev01",)),
        ("canary 2", ("gpu001",)),
        ("wave 1", ("dev02", "dev03")),
    ]


def without_scheduler(node, slurmd=False):
    """Says in the node's facts which scheduler's daemon it has: Slurm's, or none."""
    section = node["facts"]["sections"].setdefault("node", {})
    section.setdefault("probe", {"status": "ok", "duration_ms": 3})
    section |= {"slurm": {"slurmd": slurmd}, "kubernetes": {"kubelet": False}}


def test_the_canary_of_a_kind_is_a_node_without_jobs_where_there_is_one(tmp_path):
    def occupy(findings, nodes):
        """A user's process on a GPU of gpu001 and of all dev nodes but one; they would be the first
        otherwise."""
        busy = ("gpu001", *(f"dev{number:02d}" for number in (1, 2, 3, 5, 6, 7, 8)))
        for node in (one for one in nodes if one["facts"] is not None):
            without_scheduler(node)
            for device in node["facts"]["sections"]["gpus"]["devices"]:
                device["processes"] = (
                    [{"pid": 4711, "user": "anna", "command": "python"}]
                    if node["host"] in busy
                    else []
                )

    plan = plan_run(write_fleet(tmp_path / "run", occupy), CATALOGUE)
    assert (
        plan.waves[0].name == "canary 1"
        and plan.waves[0].hosts[0] == "dev04"
        and "gpu001" not in plan.waves[0].hosts
    )


def test_jobs_of_the_scheduler_count_and_nodes_that_it_was_not_asked_about_are_not_idle(tmp_path):
    def of_slurm(findings, nodes):
        for node in (one for one in nodes if one["facts"] is not None):
            without_scheduler(node, slurmd=node["host"].startswith("dev"))
            for device in node["facts"]["sections"]["gpus"]["devices"]:
                device["processes"] = []

    asked = []

    def answer(hosts):
        """Slurm has a job on each dev node but dev04, and does not know dev02."""
        asked.append(hosts)
        job = Job(None, "anna", None, (), "4711")
        known = [host for host in hosts["slurm"] if host != "dev02"]
        return {host: [] if host == "dev04" else [job] for host in known}

    folder = write_fleet(tmp_path / "run", of_slurm)
    plan = plan_run(folder, CATALOGUE, ask=answer)
    assert [list(hosts) for hosts in asked] == [["slurm"]]
    assert plan.waves[0].hosts[0] == "dev04"
    jobs = {entry.host: entry.jobs for entry in plan.hosts}
    assert (jobs["dev02"], jobs["dev04"], jobs["gpu001"]) == (None, (), ())
    assert [job.id for job in jobs["dev01"]] == ["4711"]
    assert list(check_schema(json.loads(render_plan(plan)), "plan-1")) == []
    never = {entry.host: entry.jobs for entry in plan_run(folder, CATALOGUE).hosts}
    assert {never[host] for host in never if host.startswith("dev")} == {None}
    canaries = [wave.hosts for wave in plan.waves if wave.is_canary]
    assert [[bool(plan.for_host(host).jobs) for host in hosts] for hosts in canaries] == [
        [False],
        [False],
    ]


def test_one_machine_with_two_names_is_changed_and_counted_once(tmp_path):
    def planned(boot_id):
        def change(findings, nodes):
            for node in (one for one in nodes if one["host"] in ("gpu005", "gpu006")):
                without_scheduler(node)
                node["facts"]["sections"]["node"] |= {
                    "machine_id": "m1",
                    "boot_id": boot_id,
                    "hostname": "gpu005",
                }

        return plan_run(write_fleet(tmp_path / str(boot_id), change), CATALOGUE)

    # a fact that was not read is no sign
    apart, one = planned(None), planned("b1")
    assert apart.for_host("gpu006").remedies
    assert one.limits.in_service == apart.limits.in_service - 1
    assert one.for_host("gpu005").remedies == apart.for_host("gpu005").remedies
    assert one.for_host("gpu006").remedies == ()
    assert "this is the same machine as gpu005: machine id" in one.for_host("gpu006").refused[0].why
    assert "gpu006" not in {host for wave in one.waves for host in wave.hosts}


def test_only_one_rule_and_all_but_some_hosts(folder):
    plan = plan_run(
        folder,
        CATALOGUE,
        PlanOptions(only=["driver-545-23-08-p2p-deadlock"], except_=["dev[01-06]"]),
    )
    assert [entry.host for entry in plan.hosts] == ["dev07", "dev08"]
    assert (plan.limits.only, len(plan.limits.except_)) == (("driver-545-23-08-p2p-deadlock",), 6)


def test_limits_of_groups_and_the_floor_are_kept(folder):
    plan = plan_run(
        folder,
        CATALOGUE,
        PlanOptions(
            max_unavailable="100%", floor="20", group_limits=["development=1", "production=50%"]
        ),
    )
    assert plan.limits.max_unavailable == 5
    assert [(one.group, one.max_unavailable) for one in plan.limits.groups] == [
        ("development", 1),
        ("production", 7),
    ]
    for wave in plan.waves:
        assert len(wave.hosts) <= 5
        assert sum(host.startswith("dev") for host in wave.hosts) <= 1


def racks_of_two(findings, nodes):
    """Each two neighbours of production are the trays of one NVLink domain, and each of the others
    has one of its own, as a board with NVSwitches has."""
    answered = [one for one in nodes if one["facts"]]
    for place, node in enumerate(answered):
        domain = place // 2 if node["host"].startswith("gpu") else place
        for device in node["facts"]["sections"]["gpus"]["devices"]:
            device["fabric"] = {
                "state": "completed",
                "status": "success",
                "clique": 1,
                "cluster": f"{domain + 1:012x}".ljust(32, "0"),
                "health_mask": 0,
            }


def test_never_two_trays_of_a_rack_are_out_of_service_unless_that_is_asked(tmp_path):
    folder = write_fleet(tmp_path / "run", racks_of_two)
    wide = PlanOptions(max_unavailable="100%")
    plan = plan_run(folder, CATALOGUE, wide)
    racks = [one for one in plan.limits.groups if one.hosts]
    assert racks and racks == list(plan.limits.groups)
    assert {(one.max_unavailable, len(one.hosts)) for one in racks} == {(1, 2)}
    assert "1 of each of nvlink-" in describe_limits(plan)
    for wave in plan.waves:
        for rack in racks:
            assert len(set(wave.hosts) & set(rack.hosts)) <= 1
    # the rollout keeps it without a group of the inventory
    kept = limits_of(read_plan(write_plan(folder, plan)), {}, 0).groups
    assert {(one.name, one.hosts) for one in kept[1:]} == {
        (one.group, frozenset(one.hosts)) for one in racks
    }
    asked = plan_run(folder, CATALOGUE, dataclasses.replace(wide, group_limits=["nvlink-*=2"]))
    assert {one.max_unavailable for one in asked.limits.groups} == {2}
    assert any(set(rack.hosts) <= set(wave.hosts) for wave in asked.waves for rack in racks)


def test_a_plan_of_the_version_before_that_names_nodes_out_of_service_is_read(plan, tmp_path):
    document = json.loads(render_plan(plan))
    document["limits"]["out_of_service"] = ["gpu009"]
    document["digest"] = digest_of(document)
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert read_plan(tmp_path) == plan


def test_a_run_without_a_beginning_has_no_age(tmp_path):
    folder = write_fleet(tmp_path / "run")
    findings = json.loads((folder / "findings.json").read_text())
    (folder / "findings.json").write_text(
        json.dumps({**findings, "run": {**findings["run"], "started": "yesterday"}})
    )
    with pytest.raises(
        UserError, match=r"must give the time when the run began, and gives 'yesterday'"
    ):
        plan_run(folder, CATALOGUE)


def test_findings_by_another_policy_are_not_planned(folder):
    findings = {
        **json.loads((folder / "findings.json").read_text()),
        "judged_by": {"policy": "strict.yml", "rules": []},
    }
    with pytest.raises(UserError, match=r"the run was judged by strict\.yml"):
        plan_run(folder, CATALOGUE, findings=findings)


def test_the_table_fits_80_columns_and_folds_nodes(plan):
    work = describe_manual_work(plan, [], Setting())
    table = render_plan_table(plan, 80, next_step="unhang remediate RUN", work=work)
    assert max(map(len, table.splitlines())) <= 80
    assert (
        "WAVE 1 to 3: 2 nodes each\n  where       dev[02-07]\n  role        gpu_driver: 545.23.08"
        " -> 535.154.05\n" in table
    )
    assert "reboot      if it is rolled back: back to what was loaded before" in table
    assert "minute" not in table
    assert "FOR A PERSON\n  dev[01-08]\n    decide which driver" in table
    assert table.endswith("next: unhang remediate RUN\n")


def test_a_plan_of_nothing_says_so(tmp_path):
    def nothing(findings, nodes):
        findings["findings"].clear()

    plan = plan_run(write_fleet(tmp_path / "run", nothing), CATALOGUE)
    assert (plan.hosts, plan.waves) == ((), ())
    assert "no role has anything to repair" in render_plan_table(plan)


def test_what_a_node_says_steers_no_terminal(tmp_path):
    def hostile(findings, nodes):
        for one in findings["findings"]:
            if one["rule"] == "nvlink-inactive":
                one["remedy"] = {"person": "look \x1b[2J\x1b]0;x\x07 here\nand there"}

    plan = plan_run(write_fleet(tmp_path / "run", hostile), CATALOGUE)
    table = render_plan_table(plan, work=describe_manual_work(plan, [], Setting()))
    assert table.isprintable() or set(table) - {"\n"} == {
        letter for letter in table if letter.isprintable()
    }
    assert "\\x1b[2J" in table


def test_the_page_of_a_run_shows_its_plan(folder, plan, tmp_path):
    assert plan_view(tmp_path) is None
    write_plan(tmp_path, plan)
    page = " ".join(html.unescape(render_html(folder, plan=plan_view(tmp_path))).split())
    assert '<h2 id="plan-title">Plan</h2>' in page
    assert (
        "Of findings judged on 2026-03-02: 9 waves over 15 nodes; 8 reboots at most, and 8 more if"
        " every node is rolled back" in page
    )
    assert (
        "<td>wave 1 to 3<br><small>2 nodes"
        " each</small></td><td><code>dev[02-07]</code></td><td>gpu_driver: 545.23.08 -> 535.154.05"
        in page
    )
    assert "<td>for a person</td><td><code>dev[01-08]</code></td>" in page
    assert 'id="plan"' not in render_html(folder)


def test_markup_in_a_plan_is_text_on_the_page(folder, plan, tmp_path):
    person = PersonNeeded("odd", "<script>alert(1)</script>")
    write_plan(
        tmp_path,
        dataclasses.replace(
            plan, hosts=(*plan.hosts, HostPlan("zz", None, None, person=(person,)))
        ),
    )
    page = render_html(folder, plan=plan_view(tmp_path))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; (odd)" in page


def test_a_plan_that_was_edited_is_named_on_the_page_and_not_shown(folder, plan, tmp_path):
    path = write_plan(tmp_path, plan)
    path.write_text(path.read_text().replace("535.154.05", "545.23.08"))
    page = html.unescape(render_html(folder, plan=plan_view(tmp_path)))
    assert (
        f"The plan beside this run is not shown: {path} was edited since `unhang plan` wrote it"
        in page
    )
    assert "wave 1" not in page


def test_the_command_writes_the_plan_and_shows_it(folder, plan, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["unhang"])
    assert main(["plan", str(folder)]) == 0
    assert "-i INVENTORY" in capsys.readouterr().out  # of a run that somebody else may have made
    mark_as_own(folder)
    assert main(["plan", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "CANARY 1: 1 node" in shown
    assert re.search(rf"next:\s.*unhang remediate\s+{folder}\n", shown.replace("\\\n", ""))
    assert (folder / "plan.json").read_text() == render_plan(plan)
    assert main(["plan", str(folder), "--format", "json"]) == 0
    assert capsys.readouterr().out == render_plan(plan)


def test_the_totals_of_a_plan_name_nothing_that_there_is_none_of(plan):
    calm = dataclasses.replace(
        plan,
        hosts=tuple(
            dataclasses.replace(one, reboots=(), refused=(), person=()) for one in plan.hosts
        ),
    )
    shown = describe_totals(calm)
    assert shown.split("; ")[1] == "no reboot"
    assert not re.search(r"\b0 |refused|a person", shown)
    assert "a person has to look at" in describe_totals(plan)


def test_the_command_that_shows_more_makes_the_same_plan(folder, tmp_path, capsys):
    folder = shutil.copytree(folder, tmp_path / "run")
    (folder / "plan.json").unlink(missing_ok=True)
    asked = ["--severity=critical,error", "--except=dev[01-02]", "--floor=50%"]
    assert main(["plan", str(folder), *asked]) == 0
    made, shown = (folder / "plan.json").read_text(), capsys.readouterr().out.replace("\\\n", "")
    typed = shlex.split(re.search(r"all of it:\s+\S+( .*)\n", shown)[1])
    assert typed == ["plan", str(folder), *asked, "-o", "csv"]
    assert main(typed) == 0
    assert (folder / "plan.json").read_text() == made


def test_a_plan_of_documents_is_previewed_with_an_inventory(folder, tmp_path, capsys):
    folder = shutil.copytree(folder, tmp_path / "run")
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "inventory": None}))
    assert main(["plan", str(folder)]) == 0
    assert re.search(
        rf"remediate\s+{folder}\s+-i INVENTORY\n", capsys.readouterr().out.replace("\\\n", "")
    )


def test_the_next_command_reaches_the_nodes_as_the_audit_did(folder, tmp_path, capsys):
    folder = shutil.copytree(folder, tmp_path / "run")
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**run, "options": ["--become", "--become-method=su -l"]})
    )
    assert main(["plan", str(folder)]) == 0
    assert "su -l" not in capsys.readouterr().out  # of a run that somebody else may have made
    mark_as_own(folder)
    assert main(["plan", str(folder)]) == 0
    shown = capsys.readouterr().out.replace("\\\n", "")
    assert re.search(
        rf"remediate\s+{folder}\s+--ansible=--become\s+--ansible='--become-method=su -l'\n", shown
    )


@pytest.mark.parametrize(
    ("columns", "widest"), [(None, 80), ("60", 60), ("110", 110), ("300", 120)]
)
def test_columns_decide_the_width_in_a_pipe_too(folder, capsys, monkeypatch, columns, widest):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(["plan", str(folder)]) == 0
    lines = [
        line
        for line in capsys.readouterr().out.splitlines()
        if "next: " not in line and "all of it: " not in line
    ]
    assert widest - 12 < max(map(len, lines)) <= widest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--floor", "25"], ", and 25 nodes answered"),
        (
            ["--group-limit", "rack*=1"],
            "names no group of the inventory with nodes that answered",
        ),
        (["--max-unavailable", "many"], "--max-unavailable takes a number of nodes"),
        (
            ["--except", "gpu[900-901]"],
            "--except gpu[900-901]: gpu[900-901] names neither hosts nor groups of the run",
        ),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_code_2(tmp_path, capsys, arguments, says):
    folder = write_fleet(tmp_path / "run")
    assert main(["plan", str(folder), *arguments]) == 2
    reported = capsys.readouterr()
    assert says in reported.err
    assert reported.err.count("\n") == 1
    assert not (folder / "plan.json").exists()


def test_a_run_that_was_not_judged_says_what_judges_it(tmp_path, capsys):
    folder = write_fleet(tmp_path / "run")
    (folder / "findings.json").unlink()
    assert main(["plan", str(folder)]) == 2
    assert "next: unhang judge" in capsys.readouterr().err


def test_a_plan_whose_rollout_has_begun_is_not_replaced(tmp_path, capsys):
    folder = write_fleet(tmp_path / "run")
    assert main(["plan", str(folder)]) == 0
    before = (folder / "plan.json").read_text()
    (folder / "journal.jsonl").write_text("{}\n")
    assert main(["plan", str(folder)]) == 0
    assert main(["plan", str(folder), "--except", "dev01", "--new"]) == 2
    assert "a rollout of this run's plan has begun" in capsys.readouterr().err
    assert (folder / "plan.json").read_text() == before


def test_looking_at_a_plan_does_not_replace_it(tmp_path, capsys):
    folder = write_fleet(tmp_path / "run")
    assert main(["plan", str(folder), "--floor", "50%"]) == 0
    before = (folder / "plan.json").read_text()
    assert (
        main(["plan", str(folder), "-o", "csv"])
        == main(["plan", str(folder)])
        == main(["plan", str(folder), "--floor", "50%"])
        == 0
    )
    capsys.readouterr()
    assert main(["plan", str(folder), "--floor", "20%"]) == 2
    problem = capsys.readouterr().err
    assert "; to make another with --floor=20%, add --new\n" in problem
    assert (folder / "plan.json").read_text() == before


def test_a_plan_that_is_made_anew_keeps_the_old_one_and_says_the_difference(tmp_path, capsys):
    folder = write_fleet(tmp_path / "run")
    assert main(["plan", str(folder), "--floor", "50%"]) == 0
    before, digest = (
        (folder / "plan.json").read_text(),
        json.loads((folder / "plan.json").read_text())["digest"],
    )
    assert main(["plan", str(folder), "--floor", "20%", "--new"]) == 0
    assert (folder / f"plan-{digest[:12]}.json").read_text() == before
    said = capsys.readouterr().err
    assert f"replaces plan {digest[:12]}, which is kept in" in said
    now = json.loads((folder / "plan.json").read_text())["limits"]["floor"]
    assert [
        f"{floor} at least stay in service" in said
        for floor in (json.loads(before)["limits"]["floor"], now)
    ] == [True, True]


def slice_of(folder, target, number, count):
    """The run that a slice of AWX makes: each count-th host of the inventory, from this number
    on."""
    hosts = sorted(path.name for path in (folder / "nodes").iterdir())[number::count]
    names = {json.loads((folder / "nodes" / name).read_text())["host"] for name in hosts}

    def keep(findings, nodes):
        nodes[:] = [node for node in nodes if node["host"] in names]
        for one in findings["findings"]:
            if one.get("hosts"):
                one["hosts"] = [host for host in one["hosts"] if host in names]
        findings["findings"][:] = [
            one for one in findings["findings"] if one.get("hosts") or one["host"] in names
        ]

    return write_fleet(target / f"slice{number}", keep)


@pytest.mark.parametrize("count", [2, 5])
def test_slices_of_a_job_never_plan_one_node_twice_and_leave_none_out(
    folder, plan, tmp_path, count
):
    planned = [
        host
        for number in range(count)
        for wave in plan_run(slice_of(folder, tmp_path, number, count), CATALOGUE).waves
        for host in wave.hosts
    ]
    assert len(planned) == len(set(planned))
    assert set(planned) == {host for wave in plan.waves for host in wave.hosts}


def test_collections_of_garbage_are_off_while_a_plan_is_made_and_on_again_whatever_happens():
    assert gc.isenabled()
    with pytest.raises(UserError), without_collections():
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise UserError("no plan")
    assert gc.isenabled()


def test_a_role_on_named_nodes_is_planned_from_an_audit_of_these_nodes(tmp_path, monkeypatch, plan):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path))
    (host, role), *_ = ((one.host, role) for one in plan.hosts for role in one.roles)
    audited = []

    def audit(words):
        audited.append(words)
        write_fleet(tmp_path / "run")
        (tmp_path / "latest").symlink_to("run")
        return 1  # findings

    places = {"gpu_driver": role, "gpu[01-04]": host}
    typed = as_typed("unhang remediate --role gpu_driver --host gpu[01-04]", places)[2:]
    given = command_and_parser("remediate")[1].parse_args([*typed, "-i", "fleet"])
    options = remediate._audited(remediate.RemediateOptions.of(given), audit)
    made = remediate._planned(options, None)[1]
    assert audited == [["-i", "fleet", "-q", "--limit", host, "--"]]
    assert [(one.host, one.roles) for one in made.hosts] == [(host, [role])]
    with pytest.raises(UserError, match="--role needs --host beside it, and no RUN"):
        remediate._audited(options, audit)

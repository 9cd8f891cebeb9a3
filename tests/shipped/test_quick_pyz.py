"""The one-file quick check gives the judge's own verdicts and texts, on Python 3.8 where available,
and answers each host program in its format."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from documented_command import as_typed
from healthy_nodes import HEALTHY
from old_interpreters import interpreter

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.node_rules import NodeView, cut, finding_texts, judge_rule, node_world
from unhang.judge.rules.values import Undecided

PROJECT = Path(__file__).resolve().parents[2]
TODAY = "2026-11-20"
DEADLINE_S = 280


PYTHON = interpreter("3.8") or interpreter("3.9") or sys.executable
CONTEXT = ("policy", "host", "groups", "run_status", "message", "policy_error")
# Runs on the node's Python: cases on standard input, [[verdicts of a case], …] on standard output.
JUDGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from unhang_quick.judging import judge
cases = json.load(sys.stdin)
print(json.dumps([judge(case["facts"], case["policy"], sys.argv[2], case["host"], case["groups"], case["rules"]) for case in cases]))
"""


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    """The built file."""
    target = tmp_path_factory.mktemp("quick") / "unhang-quick.pyz"
    return build(target)


def build(target):
    """Builds it with this interpreter."""
    done = subprocess.run(
        [sys.executable, str(PROJECT / "tools/collector/quick.py"), str(target)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


CATALOGUE = load_catalogue()
CHOSEN = [
    rule
    for rule in CATALOGUE.rules
    if rule.scope == "node"
    and rule.reads_facts
    and rule.id != "part-not-readable"
    and (rule.severity in ("critical", "error") or rule.id.startswith("admission-"))
]


def case_of(sections, rules=None, policy=None, host="example", groups=("gpu",)):
    """The input of both sides."""
    return {
        "facts": {"sections": sections},
        "policy": policy or {},
        "host": host,
        "groups": list(groups),
        "rules": rules,
    }


def recorded():
    """Facts of the fixtures, and of healthy nodes of each kind, judged by every rule."""
    found = {}
    for path in sorted((PROJECT / "tests/fixtures").glob("*/*.json")):
        document = json.loads(path.read_text())
        if isinstance(document, dict) and document.get("schema") == "unhang/node-facts/1":
            found[f"{path.parent.name}/{path.name}"] = case_of(document["sections"])
    return {**found, **{name: case_of(make()["sections"]) for name, make in HEALTHY.items()}}


def examples():
    """Every example and near miss of the chosen rules, judged by its own rule."""
    found = {}
    for rule in CHOSEN:
        for kind in ("match", "near_miss"):
            for place, example in enumerate(rule.row["examples"][kind]):
                sections = {
                    name: {"probe": {"status": "ok"}, **one} if isinstance(one, dict) else one
                    for name, one in example.items()
                    if name not in CONTEXT
                }
                if example.get("run_status", "ok") == "ok":
                    given = {
                        name: example[name]
                        for name in ("policy", "host", "groups")
                        if name in example
                    }
                    found[f"{rule.id} {kind}[{place}]"] = case_of(sections, [rule.id], **given)
    return found


def judges_own(case):
    """The same rows from the judge itself."""
    view = catalogue_view(CATALOGUE.tables, tuple(rule.id for rule in CATALOGUE.rules), TODAY)
    node = NodeView(
        case["host"],
        tuple(case["groups"]),
        case["policy"],
        "ok",
        "",
        "",
        to_fragment(case["facts"]["sections"]),
    )
    world, rows = node_world(node, view), []
    for rule in CHOSEN:
        for judged in (
            judge_rule(rule, world) if case["rules"] is None or rule.id in case["rules"] else ()
        ):
            if judged.severity in ("warning", "info"):
                continue
            row = {
                "rule": rule.id,
                "severity": judged.severity or rule.severity,
                "title": rule.row["title"],
                "verdict": judged.verdict,
                "where": judged.item,
                "items": judged.items,
            }
            if judged.verdict in ("fail", "unknown"):
                shown = finding_texts(rule, world, judged, items_of(rule, world))
                row |= {
                    "expected": shown.get("expected", ""),
                    "found": shown.get("found", ""),
                    "do": shown.get("remedy.person", ""),
                }
            rows.append(row)
    return rows


def items_of(rule, world):
    """Path -> item of the rule's list; {} where the node's facts do not have the list."""
    try:
        return (
            {
                item.path: item
                for item in world.items(rule.for_each.evaluate(world))
                if getattr(item, "path", None)
            }
            if rule.for_each
            else {}
        )
    except Undecided:
        return {}


@pytest.mark.parametrize(
    ("make", "met"), [(recorded, {"pass", "skip", "unknown"}), (examples, {"fail", "pass", "skip"})]
)
def test_its_verdicts_and_words_are_the_judges_own(pyz, make, met):
    cases = make()
    assert len(cases) > 8
    given = json.dumps(list(cases.values()))
    done = subprocess.run(
        [PYTHON, "-c", JUDGE, str(pyz), TODAY],
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    verdicts = set()
    for (name, case), found in zip(cases.items(), json.loads(done.stdout), strict=True):
        wanted = judges_own(case)
        assert found == json.loads(json.dumps(wanted)), name
        verdicts |= {row["verdict"] for row in found}
    assert met <= verdicts


def test_it_holds_every_rule_of_severity_error_and_above_and_the_packages_that_parse_them_with_their_licences(
    pyz,
):
    look = (
        "import sys; sys.path.insert(0, sys.argv[1]); from unhang_quick import data;"
        " print(*[row['id'] for row in data.RULES])"
    )
    done = subprocess.run(
        [PYTHON, "-c", look, str(pyz)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [rule.id for rule in CHOSEN]
    with zipfile.ZipFile(pyz) as archive:
        names = [name for name in archive.namelist() if not name.startswith("code-")]
    tops = {
        "__main__.py",
        "jinja2",
        "markupsafe",
        "pynvml.py",
        "unhang",
        "unhang_entry.py",
        "unhang_node",
        "unhang_quick",
    }
    assert {name.split("/")[0] for name in names} == tops
    assert {"jinja2/LICENSE.txt", "markupsafe/LICENSE.txt"} <= set(names)


def test_a_long_text_is_cut_as_the_judge_cuts_it_without_half_a_secret(pyz):
    text = f"{'word ' * 98}hf_{'aB3dE5' * 6}"
    look = (
        "import sys; sys.path.insert(0, sys.argv[1]); from unhang.judge.rules.node_rules import"
        " cut; print(cut(sys.argv[2]))"
    )
    done = subprocess.run(
        [PYTHON, "-c", look, str(pyz), text], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip("\n") == cut(text)
    assert text[:490] in done.stdout
    assert "hf_" not in done.stdout


def test_the_same_sources_give_the_same_bytes(pyz, tmp_path):
    assert build(tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()


H200 = PROJECT / "tests/fixtures/h200x8/facts.json"

# Compiling the rules takes a second on a node's Python. This process compiles them once; each line
# on standard input is a check, which runs the file from its first line in a fork: [arguments,
# environment, shut] -> [exit code, output, errors]. shut: where standard output leads instead; ""
# closes it.
CHECKS = """
import json, os, runpy, sys, tempfile
pyz = sys.argv[1]
sys.path.insert(0, pyz)
from unhang_quick import command, judging
judging.rules_here()
def check(arguments, environment, shut, streams):
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, stream in zip((1, 2), streams):
        os.dup2(stream.fileno(), descriptor)
    if shut:
        os.dup2(os.open(shut, os.O_WRONLY), 1)
    elif shut == "":
        os.close(1)
        sys.stdout = None  # as Python finds it when it starts
    sys.argv = [pyz] + arguments
    runpy.run_path(pyz, run_name="__main__")
for line in sys.stdin:
    streams = [tempfile.TemporaryFile() for _ in range(2)]
    child = os.fork()
    if not child:
        try:
            check(*json.loads(line), streams)
        finally:
            os._exit(70)
    code = os.waitpid(child, 0)[1] >> 8
    answer = [code]
    for stream in streams:
        stream.seek(0)
        answer.append(stream.read().decode())
    sys.__stdout__.write(json.dumps(answer) + "\\n")
    sys.__stdout__.flush()
"""


@pytest.fixture
def nodes(tmp_path):
    """Files of facts: a good node, one with a fault, one with a section that was not read, and an
    empty one."""
    found = {
        "pass": tmp_path / "pass.json",
        "fail": tmp_path / "fail.json",
        "unknown": tmp_path / "unknown.json",
        "nothing": tmp_path / "missing.json",
    }
    facts = json.loads(H200.read_text())
    found["pass"].write_text(json.dumps(facts))
    facts["sections"]["gpus"]["pci_count"] = 9
    found["fail"].write_text(json.dumps(facts))
    facts["sections"]["gpus"] = {
        "probe": {"status": "error", "error": "nvmlInit_v2: unknown error"}
    }
    found["unknown"].write_text(json.dumps(facts))
    return found


@pytest.fixture(scope="module")
def checks(pyz):
    """The process that makes checks."""
    with subprocess.Popen(
        [PYTHON, "-c", CHECKS, str(pyz)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def quick(checks, nodes):
    """quick(name, *options, **environment): the finished check of a file of facts."""

    def check(name, *options, shut=None, **environment):
        words = ["--facts", str(nodes[name]), "--node", "gpu001", *options]
        checks.stdin.write(json.dumps([words, {"PATH": "/nowhere", **environment}, shut]) + "\n")
        checks.stdin.flush()
        return subprocess.CompletedProcess(words, *json.loads(checks.stdout.readline()))

    return check


def test_by_itself_it_ends_with_0_1_or_2(pyz, nodes, quick):
    assert codes_with(pyz, nodes, '"$@"') == {"pass": 0, "fail": 1, "nothing": 2}
    assert {name: quick(name).returncode for name in nodes} == {
        "pass": 0,
        "fail": 1,
        "unknown": 2,
        "nothing": 2,
    }
    assert "gpu-fell-off-the-bus" in quick("fail").stdout
    assert quick("fail", "--fail-on", "critical").returncode in (0, 1)


def test_a_node_without_gpus_is_no_gpu_node_and_drains_nobody(quick, nodes, tmp_path):
    facts = json.loads(H200.read_text())
    absent = {"probe": {"status": "absent", "error": "no NVIDIA driver"}}
    facts["sections"] = {**facts["sections"], "driver": absent, "gpus": {**absent, "pci_count": 0}}
    for name in ("fabric_manager", "interconnect"):
        facts["sections"][name] = absent
    nodes["login"] = tmp_path / "login.json"
    nodes["login"].write_text(json.dumps(facts))
    alone = quick("login")
    assert alone.returncode == 1
    assert "not a GPU node" in alone.stdout
    assert quick("login", "--marked").returncode == 64
    assert quick("login", "--as", "slurm-prolog").returncode == 0


@pytest.mark.parametrize("program", ["slurm-prolog", "systemd", "cloud-init"])
def test_only_a_fail_ends_with_1_where_that_drains_or_fails_a_unit(quick, nodes, program):
    codes = {name: quick(name, "--as", program).returncode for name in nodes}
    assert codes == {"pass": 0, "fail": 1, "unknown": 0, "nothing": 0}


def test_a_loaded_driver_that_does_not_answer_drains(quick, nodes):
    facts = json.loads(H200.read_text())
    facts["sections"]["gpus"] = {
        "probe": {"status": "timeout", "error": "nvmlInit_v2 did not return"}
    }
    nodes["unknown"].write_text(json.dumps(facts))
    done = quick("unknown", "--as", "slurm-prolog")
    assert (done.returncode, "driver-does-not-answer" in done.stdout) == (1, True), done.stdout


def test_kubernetes_gets_0_1_or_2_and_a_short_line(quick, nodes):
    done = {name: quick(name, "--as", "kubernetes") for name in nodes}
    assert {name: one.returncode for name, one in done.items()} == {
        "pass": 0,
        "fail": 1,
        "unknown": 2,
        "nothing": 2,
    }
    assert all(0 < len(one.stdout.strip()) <= 80 for one in done.values())


def test_the_short_line_for_kubernetes_has_the_worst_of_many_faults(quick, nodes, tmp_path):
    facts, policy = json.loads(H200.read_text()), tmp_path / "policy.json"
    facts["sections"]["interconnect"]["by_gpu"][0]["nvlinks_active"] = 17
    nodes["fail"].write_text(json.dumps(facts))
    policy.write_text(json.dumps({"gpu": {"count": 9}}))
    rows = json.loads(quick("fail", "--policy", str(policy), "--format", "json").stdout)
    # in the order of the rules
    assert [row["severity"] for row in rows if row["verdict"] == "fail"] == ["error", "critical"]
    (line,) = quick("fail", "--policy", str(policy), "--as", "kubernetes").stdout.splitlines()
    assert line.startswith("policy-gpu-count: ")
    assert len(line) <= 80


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            {"driver": {"minn": "580.65.06"}},
            "unhang_policy.driver.minn: this key is unknown; allowed are version, min",
        ),
        (
            {"unhang_policy": {"drivr": {}}},
            "unhang_policy.drivr: this key is unknown; allowed are driver, kernel",
        ),
        ({"driver": {"min": 580}}, "unhang_policy.driver.min must be a text, and is 580"),
        (["driver"], "unhang_policy must be an object, and is ['driver']"),
    ],
)
def test_a_policy_with_a_fault_is_no_clean_result_and_drains_nobody(
    quick, tmp_path, policy, reason
):
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    done = quick("pass", "--policy", str(tmp_path / "policy.json"))
    assert (done.returncode, reason in done.stdout) == (2, True), done.stdout
    assert (
        quick("pass", "--policy", str(tmp_path / "policy.json"), "--as", "slurm-prolog").returncode
        == 0
    )


def test_a_policy_with_every_kind_of_key_is_taken(quick, tmp_path):
    waiver = {
        "rule": "xid-fatal",
        "hosts": ["gpu[001-002]"],
        "reason": "known",
        "by": "ops",
        "until": "2099-12-31",
    }
    policy = {
        "driver": {"min": "1.0", "held": False},
        "nccl": {"settings": {"NCCL_DEBUG": "WARN"}},
        "gpu": {"count": 8},
        "waivers": [waiver],
        "peers": "x",
    }
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    done = quick("pass", "--policy", str(tmp_path / "policy.json"))
    assert done.returncode in (0, 1) and "not checked" not in done.stdout


def test_files_that_are_not_what_was_asked_for_are_named(quick, nodes, tmp_path):
    assert "not checked: " in quick("nothing").stdout
    nodes["other"] = tmp_path / "other.json"
    nodes["other"].write_text("{}")
    assert f"{nodes['other']} holds a document without sections" in quick("other").stdout
    nodes["other"].write_text("Welcome!")
    assert f"{nodes['other']} does not hold JSON" in quick("other").stdout


def planted_scontrol(folder, code):
    """A scontrol that records its arguments."""
    place = folder / "bin" / "scontrol"
    place.parent.mkdir()
    place.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/asked\necho "slurm_update error: Unable to'
        f' contact slurm controller" >&2\nexit {code}\n'
    )
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return str(place.parent)


@pytest.mark.parametrize("code", [0, 1])
def test_the_healthcheck_calls_scontrol_itself_and_always_ends_with_0(quick, tmp_path, code):
    path = planted_scontrol(tmp_path, code)
    for name in ("pass", "unknown", "nothing"):
        assert quick(name, "--as", "slurm-healthcheck", PATH=path).returncode == 0
    assert not (tmp_path / "asked").exists()
    done = quick("fail", "--as", "slurm-healthcheck", PATH=path)
    assert done.returncode == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:3] == ["update", "NodeName=gpu001", "State=DRAIN"]
    assert asked[3].startswith("Reason=unhang: gpu-fell-off-the-bus: "), (
        "the critical finding stands before the error that explains it"
    )
    assert ("Unable to contact" in done.stderr) == bool(code)


def test_without_scontrol_the_node_stays_and_it_is_said(quick):
    done = quick("fail", "--as", "slurm-healthcheck")
    assert done.returncode == 0
    assert "could not run scontrol" in done.stderr


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["--as", "slurm-prolog"], 0),
        (["--as=slurm-healthcheck"], 0),
        (["--as", "kubernetes"], 2),
        ([], 2),
    ],
)
def test_wrong_use_and_an_old_python_drain_nobody(pyz, quick, program, code):
    wrong = quick("pass", *program, "--no-such-option")
    assert (wrong.returncode, wrong.stdout) == (code, "")
    assert "unrecognized arguments" in wrong.stderr
    pretend = (
        "import sys, runpy; sys.version_info = (3, 6, 9, 'final', 0); sys.argv = sys.argv[1:];"
        " runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    old = subprocess.run(
        [sys.executable, "-c", pretend, str(pyz), *program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (old.returncode, old.stdout) == (code, "")
    assert old.stderr.startswith("unhang-quick needs Python 3.8 or newer, and this is 3.6 (")


def test_the_commands_of_the_page_on_the_gate_end_well(pyz, tmp_path):
    (tmp_path / "node.json").write_bytes(
        (PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_bytes()
    )
    here, given = (
        as_typed("unhang-quick.pyz"),
        as_typed("unhang-quick.pyz --facts node.json --format json"),
    )
    for argv in (here, given):
        command = [str(pyz), *argv[1:]]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert (done.returncode in (0, 1), done.stderr) == (True, ""), argv
    assert {row["rule"] for row in json.loads(done.stdout)} == {rule.id for rule in CHOSEN}


def test_it_reads_this_machine_when_no_facts_are_given(pyz):
    done = subprocess.run(
        [PYTHON, str(pyz), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    said = {row["rule"] for row in json.loads(done.stdout)}
    # what this machine's kernel log says may be milder than an error
    by_line = {rule.id for rule in CHOSEN if rule.severity_of is not None}
    assert said | by_line == {rule.id for rule in CHOSEN}
    assert done.returncode in (0, 1, 2)


def codes_with(pyz, nodes, shell, *options, names=("pass", "fail", "nothing"), **environment):
    """{name: exit code} of the check in a shell's line; "$@" is the check."""
    found = {}
    for name in names:
        argv = [PYTHON, str(pyz), "--facts", str(nodes[name]), "--node", "gpu001", *options]
        done = subprocess.run(
            ["/bin/sh", "-c", shell, "sh", *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
            env=environment,
        )
        found[name] = done.returncode
    return found


@pytest.mark.parametrize(
    "output", [">&-", ">/dev/full", ">/dev/full 2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"]
)
def test_output_that_cannot_be_written_changes_no_answer(pyz, nodes, output):
    line = f'"$@" {output}'
    for form in ("table", "json"):
        assert codes_with(pyz, nodes, line, "--format", form, names=["nothing"]) == {"nothing": 2}
    assert codes_with(pyz, nodes, line, "--as", "slurm-prolog", names=["fail", "nothing"]) == {
        "fail": 1,
        "nothing": 0,
    }


@pytest.mark.parametrize("shut", ["", "/dev/full"], ids=["closed", "full"])
@pytest.mark.parametrize(
    ("options", "unknown"),
    [(("--format", "table"), 2), (("--format", "json"), 2), (("--as", "slurm-prolog"), 0)],
)
def test_a_closed_output_and_a_full_disk_change_no_answer_of_any_form(
    nodes, quick, options, unknown, shut
):
    codes = {name: quick(name, *options, shut=shut).returncode for name in nodes}
    assert codes == {"pass": 0, "fail": 1, "unknown": unknown, "nothing": unknown}


@pytest.mark.parametrize("program", ["slurm-prolog", "systemd", "cloud-init"])
def test_where_a_proof_is_asked_for_a_check_that_could_not_be_made_is_no_pass(
    pyz, nodes, quick, program
):
    options = ("--as", program, "--require-proof")
    assert {name: quick(name, *options).returncode for name in nodes} == {
        "pass": 0,
        "fail": 1,
        "unknown": 2,
        "nothing": 2,
    }
    assert codes_with(pyz, nodes, '"$@"', *options, "--no-such-option", names=["pass"]) == {
        "pass": 2
    }
    assert codes_with(
        pyz, nodes, '"$@"', *options, "--no-such-option", names=["pass"], PYTHONIOENCODING="ascii"
    ) == {"pass": 2}


def test_a_health_check_drains_for_want_of_a_proof_where_one_is_asked_for(quick, tmp_path):
    path = planted_scontrol(tmp_path, 0)
    assert (
        quick("nothing", "--as", "slurm-healthcheck", "--require-proof", PATH=path).returncode == 0
    )
    assert (
        (tmp_path / "asked").read_text().splitlines()[3].startswith("Reason=unhang: not checked: ")
    )


def test_modules_of_a_job_change_no_answer(pyz, nodes, tmp_path):
    (tmp_path / "jobs").mkdir()
    for name in (
        "json.py",
        "argparse.py",
        "ctypes.py",
        "subprocess.py",
        "stat_.py",
        "jinja2.py",
        "markupsafe.py",
    ):
        (tmp_path / "jobs" / name).write_text("raise SystemExit(1)\n")
    assert codes_with(
        pyz, nodes, '"$@"', "--as", "slurm-prolog", PYTHONPATH=str(tmp_path / "jobs")
    ) == {"pass": 0, "fail": 1, "nothing": 0}


@pytest.mark.parametrize(
    "place", ["/dev/zero", "/dev/full", "a pipe", "/proc/self/mem", "deep", "large"]
)
def test_facts_that_never_end_are_not_read(pyz, nodes, tmp_path, place):
    path = {
        "a pipe": tmp_path / "pipe",
        "deep": tmp_path / "deep",
        "large": tmp_path / "large",
    }.get(place, place)
    if place == "a pipe":
        os.mkfifo(path)
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    if place == "deep":
        path.write_text('{"sections": ' + "[" * 200_000 + "]" * 200_000 + "}")
    if place == "large":
        with path.open("wb") as target:
            target.truncate(1 << 31)
    limited = 'ulimit -v 2000000; exec "$@"'
    assert codes_with(pyz, {"it": path}, limited, names=["it"]) == {"it": 2}
    assert codes_with(pyz, {"it": path}, limited, "--as", "slurm-prolog", names=["it"]) == {"it": 0}


# The folders of pythons().
BROKEN = {
    "no Python": "empty",
    "a Python that ends with 1": "ends",
    "a Python that is killed": "killed",
    "a Python without an interpreter": "no-program",
    "an empty file as Python": "nothing",
}
# (options, the code of a check that could not be made, whether the node is drained by scontrol)
NOT_MADE = (
    ((), 2, False), (("--as", "slurm-prolog"), 0, False), (("--as=systemd",), 0, False),
    (("--as", "cloud-init"), 0, False),
    (("--as", "kubernetes"), 2, False), (("--as", "slurm-healthcheck"), 0, False),
    (("--as", "slurm-prolog", "--require-proof"), 2, False),
    (("--as=slurm-healthcheck", "--require-proof"), 0, True),
    (("--policy", "/etc/kubernetes/x.json", "--as", "slurm-prolog"), 0, False),
)  # fmt: skip


def pythons(folder):
    """Folders in which python3 is broken, each in its own way."""
    for name, text in {
        "ends": "#!/bin/sh\nexit 1\n",
        "killed": "#!/bin/sh\nkill -9 $$\n",
        "no-program": "#!/nowhere/sh\n",
        "nothing": "",
    }.items():
        (folder / name).mkdir()
        (folder / name / "python3").write_text(text)
        (folder / name / "python3").chmod(0o755)
    (folder / "empty").mkdir()


@pytest.mark.parametrize("way", BROKEN)
@pytest.mark.parametrize(
    ("options", "code", "drains"), NOT_MADE, ids=[" ".join(one[0]) or "bare" for one in NOT_MADE]
)
def test_a_python_that_is_broken_is_no_verdict(pyz, nodes, tmp_path, way, options, code, drains):
    pythons(tmp_path)
    place = planted_scontrol(tmp_path, 0)
    done = as_program(pyz, nodes["pass"], *options, PATH=f"{tmp_path / BROKEN[way]}:{place}")
    assert (done.returncode, (tmp_path / "asked").exists()) == (code, drains), done


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--as", "slurm-prolog", "--require-proof"),
        ("--as=slurm-healthcheck", "--require-proof"),
    ],
    ids=" ".join,
)
def test_a_pythonhome_that_is_nowhere_is_harmless_because_the_check_is_made_without_it(
    pyz, nodes, tmp_path, options
):
    path = f"{planted_scontrol(tmp_path, 0)}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = as_program(pyz, nodes["pass"], *options, PATH=path, PYTHONHOME="/nowhere")
    assert (done.returncode, (tmp_path / "asked").exists()) == (0, False), done


def as_program(pyz, facts, *options, **environment):
    """The file, started as a program of a node of Slurm."""
    argv = [str(pyz), "--facts", str(facts), *options]
    return subprocess.run(
        argv,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        env={**environment, "SLURMD_NODENAME": "gpu001"},
    )


@pytest.mark.parametrize("options", [(), ("--as", "slurm-prolog")])
def test_run_as_a_program_it_gives_the_same_verdicts(pyz, nodes, options):
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    codes = {
        name: (
            subprocess.run(
                [str(pyz), "--facts", str(nodes[name]), *options],
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
                env={"PATH": path},
            ).returncode
        )
        for name in nodes
    }
    assert codes == {
        "pass": 0,
        "fail": 1,
        "unknown": 0 if options else 2,
        "nothing": 0 if options else 2,
    }


@pytest.mark.parametrize("options", [(), ("--as", "slurm-prolog"), ("--as", "kubernetes")])
def test_marked_codes_are_those_that_no_broken_python_ends_with(quick, nodes, options):
    codes = {name: quick(name, *options, "--marked").returncode for name in nodes}
    unknown = 65 if "slurm-prolog" in options else 2
    assert codes == {"pass": 65, "fail": 64, "unknown": unknown, "nothing": unknown}


@pytest.mark.parametrize("most", [4, 6, 8, 10, 11, 12])
@pytest.mark.parametrize(
    ("options", "code"),
    [(("--as", "slurm-prolog"), 0), (("--as", "systemd"), 0), (("--as", "kubernetes"), 2)],
    ids=["prolog", "unit", "kubernetes"],
)
def test_few_descriptors_are_no_verdict_and_change_none(pyz, nodes, most, options, code):
    """Of this machine, which has no GPU, and of facts. With three no program can be started: the C
    library is not found."""
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    limited = ["prlimit", f"--nofile={most}:{most}", str(pyz), *options]
    codes = {
        name: (
            subprocess.run(
                [*limited, "--facts", str(nodes[name])],
                stdout=subprocess.DEVNULL,
                env=path,
                check=False,
            ).returncode
        )
        for name in nodes
    }
    assert codes == {"pass": 0, "fail": 1, "unknown": code, "nothing": code}
    assert subprocess.run(limited, stdout=subprocess.DEVNULL, env=path, check=False).returncode in (
        0,
        code,
    )


def test_a_file_that_bash_env_names_is_not_run(pyz, nodes, tmp_path):
    (tmp_path / "env").write_text("exit 1\n")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    assert (
        as_program(
            pyz, nodes["pass"], "--as", "slurm-prolog", PATH=path, BASH_ENV=str(tmp_path / "env")
        ).returncode
        == 0
    )


HANGS = "#include <unistd.h>\nint {}(void) {{ for (;;) pause(); }}\n"


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlInit_v2"])
def test_a_libnvidia_ml_that_hangs_is_no_verdict_where_no_driver_is_loaded(pyz, tmp_path, call):
    """docs/gate.md has what it is on a node whose driver is loaded: tried on an H100."""
    (tmp_path / "hangs.c").write_text(HANGS.format(call))
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-o",
            str(tmp_path / "libnvidia-ml.so.1"),
            str(tmp_path / "hangs.c"),
        ],
        check=True,
    )
    given = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(tmp_path),
    }
    asked = ((), ("--as", "slurm-prolog"), ("--as", "slurm-prolog", "--require-proof"))
    checks = [
        subprocess.Popen(
            [str(pyz), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=given
        )
        for options in asked
    ]
    assert [check.wait(DEADLINE_S) for check in checks] == [2, 0, 2]

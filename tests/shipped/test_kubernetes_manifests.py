"""deploy/kubernetes, rendered by Helm's own library and checked against the API's schemas: each
privilege has its reason, nothing of the node can be written, and the plugin answers in its three
codes."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from kubernetes_chart import CHART, DIGEST, GATE, LEAST, helm_on, one, pod, rendered

from unhang.act.gate.host_programs import LONGEST_MESSAGE
from unhang.jobs.commands.watch import add_arguments

FILES = CHART / "files"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
PAGE = (CHART.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
# Everything that values can switch on.
ALL = {
    **GATE,
    "watch": True,
    "configMaps": True,
    "results": {"persistentVolumeClaim": {"claimName": "unhang"}},
    "driverContainer": True,
    "kernelLog": "kmsg",
    "seLinuxType": "spc_t",
}
# What a pod may not do by itself: each such line is explained on the line or above it.
PRIVILEGES = re.compile(
    r"^ *(?:hostNetwork: true|hostPID: true|hostIPC: true|hostPath:|runtimeClassName:|runAsUser:"
    r" 0|type: Unconfined|privileged: true|"
    r"- [A-Z_]{5,}\b|kind: ClusterRole\b|- serviceAccountToken:|pod-security.*: privileged)"
)


def container(pod: dict, name: str) -> dict:
    return next(one for one in pod["containers"] if one["name"] == name)


def test_helm_finds_no_fault():
    for values in (LEAST, {**LEAST, **GATE}, {**LEAST, **ALL}):
        found = helm_on(values)
        assert "problem" not in found, found
        assert found["lint"]["errors"] == []
        assert [one["error"] for one in found["lint"]["messages"]] == ["icon is recommended"]


def test_a_value_that_is_missing_or_unknown_is_refused_by_its_name():
    wrong = {
        "/image/digest": {},
        "/image/repository": {"image": {"repository": "", "digest": DIGEST}},
        "/gate/detector": {**LEAST, "gate": {"enabled": True}},
        "/interval": {**LEAST, "interval": "1h"},
        "intervall": {**LEAST, "intervall": 60},
        "/kernelLog": {**LEAST, "kernelLog": "journal"},
        "/watch": {**LEAST, "watch": "yes"},
        "app.kubernetes.io/name": {**LEAST, "podLabels": {"app.kubernetes.io/name": "mine"}},
        "/resources": {**LEAST, "resources": {"colector": {}}},
    }
    assert {word: word in helm_on(values).get("problem", "") for word, values in wrong.items()} == (
        dict.fromkeys(wrong, True)
    )


def test_each_value_stands_on_the_page():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [name for name in values if f"`{name}`" not in PAGE] == []
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert {*schema["properties"]} - {"global"} == {*values}


def test_values_reach_the_pods():
    wanted = [{"key": "gpu", "operator": "Exists"}]
    objects = rendered(
        **ALL,
        interval=600,
        tolerations=wanted,
        nodeSelector={"nvidia.com/gpu.present": None, "pool": "a"},
    )
    for name in ("unhang-collector", "unhang-condition"):
        assert pod(objects, name)["tolerations"] == wanted
        assert pod(objects, name)["nodeSelector"] == {"pool": "a"}
        for each in pod(objects, name)["containers"]:
            assert each["image"].endswith(f"@{DIGEST}")
    given = {
        row["name"]: row.get("value")
        for name in ("unhang-collector", "unhang-condition")
        for each in pod(objects, name)["containers"]
        for row in each["env"]
    }
    assert (given["EVERY_S"], given["JUDGE_S"], given["OLDEST_MIN"]) == ("600", "60", "25")
    assert given["KERNEL_LOG"] == "kmsg"
    assert "runtimeClassName" not in pod(rendered(runtimeClassName=""))
    collector = container(pod(objects), "collector")
    assert collector["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert collector["securityContext"]["privileged"] is True
    assert not {"capabilities", "allowPrivilegeEscalation"} & {*collector["securityContext"]}


def test_what_a_site_wants_of_every_pod_reaches_every_pod():
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    objects = rendered(
        **{**ALL, "image": {"repository": "r", "tag": "1"}},
        env=[proxy],
        podLabels={"team": "gpu"},
        podAnnotations={"mesh": "off"},
        priorityClassName="node",
        imagePullSecrets=[{"name": "registry"}],
        resources={"collector": {"limits": {"memory": "2Gi"}}},
    )
    for name in ("unhang-collector", "unhang-condition"):
        template = one(objects, "DaemonSet", name)["spec"]["template"]
        assert template["metadata"]["labels"] == {"app.kubernetes.io/name": name, "team": "gpu"}
        assert template["metadata"]["annotations"]["mesh"] == "off"
        assert template["spec"]["priorityClassName"] == "node"
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        # first, so that what the chart itself sets is not replaced
        assert [each["env"][0] for each in template["spec"]["containers"]] == [proxy] * len(
            template["spec"]["containers"]
        )
    collector = container(pod(objects), "collector")
    assert collector["image"] == "r:1"
    assert collector["resources"]["limits"] == {"memory": "2Gi"}
    assert collector["resources"]["requests"]["memory"] == "64Mi"


def test_the_account_of_the_pods_is_the_one_that_publishes():
    for watch, account in ((False, "unhang-results"), (True, "unhang-watch")):
        objects = rendered(configMaps=True, watch=watch)
        (who,) = one(objects, "RoleBinding", "unhang-results")["subjects"]
        assert pod(objects)["serviceAccountName"] == who["name"] == account


def test_the_scripts_of_the_pods_are_the_files(tmp_path):
    objects = rendered(**ALL)
    for name, files in (
        ("unhang-collect", ["collect.sh", "publish.py"]),
        ("unhang-node-condition", ["judge.sh", "unhang.json", "verdict.sh"]),
    ):
        texts = one(objects, "ConfigMap", name)["data"]
        assert sorted(texts) == files
        for file in files:
            assert texts[file].rstrip("\n") == (FILES / file).read_text().rstrip("\n")
    assert sorted(path.name for path in FILES.iterdir()) == sorted(
        ["collect.sh", "judge.sh", "publish.py", "unhang.json", "verdict.sh"]
    )


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_the_schemas_of_the_api_take_every_object(version):
    """An unknown field is refused: the schemas are those of a strict API server."""
    objects = [*rendered(**ALL), *rendered()]
    assert {row["kind"] for row in objects} == {
        "DaemonSet",
        "ConfigMap",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Namespace",
        "Role",
        "RoleBinding",
    }
    for row in objects:
        kubernetes_validate.validate(row, version, strict=True)
    wrong = json.loads(json.dumps(one(objects, "DaemonSet", "unhang-condition")))
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def without_reason(text: str) -> list[str]:
    """Lines that give a privilege and neither end with a comment nor follow one; the name that they
    belong to may stand between."""
    lines = text.splitlines()
    rows = [number for number, line in enumerate(lines) if PRIVILEGES.match(line)]
    return [
        lines[number].strip()
        for number in rows
        if "# " not in lines[number]
        and not any(line.strip().startswith("# ") for line in above(lines, number))
    ]


def above(lines: list[str], number: int) -> list[str]:
    """The lines that may have the reason: the one above, and with a mapping one more, since the
    name may stand between."""
    return lines[max(number - (1 if "- " in lines[number] else 2), 0) : number]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_each_privilege_has_its_reason(path):
    assert without_reason(path.read_text(encoding="utf-8")) == []


def test_the_search_for_privileges_finds_them():
    text = (CHART / "templates" / "collector.yaml").read_text()
    bare = re.sub(r"^ *#.*\n| +#.*", "", text, flags=re.MULTILINE)
    for privilege in (
        "hostNetwork: true",
        "hostPID: true",
        "runtimeClassName: {{ . }}",
        "runAsUser: 0",
        "- SYS_PTRACE",
        "- SYS_CHROOT",
        "hostPath:",
        "type: Unconfined",
    ):
        assert privilege in without_reason(bare)


def test_the_collector_writes_one_folder_of_its_own_and_has_three_capabilities():
    own = pod(rendered())
    collector = container(own, "collector")
    of_the_node = {one["name"] for one in own["volumes"] if "hostPath" in one}
    assert of_the_node == {"node"}
    assert all(
        one["readOnly"] and one["recursiveReadOnly"]
        for one in collector["volumeMounts"]
        if one["name"] in of_the_node
    )
    assert [one["mountPath"] for one in collector["volumeMounts"] if not one.get("readOnly")] == [
        "/work"
    ]
    security = collector["securityContext"]
    assert (
        security["privileged"],
        security["allowPrivilegeEscalation"],
        security["readOnlyRootFilesystem"],
    ) == (False, False, True)
    assert security["capabilities"] == {
        "drop": ["ALL"],
        "add": ["SYS_CHROOT", "DAC_READ_SEARCH", "SYS_PTRACE"],
    }
    assert (
        own["automountServiceAccountToken"],
        own["securityContext"]["seccompProfile"]["type"],
    ) == (False, "RuntimeDefault")


def host_paths() -> set[tuple[str, str, bool]]:
    """(path of the node, container, whether it is read-only) of all pods with all values."""
    objects = rendered(**ALL)
    found = set()
    for own in (pod(objects), pod(objects, "unhang-condition")):
        paths = {
            row["name"]: row["hostPath"]["path"] for row in own["volumes"] if "hostPath" in row
        }
        found |= {
            (paths[mount["name"]], each["name"], mount.get("readOnly", False))
            for each in own["containers"]
            for mount in each["volumeMounts"]
            if mount["name"] in paths
        }
    return found


@pytest.mark.parametrize(("value", "pods"), [(True, "all"), ("labelled", "labelled")])
def test_the_watcher_is_off_unless_asked_for_and_ends_nothing(value, pods):
    assert [each["name"] for each in pod(rendered())["containers"]] == ["collector"]
    own = pod(rendered(watch=value))
    watch = container(own, "watch")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(watch["command"][2:])
    assert (given.all, given.act, given.on_hang, given.pods) == (True, False, "report", pods)
    security = watch["securityContext"]
    becomes_a_user = ["SETUID", "SETGID", "SETPCAP", "SYS_CHROOT", "KILL"]
    assert security["capabilities"] == {
        "drop": ["ALL"],
        "add": ["DAC_READ_SEARCH", "SYS_PTRACE", *becomes_a_user],
    }
    assert (security["privileged"], security["readOnlyRootFilesystem"]) == (False, True)
    assert (own["hostPID"], own["automountServiceAccountToken"]) == (True, False)
    assert [one["mountPath"] for one in watch["volumeMounts"] if not one.get("readOnly")] == [
        str(given.textfile.parent)
    ]


def with_token(own: dict) -> list[str]:
    """The containers that have the account's token."""
    mounted = [
        (each["name"], row["name"]) for each in own["containers"] for row in each["volumeMounts"]
    ]
    return [container for container, volume in mounted if volume == "token"]


def test_the_watcher_alone_has_a_token_and_what_it_may_do_stands_on_the_page():
    assert with_token(pod(rendered(watch=True))) == ["watch"]
    assert "may list pods, get namespaces and create events" in PAGE
    told = " ".join(PAGE.split())
    assert "all that the API keeps: images, commands, arguments, environment variables" in told
    kinds = {row["kind"] for row in rendered()}
    assert kinds == {"DaemonSet", "ConfigMap"}


def test_the_page_has_every_path_of_the_node_that_a_pod_has():
    table = PAGE.partition("| path | in | for |\n| --- | --- | --- |\n")[2].partition("\n\n")[0]
    told = {
        (path, name)
        for path, names in re.findall(r"^\| `(/[^`]*)` \| ([^|]*) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert {(path, name) for path, name, _ in host_paths()} == told
    assert {(path, name) for path, name, read_only in host_paths() if not read_only} == {
        ("/run/unhang-collector", "collector"),
        ("/run/unhang-watch", "watch"),
    }


def test_the_condition_has_a_pod_of_its_own_with_nothing_of_the_node_but_the_documents():
    objects = rendered(**GATE)
    own = pod(objects, "unhang-condition")
    assert {"hostPID", "hostNetwork", "hostIPC", "runtimeClassName"} & {*own} == set()
    assert own["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    (documents,) = [row for row in own["volumes"] if "hostPath" in row]
    assert {
        mount["readOnly"]
        for each in own["containers"]
        for mount in each["volumeMounts"]
        if mount["name"] == documents["name"]
    } == {True}
    assert next(row for row in pod(objects)["volumes"] if row["name"] == "work") == documents
    command = container(own, "node-problem-detector")["command"]
    assert [row for row in command if "address" in row] == ["--prometheus-address=127.0.0.1"]
    assert "--port=0" in command
    assert [each for each in own["containers"] if "ports" in each] == []


def test_the_condition_gives_the_token_to_one_container_and_capabilities_to_none():
    own = pod(rendered(**GATE), "unhang-condition")
    assert {each["name"] for each in own["containers"]} == {"judge", "node-problem-detector"}
    assert all(
        each["securityContext"]["capabilities"] == {"drop": ["ALL"]} for each in own["containers"]
    )
    assert with_token(own) == ["node-problem-detector"]
    assert container(own, "node-problem-detector")["securityContext"]["runAsNonRoot"] is True


def test_no_registry_is_named():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (
        values["image"]
        == values["gate"]["detector"]
        == {
            "repository": "",
            "digest": "",
            "tag": "",
        }
    )
    assert not re.search(r"image: *[a-z]", "".join(path.read_text() for path in TEMPLATES))


def test_the_plugin_is_described_as_node_problem_detector_reads_it():
    plugin = json.loads((FILES / "unhang.json").read_text())
    (rule,) = plugin["rules"]
    (condition,) = plugin["conditions"]
    assert (plugin["plugin"], rule["type"], rule["condition"], plugin["metricsReporting"]) == (
        "custom",
        "permanent",
        condition["type"],
        True,
    )
    assert plugin["pluginConfig"]["max_output_length"] == LONGEST_MESSAGE
    # else it refuses to start
    assert int(rule["timeout"][:-1]) <= int(plugin["pluginConfig"]["timeout"][:-1])
    own = pod(rendered(**GATE), "unhang-condition")
    mounted = container(own, "node-problem-detector")["volumeMounts"]
    assert Path(rule["path"]).parent.as_posix() in [one["mountPath"] for one in mounted]


def asked(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [FILES / "verdict.sh"],
        env={"VERDICT": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("code", "expected"), [("0", 0), ("1", 1), ("2", 2), ("64", 2), ("x", 2), ("", 2)]
)
def test_the_plugin_passes_a_verdict_on_and_takes_anything_else_for_unknown(
    tmp_path, code, expected
):
    (tmp_path / "answer").write_text(f"{int(time.time())}\n{code}\nXid 79 on one GPU\n")
    assert asked(tmp_path) == (expected, "Xid 79 on one GPU\n")


@pytest.mark.parametrize(
    "line",
    [
        r"a \\033[31m \\0033[2J \\n \\c b",
        r"\\x1b[2J",
        "-n",
        "-e x",
        "%s %d",
        "$(touch no) `touch no`",
    ],
)
def test_the_plugin_passes_the_line_on_as_it_is(tmp_path, line):
    """A node's text has backslashes, which a shell's echo would turn into escape sequences for
    whoever describes the node."""
    (tmp_path / "answer").write_text(f"{int(time.time())}\n1\n{line}\n")
    assert asked(tmp_path) == (1, f"{line}\n")


@pytest.mark.parametrize("answer", [None, "", "1\n1\nold\n", "half"])
def test_no_verdict_or_an_old_one_is_unknown(tmp_path, answer):
    if answer is not None:
        (tmp_path / "answer").write_text(answer)
    code, line = asked(tmp_path)
    assert (code, line.startswith("not checked: ")) == (2, True)


FIRST_LINES = (
    "x",
    "-1",
    "",
    " ",
    "0",
    "010",
    "1e9",
    "1 2",
    "99999999999999999999",
    "$(touch no)",
    "a[$(touch no)]",
    "date",
    "0x7fffffff",
    "NOW",
)


@pytest.mark.parametrize("shell", ["/bin/sh", "bash"])
@pytest.mark.parametrize("first", FIRST_LINES)
def test_a_time_that_is_none_or_in_the_future_is_no_verdict(tmp_path, shell, first):
    """A shell would work out names and commands in what should be a number, and a time in the
    future would be fresh for ever."""
    (tmp_path / "answer").write_text(
        f"{first.replace('NOW', str(int(time.time()) + 3600))}\n0\nfine\n"
    )
    script, environment = (
        FILES / "verdict.sh",
        {"VERDICT": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    done = subprocess.run(
        [shell, script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.startswith("not checked: ")) == (2, True), done.stderr
    assert not (tmp_path / "no").exists()


def test_a_clock_that_is_a_little_ahead_is_no_fault(tmp_path):
    (tmp_path / "answer").write_text(f"{int(time.time()) + 30}\n0\nfine\n")
    assert asked(tmp_path) == (0, "fine\n")


def judged(tmp_path: Path, program: str, age_s: float = 0) -> list[str]:
    """What judge.sh leaves with this quick check, after one round."""
    quick = tmp_path / "unhang-quick.pyz"
    quick.write_text(f"#!/bin/sh\n{program}\n")
    quick.chmod(0o755)
    document = tmp_path / "node.json"
    document.write_text("{}")
    then = time.time() - age_s
    subprocess.run(["touch", "-d", f"@{then}", document], check=True)
    # A sleep that fails ends the loop after its first round.
    places = {"WORK": tmp_path, "VERDICT": tmp_path, "PROGRAMS": tmp_path, "JUDGE_S": "no-number"}
    subprocess.run(
        [FILES / "judge.sh"],
        env={**{name: str(value) for name, value in places.items()}, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    return (tmp_path / "answer").read_text().splitlines()[1:]


def test_the_judge_keeps_the_code_and_the_line_of_the_quick_check(tmp_path):
    assert judged(tmp_path, 'echo "$@"; exit 1') == [
        "1",
        f"--facts {tmp_path}/node.json --as kubernetes",
    ]
    assert judged(tmp_path, "echo fine") == ["0", "fine"]


def test_an_old_document_is_not_judged(tmp_path):
    assert judged(tmp_path, "echo fine", age_s=3 * 3600) == [
        "2",
        "not checked: the collector sent no document in 150 minutes",
    ]

"""deploy/kubernetes: what is named is there, each privilege has its reason, nothing of the node can
be written, and the plugin answers in its three codes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from unhang.act.gate.host_programs import LONGEST_MESSAGE

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
KUSTOMIZATIONS = sorted(path.parent for path in DEPLOY.rglob("kustomization.yaml"))
# What a pod may not do by itself: each such line is explained on the line or above it.
PRIVILEGES = re.compile(
    r"^ *(?:hostNetwork: true|hostPID: true|hostIPC: true|hostPath:|runtimeClassName:|runAsUser:"
    r" 0|type: Unconfined|privileged: true|"
    r"- [A-Z_]{5,}\b|kind: ClusterRole\b|- serviceAccountToken:|pod-security.*: privileged)"
)


def documents_of(path: Path) -> list[dict]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def collector_pod(folder: str = "collector.yaml") -> dict:
    (daemon_set,) = documents_of(DEPLOY / folder)
    return daemon_set["spec"]["template"]["spec"]


def container(pod: dict, name: str) -> dict:
    return next(one for one in pod["containers"] if one["name"] == name)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda folder: folder.name)
def test_a_kustomization_names_what_is_there_and_forgets_no_file(folder):
    (found,) = documents_of(folder / "kustomization.yaml")
    named = [
        *found.get("resources", []),
        *(one["path"] for one in found.get("patches", []) if "path" in one),
    ]
    named += [name for one in found.get("configMapGenerator", []) for name in one["files"]]
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        *named,
        "kustomization.yaml",
    } | ({"Containerfile"} if folder == DEPLOY else set())
    offered = re.findall(
        r"^# +- ([a-z-]+) ", (folder / "kustomization.yaml").read_text(), re.MULTILINE
    )
    assert sorted(offered) == sorted(
        path.parent.name for path in folder.glob("*/kustomization.yaml")
    )


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


@pytest.mark.parametrize(
    "path", sorted(DEPLOY.rglob("*.yaml")), ids=lambda path: str(path.relative_to(DEPLOY))
)
def test_each_privilege_has_its_reason(path):
    assert without_reason(path.read_text(encoding="utf-8")) == []


def test_the_search_for_privileges_finds_them():
    bare = re.sub(
        r"^ *#.*\n| +#.*", "", (DEPLOY / "collector.yaml").read_text(), flags=re.MULTILINE
    )
    for privilege in (
        "hostNetwork: true",
        "hostPID: true",
        "runtimeClassName: nvidia",
        "runAsUser: 0",
        "- SYS_PTRACE",
        "- SYS_CHROOT",
        "hostPath:",
        "type: Unconfined",
    ):
        assert privilege in without_reason(bare)


def test_the_collector_writes_one_folder_of_its_own_and_has_three_capabilities():
    pod = collector_pod()
    collector = container(pod, "collector")
    of_the_node = {one["name"] for one in pod["volumes"] if "hostPath" in one}
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
        pod["automountServiceAccountToken"],
        pod["securityContext"]["seccompProfile"]["type"],
    ) == (False, "RuntimeDefault")


def host_paths() -> set[tuple[str, str, bool]]:
    """(path of the node, container, whether it is read-only) of every manifest and component."""
    pods = [
        collector_pod(),
        collector_pod("node-condition/pod.yaml"),
        collector_pod("node-condition/documents.yaml"),
    ]
    for folder in KUSTOMIZATIONS:
        patches = documents_of(folder / "kustomization.yaml")[0].get("patches", [])
        pods += [
            yaml.safe_load(one["patch"])["spec"]["template"]["spec"]
            for one in patches
            if "patch" in one
        ]
    found = set()
    for pod in pods:
        paths = {
            one["name"]: one["hostPath"]["path"]
            for one in pod.get("volumes", [])
            if "hostPath" in one
        }
        containers = pod.get("containers") or collector_pod()["containers"]
        mounts = [
            (one["name"], mount) for one in containers for mount in one.get("volumeMounts", [])
        ]
        found |= {
            (paths[mount["name"]], name, mount.get("readOnly", False))
            for name, mount in mounts
            if mount["name"] in paths
        }
    return found


def test_the_page_has_every_path_of_the_node_that_a_pod_has():
    page = (DEPLOY.parents[1] / "docs" / "kubernetes.md").read_text()
    table = page.partition("| path | in | for |\n| --- | --- | --- |\n")[2].partition("\n\n")[0]
    told = {
        (path, name)
        for path, names in re.findall(r"^\| `(/[^`]*)` \| ([^|]*) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert {(path, name) for path, name, _ in host_paths()} == told
    assert {(path, name) for path, name, read_only in host_paths() if not read_only} == {
        ("/run/unhang-collector", "collector")
    }


def test_the_condition_has_a_pod_of_its_own_with_nothing_of_the_node_but_the_documents():
    pod = collector_pod("node-condition/pod.yaml")
    assert {"hostPID", "hostNetwork", "hostIPC", "runtimeClassName"} & {*pod} == set()
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    (documents,) = [one for one in pod["volumes"] if "hostPath" in one]
    assert {
        one["readOnly"]
        for each in pod["containers"]
        for one in each["volumeMounts"]
        if one["name"] == documents["name"]
    } == {True}
    (written,) = collector_pod("node-condition/documents.yaml")["volumes"]
    assert (written["name"], written["hostPath"]) == ("work", documents["hostPath"])
    command = container(pod, "node-problem-detector")["command"]
    assert [one for one in command if "address" in one] == ["--prometheus-address=127.0.0.1"]
    assert "--port=0" in command
    assert [one for one in pod["containers"] if "ports" in one] == []


def test_the_condition_gives_the_token_to_one_container_and_capabilities_to_none():
    pod = collector_pod("node-condition/pod.yaml")
    assert {one["name"] for one in pod["containers"]} == {"judge", "node-problem-detector"}
    assert all(
        one["securityContext"]["capabilities"] == {"drop": ["ALL"]} for one in pod["containers"]
    )
    assert [
        one["name"]
        for one in pod["containers"]
        for mount in one["volumeMounts"]
        if mount["name"] == "token"
    ] == ["node-problem-detector"]
    assert container(pod, "node-problem-detector")["securityContext"]["runAsNonRoot"] is True


def test_no_registry_is_named_but_a_placeholder():
    images = [
        one
        for folder in KUSTOMIZATIONS
        for one in documents_of(folder / "kustomization.yaml")[0].get("images", [])
    ]
    assert {one["newName"].partition("/")[0] for one in images} == {"registry.invalid"}
    assert {(one["digest"], "newTag" in one) for one in images} == {("sha256:replace-me", False)}
    named = {
        one["image"]
        for path in ("collector.yaml", "node-condition/pod.yaml")
        for one in collector_pod(path)["containers"]
    }
    assert named == {one["name"] for one in images}


def test_the_plugin_is_described_as_node_problem_detector_reads_it():
    plugin = json.loads((DEPLOY / "node-condition" / "unhang.json").read_text())
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
    mounted = container(collector_pod("node-condition/pod.yaml"), "node-problem-detector")[
        "volumeMounts"
    ]
    assert Path(rule["path"]).parent.as_posix() in [one["mountPath"] for one in mounted]


def asked(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [DEPLOY / "node-condition" / "verdict.sh"],
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
        DEPLOY / "node-condition" / "verdict.sh",
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
        [DEPLOY / "node-condition" / "judge.sh"],
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


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kustomize_makes_two_pods_of_the_component(tmp_path):
    """Without a cluster: what is applied, with the component chosen."""
    shutil.copytree(DEPLOY, tmp_path / "mine")
    chosen = tmp_path / "mine" / "kustomization.yaml"
    chosen.write_text(
        chosen.read_text()
        .replace("# components:", "components:")
        .replace("#   - node-condition ", "  - node-condition ")
    )
    done = subprocess.run(
        ["kubectl", "kustomize", chosen.parent], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sets = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all(done.stdout)
        if one["kind"] == "DaemonSet"
    }
    assert {name: [one["name"] for one in pod["containers"]] for name, pod in sets.items()} == {
        "unhang-collector": ["collector"],
        "unhang-condition": ["judge", "node-problem-detector"],
    }
    places = [next(one for one in pod["volumes"] if one["name"] == "work") for pod in sets.values()]
    assert (
        places[0]
        == places[1]
        == {
            "name": "work",
            "hostPath": {"path": "/run/unhang-collector", "type": "DirectoryOrCreate"},
        }
    )
    images = {one["image"] for pod in sets.values() for one in pod["containers"]}
    assert {image.partition("/")[2] for image in images} == {
        "unhang-node@sha256:replace-me",
        "node-problem-detector@sha256:replace-me",
    }

"""One home for each thing: what reads links, YAML, pickles, the catalogue and the folder of runs; and no name that nothing uses."""

from __future__ import annotations

import ast
import collections
import functools
import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
SOURCES = ("tools", "module_utils", "plugins", "library")
# Ansible, pickle, urllib, hatchling, html.parser and templates find these by name.
CALLED_FROM_OUTSIDE = {
    "_proved",  # plugins/action/rollout_step.py: a value of its option `part`
    "summary_x",  # templates/smoke.html.j2
    *("_supports_async", "v2_runner_on_start", "STATE_ID", "ROOTFS", "ModuleDocFragment"),
    *("PackedProject", "PLUGIN_NAME", "initialize", "redirect_request", "find_class", "persistent_load", "handle_starttag"),
}
BY_PREFIX = ("visit_", "write_", "of_")  # methods for the kinds of a syntax tree


@functools.cache
def trees() -> dict[str, ast.Module]:
    paths = sorted(path for folder in SOURCES for path in (HOME / folder).rglob("*.py"))
    return {str(path.relative_to(HOME)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@functools.cache
def users() -> dict[str, set[str]]:
    """Name -> the files that use it as a variable, an attribute or an import."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for one in node.names:
                    found[one.name].add(path)
            elif isinstance(node, (ast.Attribute, ast.Name)):
                found[node.attr if isinstance(node, ast.Attribute) else node.id].add(path)
    return found


def readers(*names: str) -> set[str]:
    return {path for name in names for path in users()[name]}


def defined(tree: ast.Module) -> set[str]:
    """Names of functions, classes and methods, and variables of the module or of a class; `_` and what is unpacked beside a wanted value are none."""
    found = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    bodies = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    assigned = [node for body in bodies for node in body.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [target for node in assigned for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return found | {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def test_no_name_is_used_nowhere():
    words = collections.Counter()
    tasks = [path for folder in ("roles", "playbooks") for path in (HOME / folder).rglob("*.yml")]
    for path in [*map(HOME.joinpath, trees()), *tasks]:
        words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    once = {(path, name) for path, tree in trees().items() for name in defined(tree) if words[name] == 1 and not name.startswith("__")}
    assert sorted(one for one in once if one[1] not in CALLED_FROM_OUTSIDE and not one[1].startswith(BY_PREFIX)) == []


def test_a_module_of_the_node_follows_links_by_the_one_resolver():
    """os.path.realpath stands where the tree is this machine's own; any other is followed by links.follow_links."""
    node = {path for path in readers("realpath", "follow_links") if path.startswith(("module_utils", "library"))}
    assert node == {f"module_utils/unhang_node/{name}.py" for name in ("root", "change/files", "files")}


def test_pickles_are_read_in_one_place():
    """judge/limits.py packs answers between a process and its own child."""
    assert readers("pickle", "pickletools") == {"tools/unhang/plain_pickle.py", "tools/unhang/judge/limits.py"}
    assert readers("load_plain", "unpickle_plain") == {f"tools/unhang/{name}.py" for name in ("plain_pickle", "diagnose/flight", "smoke/flight_recorder")}


def test_the_catalogue_is_read_by_its_package():
    inside = {path for path in readers("BUILT_IN", "load_yaml", "checked_file") if path.startswith("tools/unhang/")}
    others = {f"tools/unhang/{name}.py" for name in ("strict_yaml", "diagnose/scoring", "diagnose/learning", "judge/policy", "commands/catalogue")}
    assert {path for path in inside if not path.startswith("tools/unhang/catalogue/")} <= others
    assert readers("safe_load", "SafeLoader", "CSafeLoader") <= {f"tools/unhang/{name}.py" for name in ("strict_yaml", "schemas/shapes", "lint/fixing")}


def test_a_value_of_nccl_is_checked_by_one_function():
    assert readers("value_fault") == {f"tools/unhang/{name}.py" for name in ("lint/checks", "plan/nccl_known")}


def test_the_folder_of_runs_is_named_in_one_place():
    """The callback declares it as its option, of which Ansible reads the environment."""

    def says(tree: ast.Module) -> bool:
        return any(isinstance(node, ast.Constant) and node.value == "UNHANG_RUNS" for node in ast.walk(tree))

    assert [path for path, tree in trees().items() if says(tree)] == ["tools/unhang/run_folder.py"]
    assert readers("RUNS_ENV") == {f"tools/unhang/{name}.py" for name in ("run_folder", "ansible/playbook_command", "commands/playbook")}  # both hand it on


def test_a_named_tuple_of_the_node_is_built_by_keyword():
    """Two values may stand by position; a third could be taken for another."""
    node = {path: tree for path, tree in trees().items() if path.startswith(("module_utils", "library"))}
    classes = [one for tree in node.values() for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    named = {one.name for one in classes if any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in one.bases)}
    assert len(named) > 50
    calls = [(path, one) for path, tree in node.items() for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    assert [f"{path}:{one.lineno}" for path, one in calls if one.func.id in named and len(one.args) > 2] == []


def test_the_node_owns_the_commands_that_change_its_driver():
    """They run as root there: a plan and a role say what is wanted, and no line of a shell travels."""
    places = [*(HOME / "tools" / "unhang" / "plan").glob("*.py"), *(HOME / "plugins" / "filter").glob("*.py"), *(HOME / "roles" / "gpu_driver").rglob("*.yml")]
    found = [path.name for path in places if re.search(r"(?<![\w-])(rmmod|modprobe|systemctl)(?![\w-])", path.read_text(encoding="utf-8"))]
    assert found == []
    assert "commands" not in (HOME / "roles" / "gpu_driver" / "tasks" / "reload.yml").read_text().partition("register:")[0]

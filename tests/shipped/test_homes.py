"""One home for each thing: what reads links, YAML, pickles, the catalogue and the folder of runs;
and no name that nothing uses."""

from __future__ import annotations

import ast
import collections
import functools
import re
from pathlib import Path

from unhang.jobs.diagnose.meaning.rules.combining import RULES

HOME = Path(__file__).resolve().parents[2]
SOURCES = ("tools", "module_utils", "plugins", "library")
SCRIPTS = (".yml", ".yaml", ".sh", ".j2")
# Ansible, ClusterShell, pickle, urllib, hatchling, html.parser and templates find these by name.
CALLED_FROM_OUTSIDE = {
    "_proved",  # plugins/action/rollout_step.py: a value of its option `part`
    "summary_x",  # templates/smoke.html.j2
    "_fields_",  # ctypes reads it
    *("_supports_async", "v2_runner_on_start", "STATE_ID", "ROOTFS", "ModuleDocFragment"),
    *("SHELL_CLASS", "_build_cmd", "_handle_read", "_flush_read", "ev_timer"),
    *(
        "PackedProject",
        "PLUGIN_NAME",
        "initialize",
        "redirect_request",
        "find_class",
        "persistent_load",
        "handle_starttag",
        "handleError",
    ),
}
BY_PREFIX = ("visit_", "write_", "of_")  # methods for the kinds of a syntax tree


@functools.cache
def texts() -> dict[str, str]:
    paths = sorted(path for folder in SOURCES for path in (HOME / folder).rglob("*.py"))
    return {str(path.relative_to(HOME)): path.read_text(encoding="utf-8") for path in paths}


@functools.cache
def tree_of(path: str) -> ast.Module:
    return ast.parse(texts()[path])


def uses(node: ast.AST, names: tuple[str, ...]) -> bool:
    """Whether it uses one of the names, as a variable, an attribute or an import."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(one.name in names for one in node.names)
    return (isinstance(node, ast.Attribute) and node.attr in names) or (
        isinstance(node, ast.Name) and node.id in names
    )


def readers(*names: str) -> set[str]:
    """Files that use one of the names. Only those that mention it are parsed."""
    found = {path for path, text in texts().items() if any(name in text for name in names)}
    return {path for path in found if any(uses(node, names) for node in ast.walk(tree_of(path)))}


def defined(tree: ast.Module) -> set[str]:
    """Names of functions, classes and methods, and variables of the module or of a class; `_` and
    what is unpacked beside a wanted value are none."""
    found = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    bodies = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    assigned = [
        node
        for body in bodies
        for node in body.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
    ]
    targets = [
        target
        for node in assigned
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return found | {
        node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)
    }


def test_no_name_is_used_nowhere():
    tasks = [
        path.read_text(encoding="utf-8")
        for folder in ("roles", "playbooks")
        for path in (HOME / folder).rglob("*.yml")
    ]
    tasks += [rule.__name__ for rule in RULES]
    tables = HOME / "tools/unhang/jobs/catalogue/tables"
    tasks += [(tables / name).read_text() for name in ("launch_faults.yml", "lines.yml")]
    words = collections.Counter(
        word for text in [*texts().values(), *tasks] for word in re.findall(r"\w+", text)
    )
    defines = re.compile(
        r"(?:def|class) +(\w+)|^ *(\w[\w, ]*)\b[^=\n]* = |^ +(\w+): ", re.MULTILINE
    )
    lone = [
        path
        for path, text in texts().items()
        if any(
            words[word] == 1
            for found in defines.findall(text)
            for word in re.findall(r"\w+", " ".join(found))
        )
    ]
    once = {
        (path, name)
        for path in lone
        for name in defined(tree_of(path))
        if words[name] == 1 and not name.startswith("__")
    }
    assert (
        sorted(
            one
            for one in once
            if one[1] not in CALLED_FROM_OUTSIDE and not one[1].startswith(BY_PREFIX)
        )
        == []
    )


def test_a_module_of_the_node_follows_links_by_the_one_resolver():
    """os.path.realpath is used only for this machine's own tree; links of any other tree are
    followed by links.follow_links."""
    node = {
        path
        for path in readers("realpath", "follow_links")
        if path.startswith(("module_utils", "library"))
    }
    assert node == {
        f"module_utils/unhang_node/{name}.py"
        for name in ("base/root", "change/atomic_files", "base/untrusted_files")
    }


def test_pickles_are_read_in_one_place():
    """But answers of our own child, which multiprocessing packs (core/limits.py)."""
    assert readers("pickle", "pickletools") == {
        "module_utils/unhang_node/base/parse/plain_pickle.py"
    }
    assert readers("unpickle_plain") == {
        "module_utils/unhang_node/job/flights.py",
        *(
            f"tools/unhang/{name}.py"
            for name in ("jobs/diagnose/logs/flight_dumps", "smoke/flight_recorder")
        ),
    }


def test_the_catalogue_is_read_by_its_package():
    inside = {
        path
        for path in readers("folders_of", "load_yaml", "checked_file")
        if path.startswith("tools/unhang/")
    }
    others = {
        f"tools/unhang/{name}.py"
        for name in (
            "core/strict_yaml",
            "core/schemas/policy",
            "smoke/commands/smoke_expectations",
        )
    }
    # the inventory's policy as it is now
    others.add("tools/unhang/act/plan/later_waivers.py")
    # its own table, which test_activities reads by the package
    others.add("tools/unhang/core/verdict/activities.py")
    assert {
        path for path in inside if not path.startswith("tools/unhang/core/catalogue/")
    } <= others
    assert readers("safe_load", "SafeLoader", "CSafeLoader") <= {
        f"tools/unhang/{name}.py"
        for name in (
            "core/strict_yaml",
            "core/schemas/reading",
            "core/catalogue/own_tables",
            "jobs/lint/yaml_nodes",
        )
    }


def test_a_value_of_nccl_is_checked_by_one_function():
    assert readers("value_fault") == {
        f"tools/unhang/{name}.py"
        for name in ("jobs/lint/checks", "act/role_changes/nccl_setting_check")
    }


def test_the_folder_of_runs_is_named_in_one_place():
    """The callback declares it as its option, of which Ansible reads the environment."""

    mentioned = [path for path, text in texts().items() if "UNHANG_RUNS" in text]
    named = [
        path
        for path in mentioned
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and node.value == "UNHANG_RUNS"
    ]
    assert named == ["tools/unhang/core/run/run_folder.py"]
    assert readers("RUNS_ENV") == {
        f"tools/unhang/{name}.py"
        for name in (
            "core/run/run_folder",
            "core/ansible/playbook_command",
        )
    }  # both hand it on
    scripts = [
        HOME / "Makefile",
        *(
            path
            for top in ("roles", "playbooks", "tools", "awx")
            for path in (HOME / top).rglob("*")
            if path.suffix in SCRIPTS
        ),
    ]
    assert len(scripts) > 100
    assert [
        str(path.relative_to(HOME))
        for path in scripts
        if "UNHANG_RUNS" in path.read_text(encoding="utf-8")
    ] == []


def test_a_named_tuple_of_the_node_is_built_by_keyword():
    """Two values may be positional; a third could be confused with another."""
    node = {
        path: text for path, text in texts().items() if path.startswith(("module_utils", "library"))
    }
    named = {
        name
        for text in node.values()
        for name in re.findall(r"^class (\w+)\(NamedTuple\):", text, re.MULTILINE)
    }
    assert len(named) > 50
    building = re.compile(rf"\b({'|'.join(named)})\(")
    calls = [
        (path, one)
        for path, text in node.items()
        if building.search(text)
        for one in ast.walk(tree_of(path))
        if isinstance(one, ast.Call)
    ]
    assert [
        f"{path}:{one.lineno}"
        for path, one in calls
        if isinstance(one.func, ast.Name) and one.func.id in named and len(one.args) > 2
    ] == []


def test_messages_of_the_node_are_f_strings():
    """A template that is kept under a name is filled with format; a text in its place is an
    f-string."""
    node = [
        path
        for path, text in texts().items()
        if path.startswith(("module_utils", "library", "plugins")) and ".format(" in text
    ]
    calls = [
        (path, one)
        for path in node
        for one in ast.walk(tree_of(path))
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    ]
    assert len(calls) > 50
    assert [
        f"{path}:{one.lineno}"
        for path, one in calls
        if one.func.attr == "format" and isinstance(one.func.value, ast.Constant)
    ] == []


def test_the_node_owns_the_commands_that_change_its_driver():
    """They run as root there: a plan and a role say what is wanted, and no line of a shell
    travels."""
    places = [
        *(HOME / "tools" / "unhang" / "act" / "plan").glob("*.py"),
        *(HOME / "plugins" / "filter").glob("*.py"),
        *(HOME / "roles" / "gpu_driver").rglob("*.yml"),
    ]
    found = [
        path.name
        for path in places
        if re.search(
            r"(?<![\w-])(rmmod|modprobe|systemctl)(?![\w-])", path.read_text(encoding="utf-8")
        )
    ]
    assert found == []
    assert (
        "commands"
        not in (HOME / "roles" / "gpu_driver" / "tasks" / "reload.yml")
        .read_text()
        .partition("register:")[0]
    )

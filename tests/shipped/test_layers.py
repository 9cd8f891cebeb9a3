"""An import never points up. The order of the packages, from the bottom; packages on one line know
nothing of each other."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
CONTROLLER = """
    __init__ core.__init__ core.bounded_reads core.errors core.no_user_names core.printing core.quotes | core.secrets_in_text core.terminal | core.text core.strict_json
    | core.gpu_verbs core.junit core.labels core.nodeset core.strict_yaml core.redact core.json_text core.table
    | core.path_arguments core.project
    core.child_processes core.command_lines core.limits core.line_pieces core.taken_signals core.together core.list_arguments
    | core.signing | core.schemas | core.run | core.catalogue | core.verdict core.ansible | core.smoke_result | core.baselines core.commands
    | judge.__init__ judge.rules | judge.fleet | judge.triage judge.reference
    | jobs.__init__ jobs.flight jobs.job_files jobs.ras_counts | jobs.flight_steps | jobs.lint smoke audit.__init__ | jobs.diagnose audit.report
    | jobs.inspect audit.history audit.compare | jobs.watch audit.ways | jobs.commands audit.commands
    | act.__init__ act.gate act.role_changes | act.plan | act.rollout | act.commands | commands | cli | __main__
"""
NODE = """
    __init__ base | facts.__init__ facts.parse | facts.sections | facts.sources
    | change.__init__ change.atomic_files | change.journal | change.config | change.package change.boot change.gpu change.host | change.drain change.rollback
    | facts.merging facts.runtime_versions | facts.collect | facts.command | job
"""
# they import the core and the judge, and meet through documents alone
WINGS = ("jobs", "audit", "act", "smoke")
STANDS_ON = {"act": ("audit",)}
# what judges a running job and shows the answer
JUDGES = """
    core.verdict jobs.inspect.answer jobs.inspect.inspecting jobs.inspect.inspection
    jobs.inspect.rendering jobs.inspect.slow jobs.inspect.slow_gpus jobs.watch.when_to_look
"""
# only a module that has one of these words is walked to its last expression
STARTS = re.compile(r"subprocess|\bos\b")


@functools.cache
def modules(top: Path) -> dict[str, ast.Module]:
    """Dotted name within the package -> its syntax tree."""
    names = {
        path: ".".join(path.relative_to(top).with_suffix("").parts)
        for path in sorted(top.rglob("*.py"))
    }
    return {name: ast.parse(path.read_text(encoding="utf-8")) for path, name in names.items()}


def statements(block: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, those inside of others too. An import is one, so that no expression need be
    walked."""
    for node in block:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            yield from statements(inner if isinstance(inner, list) else ())


@functools.cache
def all_imports(name: str, tree: ast.Module, package: str) -> set[str]:
    """What a module imports, as dotted names; relative imports resolved."""
    found: set[str] = set()
    for node in statements(tree.body):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [package, *name.split(".")][: -node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{source}.{one.name}" for one in node.names}
    return found


def imports(name: str, tree: ast.Module, package: str) -> set[str]:
    """What a module imports from its own package, as dotted names within it."""
    found = all_imports(name, tree, package)
    return {
        one.partition(f"{package}.")[2]
        for one in found
        if f".{one}.".startswith((f".{package}.", f".ansible.module_utils.{package}."))
    }


@pytest.mark.parametrize(
    ("top", "order"),
    [(HOME / "tools" / "unhang", CONTROLLER), (HOME / "module_utils" / "unhang_node", NODE)],
    ids=["controller", "node"],
)
def test_no_import_points_up(top, order):
    layers = {name: height for height, line in enumerate(order.split("|")) for name in line.split()}

    @functools.cache
    def part(module: str) -> str:
        """The package of a module as the order names it."""
        known = [name for name in layers if f"{module}.".startswith(f"{name}.")]
        return (
            max(known, key=len)
            if known
            else "change.__init__"
            if module == "change"
            else "__init__"
        )

    trees = modules(top)
    unplaced = {name for name in trees if name != "__init__" and part(name) == "__init__"}
    pairs = {
        (name, other)
        for name, tree in trees.items()
        for other in imports(name, tree, top.name)
        if part(other) != part(name)
    }
    upward = {
        f"{name} -> {other}" for name, other in pairs if layers[part(other)] >= layers[part(name)]
    }
    assert unplaced == set(), "say where it belongs"
    assert "\n".join(sorted(upward)) == ""


def test_a_wing_imports_the_core_and_the_judge_and_no_other_wing():
    trees = modules(HOME / "tools" / "unhang")
    pairs = {
        (name, other) for name, tree in trees.items() for other in imports(name, tree, "unhang")
    }
    pairs = {
        (name, other, name.partition(".")[0], other.partition(".")[0]) for name, other in pairs
    }
    across = [
        (name, other)
        for name, other, here, there in pairs
        if {here, there} <= {*WINGS} and there not in (here, *STANDS_ON.get(here, ()))
    ]
    assert [f"{name} -> {other}" for name, other in sorted(across)] == []


def opens_a_mapping(node: ast.AST) -> bool:
    """By a key in the text, and not one of the module's own constants."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "get" and is_text(node.args[:1])
    return (
        isinstance(node, ast.Subscript)
        and is_text([node.slice])
        and not (isinstance(node.value, ast.Name) and node.value.id.strip("_").isupper())
    )


def is_text(nodes: list[ast.expr]) -> bool:
    return any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in nodes)


def test_who_judges_a_running_job_takes_values_and_opens_no_mapping():
    trees = modules(HOME / "tools" / "unhang")
    assert [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        if name.startswith((*JUDGES.split(),))
        for node in ast.walk(tree)
        if opens_a_mapping(node)
    ] == []


def test_what_plugins_use_imports_no_ansible():
    trees = modules(HOME / "tools" / "unhang")
    assert [
        name
        for name, tree in trees.items()
        if any(f"{one}.".startswith("ansible.") for one in all_imports(name, tree, "unhang"))
    ] == []


@pytest.mark.parametrize(("own", "other"), [("apt", "dnf"), ("dnf", "apt")])
def test_a_package_manager_knows_nothing_of_the_other(own, other):
    trees = {
        name: tree
        for name, tree in modules(HOME / "module_utils" / "unhang_node").items()
        if name.startswith(f"change.package.{own}")
    }
    assert len(trees) > 5
    assert [
        name
        for name, tree in trees.items()
        for one in imports(name, tree, "unhang_node")
        if f"{one}.".startswith(f"change.package.{other}.")
    ] == []


def test_one_module_of_the_node_starts_programs():
    top = HOME / "module_utils" / "unhang_node"
    may_start = {
        name: tree
        for name, tree in modules(top).items()
        if STARTS.search((top / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
    }
    starts = {
        name
        for name, tree in may_start.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(one.name == "subprocess" for one in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "subprocess")
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr.startswith(("system", "popen", "spawn", "exec"))
        )
    }
    assert starts == {"base.process"}

"""Builds dist/unhang-quick.pyz: the collector, and the rules of severity error and above compiled
beforehand, in one file for Python 3.8 or newer.

    python tools/collector/quick.py [TARGET]

For prologs and health checks of Slurm and Kubernetes, which have a second before a job starts. The
file contains the modules of tools/unhang/judge/rules, so no rule is written twice; Jinja and
MarkupSafe, which parse the rules, as Python; and the schemas as JSON. Syntax that Python 3.8 lacks
is rewritten.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pynvml
from jinja2 import nodes

from unhang.core.gpu_verbs import TABLES as GPU_TABLES
from unhang.core.run.documents import STATUSES
from unhang.core.schemas.reading import read_schema
from unhang.core.schemas.shapes import Shape
from unhang.judge.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.judge.rules.rules import Rule

# the folder of the collector is no installed package
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from collector.build import (
    HERE,
    MAINS,
    PROJECT,
    build_as_asked,
    compiled,
    packages,
    packed_sources,
    started_by,
    trim_pynvml,
    used_names,
    write_archive,
)

PARTS = HERE / "quick_parts"
RULES = (
    "checks",
    "choosing",
    "closures",
    "costs",
    "distances",
    "expression",
    "expression_filters",
    "expression_tests",
    "faulty_gpus",
    "functions",
    "last_run",
    "like_things",
    "node_rules",
    "rising_counters",
    "rules",
    "special_filters",
    "syntax",
    "unreadable",
    "values",
)
SEVERITIES = ("critical", "error")
PACKAGES = {"jinja2": "jinja2", "markupsafe": "markupsafe"}  # and their distributions
ROW_KEYS = (
    "id",
    "title",
    "scope",
    "severity",
    "applies",
    "for_each",
    "when",
    "expected",
    "found",
    "workaround",
)
SCHEMAS = ("node-facts-1", "policy-1")
ALWAYS = "admission-"  # changes since admission are checked at any severity


def build(target: Path, pythons: Iterable[str] = ()) -> Path:
    """Writes the .pyz to `target`, atomically. pythons: further interpreters to compile for."""
    sources = {
        **packed_sources("unhang_node.facts.command"),
        **packed_sources("unhang_node.base.versions.compare"),
        **rules_sources(),
    }
    sources |= {
        f"unhang_quick/{name}.py": (PARTS / f"{name}.py").read_text("utf-8")
        for name in ("command", "judging")
    }
    sources["unhang_quick/host_programs.py"] = (
        PROJECT / "tools" / "unhang" / "act" / "gate" / "host_programs.py"
    ).read_text("utf-8")
    sources |= {
        "unhang_quick/__init__.py": "",
        "unhang_quick/data.py": data_source(load_catalogue()),
    }
    sources["pynvml.py"] = trim_pynvml(
        Path(pynvml.__file__).read_text("utf-8"), used_names("\n".join(sources.values()))
    )
    others = packages(PACKAGES)
    files = {**others, **{name: text.encode("utf-8") for name, text in sources.items()}}
    sources |= {
        name: content.decode("utf-8") for name, content in others.items() if name.endswith(".py")
    }
    for python in [sys.executable, *pythons]:
        files.update(compiled(python, sources))
    return write_archive(
        target, {**files, **started_by(MAINS / "quick.py")}, (PARTS / "head.sh").read_bytes()
    )


def chosen_rules(catalogue: Catalogue) -> list[Rule]:
    """Rules over one node of severity error and above, and those of the admission. What could not
    be read stays unknown here: a prolog in want of descriptors must not drain its node."""
    return [
        rule
        for rule in catalogue.rules
        if rule.scope == "node"
        and rule.reads_facts
        and not (rule.for_each and "unreadable" in rule.for_each.uses)
        and (rule.severity in SEVERITIES or rule.id.startswith(ALWAYS))
    ]


def rules_sources() -> dict[str, str]:
    """The rules' modules as Python 3.8 reads them."""
    unhang = PROJECT / "tools" / "unhang"
    found = {
        f"unhang/judge/rules/{name}.py": for_python_3_8(
            (unhang / "judge" / "rules" / f"{name}.py").read_text("utf-8")
        )
        for name in RULES
    }
    for name in ("errors.py", "quotes.py", "secrets_in_text.py", "text.py", "gpu_verbs.py"):
        found[f"unhang/core/{name}"] = for_python_3_8((unhang / "core" / name).read_text("utf-8"))
    found |= {
        f"unhang/{folder}__init__.py": ""
        for folder in (
            *("", "judge/", "judge/rules/"),
            *("core/", "core/run/", "core/schemas/"),
        )
    }
    found["unhang/core/run/documents.py"] = f"STATUSES = {STATUSES!r}\n\n" + (
        PARTS / "documents.py"
    ).read_text("utf-8")
    found["unhang/core/schemas/shapes.py"] = for_python_3_8(
        (unhang / "core" / "schemas" / "shapes.py").read_text("utf-8")
    )
    found["unhang/core/schemas/reading.py"] = (
        for_python_3_8((unhang / "core" / "schemas" / "reading.py").read_text("utf-8"))
        + "import json\n\n\ndef read_schema(name):\n    return json.loads(TEXTS[name])\n\n\n"
        + f"TEXTS = { ({name: json.dumps(read_schema(name)) for name in SCHEMAS})!r}\n"
    )
    return found


def for_python_3_8(text: str) -> str:
    """The same module without what Python 3.8 lacks: str.removeprefix, zip's strict,
    functools.cache, generic aliases of types."""
    return ast.unparse(ast.fix_missing_locations(_Older().visit(ast.parse(text)))) + "\n"


class _Older(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Aliases such as Run = Callable[[World], Any] are in annotations alone, which are never
        evaluated."""
        self.generic_visit(node)
        for one in node.body:
            if (
                isinstance(one, ast.Assign)
                and isinstance(one.value, ast.Subscript)
                and _head(one.value) in ("Callable", "tuple", "list", "dict", "Mapping")
            ):
                one.value = ast.Name("object", ast.Load())
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """functools.cache."""
        others = [one for one in node.names if one.name != "cache"]
        if node.module == "functools" and len(others) < len(node.names):
            kept = [ast.ImportFrom("functools", others, 0)] if others else []
            return [
                *kept,
                *ast.parse("from functools import lru_cache\ncache = lru_cache(maxsize=None)").body,
            ]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """removeprefix, and zip's strict: both lists of a zip come out of one pass."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "removeprefix":
            shorten = ast.parse(
                "(lambda text, prefix: text[len(prefix):] if text.startswith(prefix) else text)",
                mode="eval",
            ).body
            return ast.Call(shorten, [node.func.value, *node.args], [])
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = [one for one in node.keywords if one.arg != "strict"]
        return node


def _head(node: ast.Subscript) -> str | None:
    return node.value.id if isinstance(node.value, ast.Name) else None


def data_source(catalogue: Catalogue) -> str:
    """The module unhang_quick.data: rules, and the tables that they read."""
    rules = chosen_rules(catalogue)
    trees = [
        expression.tree()
        for rule in rules
        for expression in (
            rule.severity_of,
            rule.applies,
            rule.for_each,
            rule.when,
            *rule.texts.values(),
        )
        if expression is not None
    ]
    rows = [
        {**{key: rule.row[key] for key in ROW_KEYS if key in rule.row}, "remedy": _remedy(rule.row)}
        for rule in rules
    ]
    values = {
        "RULE_IDS": [rule.id for rule in catalogue.rules],
        "RULES": rows,
        "TABLES": {
            name: [
                dict(catalogue.tables[name]),
                shape_of(getattr(catalogue.tables[name], "shape", None)),
            ]
            for name in sorted(tables_in(trees))
        },
    }
    return f"import json\n\nglobals().update(json.loads({json.dumps(values)!r}))\n"


def _remedy(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row["remedy"][key] for key in ("role", "person") if key in row["remedy"]}


def shape_of(shape: Shape | None) -> dict[str, Any] | None:
    """A Shape as JSON, without its empty fields."""
    if shape is None:
        return None
    marks = {
        "version": shape.version,
        "values": list(shape.values),
        "sample": shape.sample,
        "counter": shape.counter,
        "identity": shape.identity,
    }
    below = {
        "fields": {name: shape_of(one) for name, one in shape.fields.items()},
        "item": shape_of(shape.item),
    }
    return {
        "kind": shape.kind,
        **{name: value for name, value in {**below, **marks}.items() if value},
    }


# tables behind the lists that are worked out of the facts
TABLES_OF = {
    "unlike": ("like_things", "like_units", "gpu_models"),
    "own": ("identities",),
    "rising": ("counter_rates",),
    "faulty": GPU_TABLES,
}


def tables_in(trees: Iterable[nodes.Node]) -> set[str]:
    """Names of the tables that syntax trees read."""
    trees = list(trees)
    reads = (node for tree in trees for node in (tree, *tree.find_all(nodes.Getattr)))
    names = (node for tree in trees for node in (tree, *tree.find_all(nodes.Name)))
    worked_out = {
        table
        for node in names
        if isinstance(node, nodes.Name)
        for table in TABLES_OF.get(node.name, ())
    }
    return worked_out | {
        node.attr
        for node in reads
        if isinstance(node, nodes.Getattr)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "tables"
    }


if __name__ == "__main__":
    build_as_asked(build, "quick check", "unhang-quick.pyz")

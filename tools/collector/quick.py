"""Builds dist/unhang-quick.pyz: the collector, and the rules of severity error and above compiled beforehand, in one file for Python 3.8 or newer.

    python tools/collector/quick.py [TARGET]

The file contains the judge's own modules, so it gives the judge's own verdicts, and no rule is written twice. Their dependencies are replaced: Jinja's parser
by the syntax trees that it made here, schemas in YAML by the same schemas as JSON. Syntax that Python 3.8 lacks is rewritten.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pynvml
from jinja2 import nodes
from jinja2.parser import Parser

from unhang.audit.judge.compiled_catalogue import Catalogue, load_catalogue
from unhang.audit.judge.documents import STATUSES
from unhang.audit.judge.rules import Rule
from unhang.schemas.shapes import Shape, read_schema

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder of the collector is no installed package
from collector.build import HERE, PROJECT, build_as_asked, compiled, packed_sources, trim_pynvml, used_names, write_archive

PARTS = HERE / "quick_parts"
JUDGE = (
    "checks",
    "choosing",
    "closures",
    "expression",
    "expression_filters",
    "expression_tests",
    "functions",
    "node_rules",
    "rules",
    "special_filters",
    "syntax",
    "values",
)
SEVERITIES = ("critical", "error")
ROW_KEYS = ("id", "title", "scope", "severity", "applies", "for_each", "when", "expected", "found", "workaround")
SCHEMAS = ("node-facts-1", "policy-1")
ALWAYS = "admission-"  # changes since admission are checked at any severity


def build(target: Path, pythons: Iterable[str] = ()) -> Path:
    """Writes the .pyz to `target`, atomically. pythons: further interpreters to compile for."""
    sources = {**packed_sources("unhang_node.command"), **packed_sources("unhang_node.versions.compare"), **judge_sources()}
    sources |= {f"unhang_quick/{name}.py": (PARTS / f"{name}.py").read_text("utf-8") for name in ("command", "judging")}
    sources["unhang_quick/host_programs.py"] = (PROJECT / "tools" / "unhang" / "repair" / "gate" / "host_programs.py").read_text("utf-8")
    sources |= {"unhang_quick/__init__.py": "", "unhang_quick/data.py": data_source(load_catalogue()), "jinja2.py": (PARTS / "jinja2.py").read_text("utf-8")}
    sources["pynvml.py"] = trim_pynvml(Path(pynvml.__file__).read_text("utf-8"), used_names("\n".join(sources.values())))
    files = {name: text.encode("utf-8") for name, text in sources.items()}
    for python in [sys.executable, *pythons]:
        files.update(compiled(python, sources))
    files["__main__.py"] = entry_source().encode("utf-8")
    return write_archive(target, files, (PARTS / "head.sh").read_bytes())


def entry_source() -> str:
    """The collector's entry, which starts another command; a Python that is too old must not drain a node."""
    text = (HERE / "__main__.py").read_text("utf-8")
    for_scheduler = 'any(word.split("=")[0] == "--as" for word in sys.argv) and not {"kubernetes", "--as=kubernetes", "--require-proof"} & set(sys.argv)'
    for old, new in (
        ("unhang_node.command", "unhang_quick.command"),
        ("unhang-collect", "unhang-quick"),
        ("NOT_MADE = 2", f"NOT_MADE = 0 if {for_scheduler} else 2"),
    ):
        if text.count(old) < 1:
            raise SystemExit(f"{HERE / '__main__.py'}: expected {old}, found none; tools/collector/quick.py replaces it")
        text = text.replace(old, new)
    return text


def chosen_rules(catalogue: Catalogue) -> list[Rule]:
    """Rules over one node of severity error and above, and those of the admission."""
    return [rule for rule in catalogue.rules if rule.scope == "node" and rule.reads_facts and (rule.severity in SEVERITIES or rule.id.startswith(ALWAYS))]


def judge_sources() -> dict[str, str]:
    """The judge's modules as Python 3.8 reads them."""
    unhang = PROJECT / "tools" / "unhang"
    found = {f"unhang/audit/judge/{name}.py": for_python_3_8((unhang / "audit" / "judge" / f"{name}.py").read_text("utf-8")) for name in JUDGE}
    found |= dict.fromkeys(("unhang/__init__.py", "unhang/audit/__init__.py", "unhang/audit/judge/__init__.py", "unhang/schemas/__init__.py"), "")
    found["unhang/audit/judge/documents.py"] = f"STATUSES = {STATUSES!r}\n"
    found["unhang/schemas/shapes.py"] = with_packed_schemas(for_python_3_8((unhang / "schemas" / "shapes.py").read_text("utf-8")))
    found["unhang/schemas/packed.py"] = f"TEXTS = { ({name: json.dumps(read_schema(name)) for name in SCHEMAS})!r}\n"
    return found


def with_packed_schemas(text: str) -> str:
    """shapes.py, changed to read the schemas from this file."""
    tree = ast.parse(text)
    reads = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "read_schema"]
    if len(reads) != 1:
        raise SystemExit("shapes.py: expected one function read_schema, found another number; tools/collector/quick.py replaces it")
    reads[0].body = ast.parse("import json\nfrom unhang.schemas import packed\nreturn json.loads(packed.TEXTS[name])").body
    tree.body = [node for node in tree.body if not (isinstance(node, ast.Import) and node.names[0].name == "yaml")]
    return ast.unparse(tree) + "\n"


def for_python_3_8(text: str) -> str:
    """The same module without what Python 3.8 lacks: str.removeprefix, zip's strict, functools.cache, generic aliases of types."""
    return ast.unparse(ast.fix_missing_locations(_Older().visit(ast.parse(text)))) + "\n"


class _Older(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Aliases such as Run = Callable[[World], Any] stand in annotations alone, which are never evaluated."""
        self.generic_visit(node)
        for one in node.body:
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Subscript) and _head(one.value) in ("Callable", "tuple", "list", "dict", "Mapping"):
                one.value = ast.Name("object", ast.Load())
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """functools.cache."""
        others = [one for one in node.names if one.name != "cache"]
        if node.module == "functools" and len(others) < len(node.names):
            kept = [ast.ImportFrom("functools", others, 0)] if others else []
            return [*kept, *ast.parse("from functools import lru_cache\ncache = lru_cache(maxsize=None)").body]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """removeprefix, and zip's strict: both lists of a zip come out of one pass."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "removeprefix":
            shorten = ast.parse("(lambda text, prefix: text[len(prefix):] if text.startswith(prefix) else text)", mode="eval").body
            return ast.Call(shorten, [node.func.value, *node.args], [])
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = [one for one in node.keywords if one.arg != "strict"]
        return node


def _head(node: ast.Subscript) -> str | None:
    return node.value.id if isinstance(node.value, ast.Name) else None


def data_source(catalogue: Catalogue) -> str:
    """The module unhang_quick.data: rules, their syntax trees, and the tables that they read."""
    rules = chosen_rules(catalogue)
    expressions: dict[str, Any] = {}
    templates: dict[str, Any] = {}
    for rule in rules:
        for field in ("applies", "for_each", "when"):
            if field in rule.row:
                text = str(rule.row[field]).lower() if isinstance(rule.row[field], bool) else rule.row[field]
                expressions[text] = Parser(_ENVIRONMENT, text, state="variable").parse_expression()
        for text in _texts(rule.row):
            templates[text] = _ENVIRONMENT.parse(text)
    trees = [*expressions.values(), *templates.values()]
    rows = [{**{key: rule.row[key] for key in ROW_KEYS if key in rule.row}, "remedy": _remedy(rule.row)} for rule in rules]
    values = {
        "NODE_NAMES": sorted(name for name in dir(nodes) if isinstance(getattr(nodes, name), type) and name[0].isupper()),
        "RULE_IDS": [rule.id for rule in catalogue.rules],
        "RULES": rows,
        "EXPRESSIONS": {text: packed(tree) for text, tree in expressions.items()},
        "TEMPLATES": {text: packed(tree) for text, tree in templates.items()},
        "TABLES": {name: [dict(catalogue.tables[name]), shape_of(getattr(catalogue.tables[name], "shape", None))] for name in sorted(tables_in(trees))},
    }
    return f"import json\n\nglobals().update(json.loads({json.dumps(values)!r}))\n"


_ENVIRONMENT = jinja2.Environment(autoescape=False)  # noqa: S701 - parses only, as the judge's own


def _texts(row: Mapping[str, Any]) -> list[str]:
    return [
        row["expected"],
        row["found"],
        *([row["remedy"]["person"]] if "person" in row["remedy"] else []),
        *([row["workaround"]["what"]] if "workaround" in row else []),
    ]


def _remedy(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row["remedy"][key] for key in ("role", "person") if key in row["remedy"]}


def packed(value: Any) -> list[Any]:
    """A syntax tree as lists: [name, {field: value}] of a node, ["[", [...]] of a list, ["=", value] of anything else."""
    if isinstance(value, nodes.Node):
        names = [name for name in value.fields if name != "ctx"] + (["operator"] if isinstance(value, (nodes.BinExpr, nodes.UnaryExpr)) else [])
        return [type(value).__name__, {name: packed(getattr(value, name)) for name in names}]
    if isinstance(value, (list, tuple)):
        return ["[", [packed(one) for one in value]]
    return ["=", value]


def shape_of(shape: Shape | None) -> dict[str, Any] | None:
    """A Shape as JSON, without its empty fields."""
    if shape is None:
        return None
    marks = {"version": shape.version, "values": list(shape.values), "sample": shape.sample, "counter": shape.counter, "identity": shape.identity}
    below = {"fields": {name: shape_of(one) for name, one in shape.fields.items()}, "item": shape_of(shape.item)}
    return {"kind": shape.kind, **{name: value for name, value in {**below, **marks}.items() if value}}


def tables_in(trees: Iterable[nodes.Node]) -> set[str]:
    """Names of the tables that syntax trees read."""
    reads = (node for tree in trees for node in (tree, *tree.find_all(nodes.Getattr)))
    return {node.attr for node in reads if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "tables"}


if __name__ == "__main__":
    build_as_asked(build, "quick check", "unhang-quick.pyz")

"""Builds dist/unhang-offline.pyz: diagnose, lint and explain in one file for Python 3.9 and newer, with no compiled package in it.

    python tools/collector/offline.py [TARGET]

For login nodes: it installs nothing and contacts neither nodes nor the network. It contains the commands' own modules and the whole catalogue, as data without
need of a YAML parser; ClusterShell, Jinja, MarkupSafe, PyYAML and rich as Python. Compiled packages are replaced: msgspec by plain objects for the
catalogue's own examples; jsonschema_rs is not needed, because the build checked everything. At its first start the file unpacks itself into the user's cache.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import pprint
import sys
from collections.abc import Iterable
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from unhang.commands import COMMANDS, GROUPS
from unhang.core.run.documents import STATUSES
from unhang.core.run.findings import SEVERITIES, hosts_of
from unhang.core.schemas.shapes import SCHEMAS, read_schema
from unhang.core.strict_yaml import load_yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder of the collector is no installed package
from collector.build import HERE, PROJECT, build_as_asked, imported_names, packages, write_archive

PARTS = HERE / "offline_parts"
OFFLINE = ("diagnose", "lint", "explain")
ROOTS = {"unhang": PROJECT / "tools" / "unhang", "unhang_node": PROJECT / "module_utils" / "unhang_node"}
PACKAGES = {"ClusterShell": "clustershell", "jinja2": "jinja2", "markupsafe": "markupsafe", "rich": "rich", "yaml": "pyyaml"}  # and their distributions
INSIDE = "home"  # the folder in the archive that is unpacked


def build(target: Path, _pythons: Iterable[str] = ()) -> Path:
    """Writes the .pyz to `target`, atomically. It contains no compiled code, so it needs no other interpreter."""
    files = {**own_sources(), **own_data(), **packed_catalogue(), **packages(PACKAGES)}
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    inside = {f"{INSIDE}/{name}": content for name, content in files.items()}
    entry = (PARTS / "entry.py").read_text("utf-8").replace("@DIGEST@", digest)
    return write_archive(target, {**inside, "__main__.py": entry.encode("utf-8")})


def own_sources() -> dict[str, bytes]:
    """The modules that the commands import, as Python 3.9 reads them, and those that stand for others."""
    texts = {name: for_python_3_9(text) for name, text in modules(["unhang.cli", *(f"unhang.commands.{name}" for name in OFFLINE)]).items()}
    kept = {name: COMMANDS[name] for name in OFFLINE}
    names = f"COMMANDS = {pprint.pformat(kept, sort_dicts=False)}\nGROUPS = {GROUPS!r}\n"
    texts["unhang/commands/__init__.py"] = f"{names}HIDDEN = SHORT_NAMES = {{}}\n"
    texts["unhang/core/run/documents.py"] = f"STATUSES = {STATUSES!r}\n\n" + (PARTS / "documents.py").read_text("utf-8")
    shown = f"SEVERITIES = {SEVERITIES!r}\n\n\n{inspect.getsource(hosts_of)}"  # without the readers, which need msgspec
    texts["unhang/core/run/findings.py"] = f"from __future__ import annotations\n\n{shown}"
    unchecked = "\n\ndef check_schema(document, schema):\n    return iter(())  # the build checked everything\n"
    texts["unhang/core/schemas/check.py"] = texts["unhang/core/schemas/check.py"].replace("import jsonschema_rs\n", "") + unchecked
    texts["unhang_packed.py"] = (PARTS / "packed.py").read_text("utf-8")
    texts["unhang/core/strict_yaml.py"] += (
        "\nfrom unhang_packed import with_packed_catalogue\nload_yaml = with_packed_catalogue(load_yaml, Path(__file__).parents[1])\n"
    )
    texts["unhang/core/kept_files.py"] += "\n\ndef folder():\n    return None  # what this file is unpacked into is its cache\n"
    texts["unhang/core/schemas/shapes.py"] += "\nfrom unhang_packed import packed_schemas\nread_schema = packed_schemas(SCHEMAS)\n"
    return {name: text.encode("utf-8") for name, text in texts.items()}


def modules(entries: list[str]) -> dict[str, str]:
    """{path: text} of the project's modules that these import, directly or through others, anywhere in a file."""
    found: dict[str, str] = {}
    todo = list(entries)
    while todo:
        name = todo.pop()
        top, _, below = name.partition(".")
        path = _file(ROOTS[top], below) if top in ROOTS else None
        if path is None:
            continue
        place = f"{top}/{path.relative_to(ROOTS[top]).as_posix()}"
        if place not in found:
            found[place] = path.read_text("utf-8")
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            todo += [package, *imported_names(ast.parse(found[place]), package)]
    return found


def _file(root: Path, name: str) -> Path | None:
    place = root / name.replace(".", "/")
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file() and (name or path.name == "__init__.py")), None)


def for_python_3_9(text: str) -> str:
    """The same module without features that Python 3.9 lacks; a module that uses none of them stays unchanged."""
    tree = ast.parse(text)
    before = ast.dump(tree)
    tree = ast.fix_missing_locations(_Older().visit(tree))
    if ast.dump(tree) == before:
        return text
    return ast.unparse(ast.fix_missing_locations(_Starred().visit(tree))) + "\n"


class _Older(ast.NodeTransformer):
    """Names and arguments that came after Python 3.9."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """datetime.UTC, itertools.pairwise, and the parts of re."""
        for module, name, older in _LATER:
            found = next((one for one in node.names if node.module == module and one.name == name), None)
            if found is not None:
                rest = [one for one in node.names if one is not found]
                here = ast.parse(older.replace("@", found.asname or found.name)).body
                return [*([self.visit_ImportFrom(ast.ImportFrom(module, rest, 0))] if rest else []), *here]  # type: ignore[list-item]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """The same, named with their modules."""
        self.generic_visit(node)
        named = f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else ""
        older = _LATER_NAMES.get(named)
        return ast.parse(older, mode="eval").body if older else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """isinstance(value, list | tuple), zip's strict (both lists of a zip come out of one pass), and format_exception of an exception alone."""
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("isinstance", "issubclass") and isinstance(node.args[1], ast.BinOp):
            node.args[1] = ast.Tuple(list(_members(node.args[1])), ast.Load())
        if name == "zip":
            node.keywords = [one for one in node.keywords if one.arg != "strict"]
        if name == "format_exception" and len(node.args) == 1:
            problem = ast.unparse(node.args[0])
            node.args = [ast.parse(one, mode="eval").body for one in (f"type({problem})", problem, f"{problem}.__traceback__")]
        return node


class _Starred(ast.NodeTransformer):
    """What ast.unparse writes as Python 3.11 reads it: rows[*path, key], in the source rows[(*path, key)]."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """The index as a call."""
        self.generic_visit(node)
        if isinstance(node.slice, ast.Tuple) and any(isinstance(one, ast.Starred) for one in node.slice.elts):
            node.slice = ast.Call(ast.Name("tuple", ast.Load()), [ast.List(node.slice.elts, ast.Load())], [])
        return node


_LATER_NAMES = {
    "datetime.UTC": "datetime.timezone.utc",
    "itertools.pairwise": "(lambda rows: (lambda all: zip(all, all[1:]))(list(rows)))",
    "constants.POSSESSIVE_REPEAT": "None",
}
_LATER = (
    ("datetime", "UTC", "from datetime import timezone\n@ = timezone.utc"),
    ("itertools", "pairwise", "def @(rows):\n    rows = list(rows)\n    return zip(rows, rows[1:])"),
    ("re", "_constants", "import sre_constants as @"),
    ("re", "_parser", "import sre_parse as @"),
)


def _members(node: ast.expr) -> Iterable[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from _members(node.left)
        yield from _members(node.right)
    else:
        yield node


def own_data() -> dict[str, bytes]:
    """JSON files that modules read from their own folder, such as the words of solved logs."""
    return {f"unhang/{path.relative_to(ROOTS['unhang']).as_posix()}": path.read_bytes() for path in sorted(ROOTS["unhang"].rglob("*.json"))}


def packed_catalogue() -> dict[str, bytes]:
    """The catalogue's files and the schemas, and beside each the same as JSON, which is read in a hundredth of the time."""
    files: dict[str, bytes] = {}
    for path in sorted((ROOTS["unhang"] / "catalogue").rglob("*.yml")):
        place = f"unhang/{path.relative_to(ROOTS['unhang']).as_posix()}"
        content = load_yaml(path)[0]
        _refuse_later_patterns(path, content)
        files |= {place: path.read_bytes(), f"{place}.json": _json(content)}
    names = [path.stem for path in SCHEMAS.glob("*.yaml")]
    return files | {f"unhang/core/schemas/{name}.json": _json(read_schema(name)) for name in names}


def _refuse_later_patterns(path: Path, content: Any) -> None:
    """Possessive repeats and atomic groups came with Python 3.11. Raises SystemExit."""
    for row in content.get("signatures", ()):
        parsed = repr(_parser.parse(row["pattern"]))
        if "POSSESSIVE" in parsed or "ATOMIC" in parsed:
            raise SystemExit(f"{path}: {row['id']}: expected a pattern that Python 3.9 reads too, found a possessive repeat or an atomic group")


def _json(content: Any) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    if json.loads(text) != content:
        raise SystemExit("expected content that JSON can hold, found something else; tools/collector/offline.py packs the catalogue as JSON")
    return text.encode("utf-8")


if __name__ == "__main__":
    build_as_asked(build, "program for login nodes", "unhang-offline.pyz")

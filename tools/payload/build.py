"""Assembles the payloads of the smoke test and of the burn-in in roles/smoke_test/files from the modules in parts/. Same parts, same bytes.

    python tools/payload/build.py [--check] [TARGET]

On a node a payload is one file that can be copied, piped and read; here it is one module per concern, and both payloads share parts. A payload is the
sequence of all parts that its last part needs: each part once, after the parts from which it imports, unchanged line for line, so that a traceback from a
node shows real lines below the part's heading. Imports of the standard library go to the top; imports between parts are removed, which is right only under the
rules that are checked here:

    a part imports from another with `from .other import name, name`, at its top, under the same name; no circles
    a top-level name is defined in one part only, and no other part imports something else under that name
    torch and what needs it is imported inside functions, so that the agent starts without it

docs/decisions/0008 gives the reasons.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PARTS = HERE / "parts"
FILES = PROJECT / "roles" / "smoke_test" / "files"
LAST, BURN_IN = "main", "burn_main"
TARGETS = {LAST: FILES / "unhang_smoke.py", BURN_IN: FILES / "unhang_burn_in.py"}  # by the last part of each payload
OLDEST_PYTHON = (3, 8)
WIDTH = 150
NOTE = "Assembled by tools/payload/build.py from tools/payload/parts: change it there."


class Unsound(Exception):
    """The parts cannot be assembled; the text names the part and the rule that it breaks."""


@dataclass(frozen=True)
class Part:
    """One module. heading: its docstring; hoisted: imports of the standard library; needs: names by part; names: what it defines; text: the rest."""

    name: str
    heading: str
    hoisted: frozenset[str]
    needs: dict[str, tuple[str, ...]]
    names: tuple[str, ...]
    text: str


def read_part(name: str, source: str) -> Part:
    """Raises Unsound."""
    tree = ast.parse(source, feature_version=OLDEST_PYTHON)
    docstring = ast.get_docstring(tree)
    if not docstring:
        raise Unsound(f"{name}: expected a docstring that says what it is for")
    imports = [node for node in tree.body[1:] if isinstance(node, (ast.Import, ast.ImportFrom))]
    rest = tree.body[1 + len(imports) :]
    if tree.body[1 : 1 + len(imports)] != imports or not rest:
        raise Unsound(f"{name}: expected all imports at its top, and something after them")
    for node in ast.walk(ast.Module(body=rest, type_ignores=[])):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise Unsound(f"{name}: expected imports from other parts at its top, found one in line {node.lineno}")
    hoisted, needs = _imports(name, imports)
    lines = source.splitlines()
    start = imports[-1].end_lineno if imports else tree.body[0].end_lineno
    names = tuple(defined for node in rest for defined in _defined(node))
    return Part(name, docstring.splitlines()[0].rstrip("."), hoisted, needs, names, "\n".join(lines[start:]).strip("\n"))


def _imports(name: str, imports: list[ast.Import | ast.ImportFrom]) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    hoisted, needs = set(), {}
    for node in imports:
        if any(alias.asname or alias.name == "*" for alias in node.names):
            raise Unsound(f"{name}: expected imports under their own names, found {ast.unparse(node)}")
        if isinstance(node, ast.ImportFrom) and node.level:
            if node.level != 1 or not node.module or "." in node.module:
                raise Unsound(f"{name}: expected `from .part import name`, found {ast.unparse(node)}")
            needs[node.module] = tuple(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        else:
            roots = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(root.split(".")[0] not in sys.stdlib_module_names for root in roots):
                raise Unsound(f"{name}: expected the standard library alone at the top, found {ast.unparse(node)}")
            hoisted |= (
                {f"import {root}" for root in roots} if isinstance(node, ast.Import) else {f"from {node.module} import {alias.name}" for alias in node.names}
            )
    return frozenset(hoisted), needs


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return []


def check(parts: dict[str, Part]) -> None:
    """Checks that each name is unique and that each imported name exists. Raises Unsound."""
    owners: dict[str, str] = {}
    imported = {line.split()[-1]: part.name for part in parts.values() for line in part.hoisted}
    for part in parts.values():
        for name in part.names:
            if name in owners or name in imported:
                raise Unsound(f"{part.name}: expected a name of its own, found {name}, which {owners.get(name) or imported[name]} has too")
            owners[name] = part.name
    for part in parts.values():
        for other, names in part.needs.items():
            for name in names:
                if owners.get(name) != other:
                    raise Unsound(f"{part.name}: expected {name} in {other}, found it in {owners.get(name) or 'no part'}")


def ordered(parts: dict[str, Part], last: str = LAST) -> list[Part]:
    """Each part after the parts that it imports from, in the order in which the last part reaches them. Raises Unsound for a circle of imports."""
    done: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise Unsound(f"{name}: expected no circle, found {' -> '.join([*above[above.index(name) :], name])}")
        if name not in done:
            for other in parts[name].needs:
                visit(other, (*above, name))
            done.append(name)

    visit(last, ())
    return [parts[name] for name in done]


def check_used(parts: dict[str, Part]) -> None:
    """Raises Unsound for a part that no payload needs."""
    lasts = [last for last in TARGETS if last in parts]
    lost = sorted(set(parts) - {part.name for last in lasts for part in ordered(parts, last)})
    if lost:
        raise Unsound(f"{lost[0]}: expected to be imported by some part that {' or '.join(lasts)} comes to, found nobody")


def assemble(folder: Path = PARTS, last: str = LAST) -> str:
    """A payload's text. The smoke test's docstring is that of the folder, another payload's is that of its last part. Raises Unsound."""
    parts = {path.stem: read_part(path.stem, path.read_text("utf-8")) for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}
    check(parts)
    check_used(parts)
    row = ordered(parts, last)
    stated = folder / ("__init__.py" if last == LAST else f"{last}.py")
    about = ast.get_docstring(ast.parse(stated.read_text("utf-8")), clean=False) or ""
    unformatted = "" if last == LAST else "# fmt: off\n"  # parts keep their lines; pyproject.toml excepts the smoke test's file
    head = f'"""{about.rstrip()}\n\n{NOTE}\n"""\n\n{unformatted}from __future__ import annotations\n\n' + "\n".join(_merged(row))
    text = head + "\n\n" + "\n\n\n".join(f"{_heading(part)}\n\n{part.text}" for part in row) + "\n"
    _same(text, row)
    return text


def _merged(row: list[Part]) -> list[str]:
    """The imports of all parts, one line for each module."""
    lines = {line for part in row for line in part.hoisted}
    modules: dict[str, list[str]] = {}
    for line in sorted(line for line in lines if line.startswith("from ")):
        _, module, _, name = line.split()
        modules.setdefault(module, []).append(name)
    return [
        *sorted(line for line in lines if line.startswith("import ")),
        *(f"from {module} import {', '.join(sorted(names, key=lambda name: (not name.isupper(), name)))}" for module, names in modules.items()),
    ]


def _heading(part: Part) -> str:
    return f"# {part.name}.py: {part.heading} ".ljust(WIDTH, "-")


def _same(text: str, row: list[Part]) -> None:
    """Checks that the payload holds what the parts hold, in their order. Raises Unsound."""
    whole = [node for node in ast.parse(text, feature_version=OLDEST_PYTHON).body[1:] if not isinstance(node, (ast.Import, ast.ImportFrom))]
    single = [node for part in row for node in ast.parse(part.text, feature_version=OLDEST_PYTHON).body]
    if [ast.dump(node) for node in whole] != [ast.dump(node) for node in single]:
        raise Unsound("the whole: expected what the parts hold, found something else")


def main() -> int:
    """0 when the files match the parts, or were written."""
    parser = argparse.ArgumentParser(description="Assembles the payloads of the smoke test and of the burn-in.")
    parser.add_argument("target", nargs="?", type=Path, help="write the smoke test's alone, to this file")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a file is not what the parts make")
    given = parser.parse_args()
    targets = {LAST: given.target} if given.target else TARGETS
    try:
        texts = {target: assemble(last=last) for last, target in targets.items()}
    except (Unsound, SyntaxError) as problem:
        sys.stderr.write(f"build.py: {problem}\n")
        return 2
    if given.check:
        return 0 if all(target.exists() and target.read_text("utf-8") == text for target, text in texts.items()) else 1
    for target, text in texts.items():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
        sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

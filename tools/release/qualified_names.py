"""The names of modules, roles, filters and module_utils in a file of the tree, as the collection
has them: own_file becomes unhang.ops.own_file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "unhang.ops"
MODULE_UTILS = f"ansible_collections.{NAMESPACE}.plugins.module_utils"


@dataclass(frozen=True)
class Names:
    """What the collection gives a full name: modules, roles, and filters."""

    modules: tuple[str, ...]
    roles: tuple[str, ...]
    filters: tuple[str, ...]

    @classmethod
    def of(cls, project: Path) -> Names:
        """The names of a checkout."""
        return cls(
            tuple(sorted(path.stem for path in (project / "library").glob("*.py"))),
            tuple(sorted(path.parent.name for path in (project / "roles").glob("*/tasks"))),
            tuple(
                sorted(
                    name
                    for path in (project / "plugins" / "filter").glob("*.py")
                    for name in _filters(path.read_text("utf-8"))
                )
            ),
        )


def qualified(place: str, text: str, names: Names) -> str:
    """The text of a file with full names. place: the file's path in the collection."""
    if place.startswith("plugins/modules/"):
        return _module(text, names)
    if place.startswith("plugins/") and place.endswith(".py"):
        text = _documented(text, names).replace(
            '("tools", "module_utils")', '("tools", "plugins/module_utils")'
        )
        return re.sub(
            rf'(module_name="|action_loader\.get\(")({_any(names.modules)})"',
            rf'\1{NAMESPACE}.\2"',
            text,
        )
    if place.startswith("tools/") and place.endswith(".py"):
        # the one-file collector for nodes with an old Python is built from the same package
        return re.sub(
            r'\b(PROJECT|project) / "module_utils"', r'\1 / "plugins" / "module_utils"', text
        )
    if place.startswith(("roles/", "playbooks/")):
        return tasks(text, names)
    return text


def tasks(text: str, names: Names) -> str:
    """Tasks, plays and variables in YAML."""
    text = re.sub(
        rf"^(\s+(?:- )?)({_any(names.modules)}):(?=\s)",
        rf"\1{NAMESPACE}.\2:",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        rf"((?:import|include)_role:\n\s+name: )({_any(names.roles)})$",
        rf"\1{NAMESPACE}.\2",
        text,
        flags=re.MULTILINE,
    )
    # a role whose name is a variable
    text = re.sub(r"((?:import|include)_role:\n\s+name: ')(\{\{)", rf"\g<1>{NAMESPACE}.\2", text)
    return re.sub(rf"(\|\s*)({_any(names.filters)})\b", rf"\1{NAMESPACE}.\2", text)


def _module(text: str, names: Names) -> str:
    text = text.replace("ansible.module_utils.unhang_node", f"{MODULE_UTILS}.unhang_node")
    text = text.replace(
        "from ansible.module_utils import pynvml", f"from {MODULE_UTILS} import pynvml"
    )
    text = _documented(text, names)
    text = _within(
        r"^extends_documentation_fragment:[^\]]*\]",
        text,
        lambda found: re.sub(r"\bunhang\b", f"{NAMESPACE}.unhang", found),
    )
    return _within(r'^EXAMPLES = r?""".*?"""', text, lambda found: tasks(found, names))


def _documented(text: str, names: Names) -> str:
    """The names in descriptions: M(module), O(module#module:option), P(filter#filter)."""
    found = _any(names.modules)
    text = re.sub(rf"\bM\(({found})\)", rf"M({NAMESPACE}.\1)", text)
    text = re.sub(rf"(- module: )({found})$", rf"\1{NAMESPACE}.\2", text, flags=re.MULTILINE)
    text = re.sub(rf"\bP\(({_any(names.filters)})#", rf"P({NAMESPACE}.\1#", text)
    return re.sub(rf"\b([OR])\(({found})#module", rf"\1({NAMESPACE}.\2#module", text)


def _within(pattern: str, text: str, change: Callable[[str], str]) -> str:
    return re.sub(pattern, lambda found: change(found[0]), text, flags=re.MULTILINE | re.DOTALL)


def _any(names: Iterable[str]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


def _filters(source: str) -> list[str]:
    """The keys of the dictionary that the method `filters` returns."""
    return [
        key.value
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == "filters"
        for found in ast.walk(function)
        if isinstance(found, ast.Dict)
        for key in found.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]

"""The quick check's file has the judge's modules with all that these import."""

from __future__ import annotations

import ast

from collector.quick import rules_sources


def test_every_module_of_unhang_that_the_judge_of_the_quick_check_imports_lies_in_its_file():
    sources = rules_sources()
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources
    }
    imported = {
        (module, name)
        for name, text in sources.items()
        for module in imports_of(text)
        if module.partition(".")[0] == "unhang"
    }
    assert ("unhang.judge.rules.values", "unhang/judge/rules/node_rules.py") in imported
    assert {(module, name) for module, name in imported if module not in modules} == set()


def imports_of(text):
    """Also those within functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)

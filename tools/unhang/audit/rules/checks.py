"""The complete allow-list of expressions: syntax, comparisons, tests and filters."""

from __future__ import annotations

from jinja2 import nodes

from unhang.audit.rules.expression_filters import filtered
from unhang.audit.rules.expression_tests import comparison, test
from unhang.audit.rules.syntax import Kind, Run, SyntaxCompiler


class Compiler(SyntaxCompiler):
    """SyntaxCompiler with comparisons, tests and filters."""

    def visit_Compare(self, node: nodes.Compare) -> tuple[Kind, Run]:
        """a < b."""
        return comparison(self, node)

    def visit_Test(self, node: nodes.Test) -> tuple[Kind, Run]:
        """a is b."""
        return test(self, node)

    def visit_Filter(self, node: nodes.Filter) -> tuple[Kind, Run]:
        """a | b."""
        return filtered(self, node)

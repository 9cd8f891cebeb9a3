"""The complete allow-list of expressions: syntax, comparisons, tests and filters."""

from __future__ import annotations

from unhang.audit.rules.expression_filters import filtered
from unhang.audit.rules.expression_tests import comparison, test
from unhang.audit.rules.syntax import SyntaxCompiler


class Compiler(SyntaxCompiler):
    """SyntaxCompiler with comparisons, tests and filters."""

    visit_Compare, visit_Test, visit_Filter = comparison, test, filtered

"""The complete allow-list of expressions: syntax, comparisons, tests and filters."""

from __future__ import annotations

from unhang.judge.rules.expression_filters import filtered
from unhang.judge.rules.expression_tests import comparison, test
from unhang.judge.rules.syntax import SyntaxCompiler


class Compiler(SyntaxCompiler):
    """SyntaxCompiler with comparisons, tests and filters."""

    visit_Compare, visit_Test, visit_Filter = comparison, test, filtered

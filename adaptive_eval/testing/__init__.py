"""Contract suites for the author of a rule, a policy, an objective or a grader.

    from adaptive_eval.testing import check_rule

    def test_my_rule() -> None:
        check_rule(MyRule(height=4))

Each is one line in a test, raises `AssertionError`, which says what is broken and for which values, and needs no test
framework. The cases are the same every time. Every built-in passes them.
"""

from adaptive_eval.testing.decisions import check_objective, check_policy, check_rule
from adaptive_eval.testing.graders import check_grader

__all__ = ["check_grader", "check_objective", "check_policy", "check_rule"]

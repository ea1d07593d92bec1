"""The twelve schemata of the paper (Table 5) as data, with default weights.

The paper prints one weight vector, [0, 0, 1, 2, 3] for Format Aware, and it is used as printed. Where it gives none:

- the best category has weight 1, invalid has 0, so that a score reads as a share of full credit;
- wrong categories are spread evenly over [0, 0.2] and correct ones over [0.7, 1], in the order of preference that
  appendix D.1 describes in words; a lone wrong category has 0 and a lone correct one has 1. Correctness always counts
  for more (0.5 at least) than form, confidence or length (0.3 at most), so a schema can reorder close models but does
  not turn the ranking into one of style.

They are defaults: any other w of the same length may go with the categories.
"""

from collections.abc import Mapping

from scorio.categorical.schema import Category, Schema


def _category(weight: float, *variables: str, label: str | None = None) -> Category:
    """A category whose variables must all hold."""
    return Category(label or " and ".join(variables), weight, (variables,))


def _schema(title: str, *categories: Category) -> Schema:
    """A schema by its title in the paper, which in lower case is its name."""
    return Schema(title.replace("-", "_").replace("+", "_").replace(" ", "_").lower(), title, categories)


SCHEMATA: Mapping[str, Schema] = {
    schema.name: schema
    for schema in (
        _schema("Exact Match", _category(0.0, "wrong"), _category(1.0, "correct")),
        _schema(
            "Format Aware",
            _category(0.0, "wrong", "unboxed"),
            _category(1.0, "wrong", "boxed"),
            _category(2.0, "correct", "unboxed"),
            _category(3.0, "correct", "boxed"),
        ),
        # Penalizes the confidently wrong, grades correct answers by confidence.
        _schema(
            "Conf-Calibrated",
            _category(0.2, "wrong_low_conf", label="wrong and low_conf"),
            _category(0.0, "wrong_high_conf"),
            _category(0.7, "correct_low_conf", label="correct and low_conf"),
            _category(0.85, "correct_mid_conf", label="correct and mid"),
            _category(1.0, "correct_high_conf", label="correct and high_conf"),
        ),
        # To be right on an unfamiliar prompt is worth more, to be wrong on a familiar one costs more.
        _schema(
            "OOD Robustness",
            _category(0.2, "ood", "wrong"),
            _category(0.0, "ind", "wrong"),
            _category(1.0, "ood", "correct"),
            _category(0.7, "ind", "correct"),
        ),
        _schema(
            "Strict Compliance",
            Category("wrong or (correct and unboxed)", 0.0, (("wrong",), ("correct", "unboxed"))),
            _category(1.0, "correct", "boxed"),
        ),
        _schema(
            "Conf-Wrong Penalty",
            _category(0.0, "wrong_high_conf"),
            _category(0.2, "wrong_low_conf", label="wrong and low_conf"),
            _category(1.0, "correct"),
        ),
        # An answer to the question, though wrong, comes before one that is off the task.
        _schema(
            "Verifier-Only",
            _category(0.0, "C_high", label="high C"),
            _category(0.2, "B_high", label="high B"),
            _category(1.0, "A_high"),
        ),
        # Emphasizes boxed, high-confidence correctness; the boxed and confident wrong answer misleads most.
        _schema(
            "Format+Confidence",
            _category(0.1, "wrong", "unboxed"),
            _category(0.2, "wrong", "boxed", "low_conf"),
            _category(0.0, "wrong", "boxed", "high_conf"),
            _category(0.7, "correct", "unboxed", "low_conf"),
            _category(0.8, "correct", "unboxed", "high_conf"),
            _category(0.9, "correct", "boxed", "low_conf"),
            _category(1.0, "correct", "boxed", "high_conf"),
        ),
        _schema("Length-Robust", _category(0.0, "wrong"), _category(1.0, "correct")),
        # A wrong answer that convinces the verifier is the inconsistent one.
        _schema(
            "Verifier Probe",
            _category(0.0, "wrong", "A_high"),
            _category(0.2, "wrong", "A_not_high", label="wrong and not A_high"),
            _category(0.7, "correct", "A_not_high", label="correct and not A_high"),
            _category(1.0, "correct", "A_high"),
        ),
        _schema(
            "Efficiency-Adjusted",
            _category(0.2, "wrong", "economical"),
            _category(0.1, "wrong", "moderate"),
            _category(0.0, "wrong", "verbose"),
            _category(1.0, "correct", "economical"),
            _category(0.85, "correct", "moderate"),
            _category(0.7, "correct", "verbose"),
        ),
        _schema(
            "Concision-High-Conf",
            _category(0.0, "wrong"),
            _category(0.7, "correct", "verbose"),
            _category(0.8, "correct", "moderate"),
            _category(0.9, "correct", "economical", "low_conf", label="correct and economical"),
            _category(1.0, "correct", "economical", "high_conf"),
        ),
    )
}

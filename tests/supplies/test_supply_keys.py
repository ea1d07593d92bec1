"""A key by which models are answered stands in every list that asks what a key of a model means."""

from adaptive_eval.config.checks import EXCLUSIVE_KEYS
from adaptive_eval.config.listed_models import SERVED_WITHOUT_URL
from adaptive_eval.config.prepare import MODEL_NOT_IN_FINGERPRINT
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.supplies.opening import SUPPLIES

CHANGES_ANSWERS = {"inspect"}
"""A resume with another value is refused: the stored trials would mean something else."""


def test_every_supply_is_a_key_of_a_model_that_is_refused_beside_other_ways_to_serve_it() -> None:
    assert SUPPLIES.keys() <= ModelConfig.model_fields.keys()
    assert SUPPLIES.keys() <= {*SERVED_WITHOUT_URL, *EXCLUSIVE_KEYS}, (
        "name it in `SERVED_WITHOUT_URL`, `EXCLUSIVE_KEYS` or both (`listed_models.py`, `checks.py`)"
    )


def test_every_supply_changes_answers_or_only_how_they_come() -> None:
    hint = "name it in `MODEL_NOT_IN_FINGERPRINT` (`prepare.py`), or here if it changes answers"
    assert SUPPLIES.keys() - MODEL_NOT_IN_FINGERPRINT == CHANGES_ANSWERS, hint

"""The registry of supplies by their keys."""

from adaptive_eval.config.run import SOURCES, ModelConfig
from adaptive_eval.supplies.opening import SUPPLIES


def test_every_supply_is_opened_by_a_key_whose_meaning_the_configuration_knows() -> None:
    assert SUPPLIES.keys() <= SOURCES.keys() <= ModelConfig.model_fields.keys()

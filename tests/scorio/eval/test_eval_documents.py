"""Every number printed in the API documents and on the web pages."""

from typing import Any

import numpy as np
import pytest

import scorio.eval as scorio_eval

BINARY = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
GRADED = np.array([[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]])
W = np.array([0.0, 0.5, 1.0])
R0 = np.array([[0, 2], [1, 2]])
GREEDY = np.array([[2], [1]])

# (function, arguments, keywords, printed values, digits of each)
API = [
    ("bayes", (GRADED, W, R0), {}, (0.575, 0.084275), (6, 6)),
    ("bayes", (GRADED, W), {}, (0.5625, 0.091998), (6, 6)),
    ("bayes_ci", (BINARY,), {"bounds": (0.0, 1.0)}, (0.642857, 0.118451, 0.4107, 0.875), (6, 6, 4, 4)),
    ("avg", (BINARY,), {}, (0.7, 0.165831), (6, 6)),
    ("avg", (GRADED, W), {}, (0.6, 0.147196), (6, 6)),
    ("avg_ci", (BINARY,), {"bounds": (0.0, 1.0)}, (0.7, 0.1658, 0.375, 1.0), (4, 4, 4, 4)),
    ("avg_ci", (GRADED, W), {"confidence": 0.95}, (0.6, 0.1472, 0.3115, 0.8885), (4, 4, 4, 4)),
    ("pass_at_k", (BINARY, 1), {}, (0.7,), (6,)),
    ("pass_at_k", (BINARY, 2), {}, (0.95,), (6,)),
    ("pass_hat_k", (BINARY, 1), {}, (0.7,), (6,)),
    ("pass_hat_k", (BINARY, 2), {}, (0.45,), (6,)),
    ("pass_at_k_ci", (BINARY, 1), {}, (0.642857, 0.118451, 0.4107, 0.875), (6, 6, 4, 4)),
    ("pass_at_k_ci", (BINARY, 2), {}, (0.839286, 0.097263, 0.6487, 1.0), (6, 6, 4, 4)),
    ("pass_hat_k_ci", (BINARY, 1), {}, (0.642857, 0.118451, 0.4107, 0.875), (6, 6, 4, 4)),
    ("pass_hat_k_ci", (BINARY, 2), {}, (0.446429, 0.146167, 0.1599, 0.7329), (6, 6, 4, 4)),
    ("auc_at_k", (BINARY, 1), {}, (0.7,), (6,)),
    ("auc_at_k", (BINARY, 2), {}, (0.825,), (6,)),
    ("auc_at_k", (BINARY, 3), {}, (0.9,), (6,)),
    ("maj_at_k", (BINARY, 1), {}, (0.7,), (6,)),
    ("maj_at_k", (BINARY, 2), {}, (0.45,), (6,)),
    ("maj_at_k", (BINARY, 3), {}, (0.85,), (6,)),
    ("maj_at_k_ci", (BINARY, 2), {}, (0.446429, 0.146167, 0.1599, 0.7329), (6, 6, 4, 4)),
    ("maj_at_k_ci", (BINARY, 3), {}, (0.684524, 0.151958, 0.3867, 0.9824), (6, 6, 4, 4)),
    ("g_pass_at_k", (BINARY, 1), {}, (0.7,), (6,)),
    ("g_pass_at_k", (BINARY, 2), {}, (0.45,), (6,)),
    ("g_pass_at_k_tau", (BINARY, 2, 0.5), {}, (0.95,), (6,)),
    ("g_pass_at_k_tau", (BINARY, 2, 1.0), {}, (0.45,), (6,)),
    ("mg_pass_at_k", (BINARY, 2), {}, (0.45,), (6,)),
    ("mg_pass_at_k", (BINARY, 3), {}, (0.166667,), (6,)),
    ("geom_at_k", (BINARY, 2), {}, (0.647106,), (6,)),
    ("geom_at_k_ci", (BINARY, 2), {}, (0.610666, 0.133107, 0.3498, 0.8716), (6, 6, 4, 4)),
    ("geom_ds_at_k", (BINARY, 2), {}, (0.653835,), (6,)),
    ("geom_ds_at_k_ci", (BINARY, 2), {}, (0.612112, 0.132755, 0.3519, 0.8723), (6, 6, 4, 4)),
    ("geo_spectrum_at_k", (BINARY, 3), {}, (0.408248,), (6,)),
    ("geo_spectrum_at_k", (BINARY, 3), {"lam": 1.0}, (1.0,), (6,)),
    ("max_at_k", (BINARY, 2), {}, (0.95,), (6,)),
    ("max_at_k", (GRADED, 2), {"w": W}, (0.85,), (6,)),
    ("max_at_k_ci", (BINARY, 2), {}, (0.839286, 0.097263, 0.6487, 1.0), (6, 6, 4, 4)),
    ("max_at_k_ci", (GRADED, 2), {"w": W}, (0.75, 0.08812, 0.5773, 0.9227), (6, 6, 4, 4)),
]

CONFIDENCE = (np.array([[3, 2, 3, 1, 3], [2, 3, 0, 3, 1]]), np.array([0.0, 0.0, 0.25, 1.0]))
TOP_P = np.array(
    [
        [1, 1, 1, 1, 0, 1, 1],
        [1, 0, 0, 1, 0, 0, 1],
        [0, 0, 0, 0, 1, 0, 0],
        [1, 1, 1, 0, 1, 1, 0],
        [0, 0, 1, 0, 0, 0, 0],
    ]
)
GREEDY_RUN = np.array([[1], [1], [0], [1], [0]])

PAGES = [
    ("bayes", (GRADED, W), {}, (0.562500, 0.091998), (6, 6)),
    ("bayes", (GRADED, W, GREEDY), {}, (0.583333, 0.085165), (6, 6)),
    ("bayes_ci", (GRADED, W), {}, (0.562500, 0.091998, 0.382188, 0.742812), (6, 6, 6, 6)),
    ("bayes_ci", CONFIDENCE, {}, (0.444444, 0.100539, 0.247392, 0.641497), (6, 6, 6, 6)),
    ("bayes_ci", (TOP_P,), {}, (0.4667, 0.0629, 0.3435, 0.5899), (4, 4, 4, 4)),
    ("bayes_ci", (TOP_P,), {"R0": GREEDY_RUN}, (0.4800, 0.0585, 0.3654, 0.5946), (4, 4, 4, 4)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "printed", "digits"), API + PAGES)
def test_a_printed_number_comes_out_to_its_last_digit(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], printed: tuple[float, ...], digits: tuple[int, ...]
) -> None:
    result = getattr(scorio_eval, name)(*args, **kwargs)
    values = result if isinstance(result, tuple) else (result,)
    assert all(type(value) is float for value in values)
    assert tuple(round(value, n) for value, n in zip(values, digits, strict=True)) == printed


def test_keywords_have_the_documented_names() -> None:
    assert scorio_eval.bayes_ci(R=GRADED, w=W, R0=R0, confidence=0.9, bounds=(0.5, 0.6)) == scorio_eval.bayes_ci(
        GRADED, W, R0, 0.9, (0.5, 0.6)
    )
    assert scorio_eval.avg_ci(R=GRADED, w=W, confidence=0.9, bounds=None) == scorio_eval.avg_ci(GRADED, W, 0.9, None)
    prior = {"confidence": 0.9, "bounds": (0.1, 0.9), "alpha0": 0.5, "beta0": 2.0}
    flat = tuple(prior.values())
    for name in ("pass_at_k", "pass_hat_k", "unanimous_at_k", "g_pass_at_k", "mg_pass_at_k", "maj_at_k", "auc_at_k"):
        function = getattr(scorio_eval, name + "_ci")
        assert function(R=BINARY, k=2, **prior) == function(BINARY, 2, *flat)
    assert scorio_eval.geo_spectrum_star_at_k_ci(R=BINARY, k=2, **prior) == (
        scorio_eval.geo_spectrum_star_at_k_ci(BINARY, 2, *flat)
    )
    assert scorio_eval.g_pass_at_k_tau_ci(R=BINARY, k=2, tau=0.5, **prior) == (
        scorio_eval.g_pass_at_k_tau_ci(BINARY, 2, 0.5, *flat)
    )
    assert scorio_eval.threshold_spectrum_at_k_ci(R=BINARY, k=2, weights=[0.5, 0.5], **prior) == (
        scorio_eval.threshold_spectrum_at_k_ci(BINARY, 2, [0.5, 0.5], *flat)
    )
    for name in ("geom_at_k_ci", "geom_ds_at_k_ci"):
        function = getattr(scorio_eval, name)
        assert function(R=BINARY, k=2, pass_power=0.3, unanimous_power=0.6, **prior) == function(
            BINARY, 2, 0.3, 0.6, *flat
        )
    assert scorio_eval.geo_spectrum_at_k_ci(R=BINARY, k=2, lam=0.3, weights=[0.1, 0.2], lambda_=None, **prior) == (
        scorio_eval.geo_spectrum_at_k_ci(BINARY, 2, 0.3, [0.1, 0.2], None, *flat)
    )
    assert scorio_eval.max_at_k_ci(R=GRADED, k=2, w=W, R0=R0, confidence=0.9, bounds=None) == (
        scorio_eval.max_at_k_ci(GRADED, 2, W, R0, 0.9, None)
    )


def test_an_alias_is_the_same_function() -> None:
    assert scorio_eval.unanimous_at_k is scorio_eval.pass_hat_k
    assert scorio_eval.unanimous_at_k_ci is scorio_eval.pass_hat_k_ci
    assert scorio_eval.geo_spectrum_at_k(BINARY, 3, lambda_=0.2) == scorio_eval.geo_spectrum_at_k(BINARY, 3, lam=0.2)
    assert scorio_eval.geo_spectrum_star_at_k(BINARY, 3) == scorio_eval.geo_spectrum_at_k(BINARY, 3)

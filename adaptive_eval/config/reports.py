"""The section `report` of the configuration, and the optional metrics of a report: `pass@8`, `maj@5`, `g-pass@4:0.5`.

A metric is the expected result of k new answers to a question. It is estimated by the mean over all draws of k from a
question's trials (a U-statistic), which is unbiased if every question has at least k trials.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from adaptive_eval.base.sections import Section, config_error

FORM = re.compile(r"(pass@|pass\^|maj@|g-pass@|mg-pass@)([1-9]\d{0,3})(?::(0(?:\.\d+)?|1(?:\.0+)?))?")
NAMES = "pass@8, pass^4, maj@5, g-pass@4, g-pass@4:0.5 (with its threshold) or mg-pass@4"


@dataclass(frozen=True, slots=True)
class AskedMetric:
    """A metric with its functions from `scorio.eval`."""

    name: str
    draws: int
    value: Callable[[Any], Any]
    """Computes the unbiased estimate from counts."""
    summary: Callable[[Any], Any]
    """Computes mean, sigma and interval of the posterior from counts."""


def find_metric(name: str) -> AskedMetric | None:
    """The metric with this name; None if it is not a metric."""
    from scorio import eval as metrics  # imported here: scipy is slow to load, and checking a name does not need it

    match = read_metric(name)
    if match is None:
        return None
    k = int(match[2])
    value: Callable[..., Any]
    summary: Callable[..., Any]
    if match[3] is not None:
        tau = float(match[3])
        value, summary = partial(metrics.g_pass_at_k_tau, tau=tau), partial(metrics.g_pass_at_k_tau_ci, tau=tau)
    else:
        value, summary = {
            "pass@": (metrics.pass_at_k, metrics.pass_at_k_ci),
            "pass^": (metrics.pass_hat_k, metrics.pass_hat_k_ci),
            "maj@": (metrics.maj_at_k, metrics.maj_at_k_ci),
            "g-pass@": (metrics.g_pass_at_k, metrics.g_pass_at_k_ci),
            "mg-pass@": (metrics.mg_pass_at_k, metrics.mg_pass_at_k_ci),
        }[match[1]]
    return AskedMetric(name, k, partial(value, k=k), partial(summary, k=k))


def read_metric(name: str) -> re.Match[str] | None:
    """Match the family, draws and threshold (g-pass@ only) in a name; None if it is not a metric."""
    match = FORM.fullmatch(name)
    return None if match is None or (match[3] is not None and match[1] != "g-pass@") else match


def _is_metric(name: str) -> str:
    if read_metric(name) is None:
        raise config_error("must be a metric", f"write it as {NAMES}")
    return name


class ReportConfig(Section):
    """Contents of reports besides the ranking."""

    metrics: tuple[Annotated[str, Field(max_length=40), AfterValidator(_is_metric)], ...] = ()
    """Metrics of k draws, for rubrics of two categories: pass@8, pass^4, maj@5, g-pass@4, g-pass@4:0.5, mg-pass@4."""
    group_by: tuple[str, ...] = ()
    """Fields of the questions' metadata, such as topic or level, by which scores are broken down."""

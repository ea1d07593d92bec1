"""Contract suites for an importer, an exporter or a figure, which are files of this repository.

Those for plug-ins, which anybody may have elsewhere, are in `adaptive_eval.testing`.
"""

from contracts.exporters import check_exporter
from contracts.figures import check_figure
from contracts.importers import check_importer

__all__ = ["check_exporter", "check_figure", "check_importer"]

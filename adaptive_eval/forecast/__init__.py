"""What a run will cost, and whether it will decide, before anything is spent.

    forecast = make_forecast(prepare(load_config(path)), Request(pilot=Path("runs/pilot")), watch)

Worlds are drawn from what a pilot leaves open (`posterior`), or from a stated prior (`prior`); in each of them the run
is simulated with the controller that it will have (`simulated`), and the simulated runs are summed up (`summary`).
"""

from adaptive_eval.forecast.make import Request, make_forecast
from adaptive_eval.forecast.types import FORMAT, Forecast

__all__ = ["FORMAT", "Forecast", "Request", "make_forecast"]

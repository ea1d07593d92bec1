"""Which alarms end a run: a module of its own, since configurations are read without what judges answers."""

from typing import Literal

StopOnAlarm = Literal["all", "any", "never"]

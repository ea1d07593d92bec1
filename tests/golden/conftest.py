"""Where golden runs find servers that do as a script says."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "running"))

"""The command line, with the timeouts between a head and its sites that the environment holds as JSON."""

import json
import os

from adaptive_eval.__main__ import main
from adaptive_eval.sites import messages

messages.TIMEOUTS = messages.SiteTimeouts(**json.loads(os.environ["SITE_TIMEOUTS"]))
main()

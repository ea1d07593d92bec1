"""How the endpoints of the tests are opened (the fixture `endpoint` does it)."""

from collections.abc import Callable

from adaptive_eval.endpoints.endpoint import ModelEndpoint

Opener = Callable[..., ModelEndpoint]

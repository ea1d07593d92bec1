"""Watch a run from outside: in another terminal, in a browser."""

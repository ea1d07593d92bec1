"""The configuration of a run.

    load_config(path, overrides) -> RunConfig       # or ConfigError, with every problem and its line

Import from the modules: `config.load` reads files, `config.run` has the sections of a run.
"""

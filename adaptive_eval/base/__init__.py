"""Errors, files, imports, sections of a configuration, seeds, and the HTTP server: what all rooms share."""

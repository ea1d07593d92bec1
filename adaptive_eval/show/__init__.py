"""Displays of a run: text, terminal, Markdown and the page."""

"""Displays of a run: text, terminal, Markdown, figures and the page."""

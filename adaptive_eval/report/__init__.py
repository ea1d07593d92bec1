"""Publishing a run: Markdown, HTML, JSON, CSV and plots, from one `RunView`; and two runs compared."""

"""What people see of a run: text, terminal, Markdown, figures and the page."""

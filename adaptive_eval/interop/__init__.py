"""The decision core within other harnesses."""

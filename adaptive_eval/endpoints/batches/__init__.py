"""Batch services of providers: many requests at once, answers hours later at half the price; one module a format."""

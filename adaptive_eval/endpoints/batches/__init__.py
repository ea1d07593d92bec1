"""Providers' batch services: many requests at once, answered hours later at half the price; one module per format."""

"""Providers' batch services: many requests at once, answered hours later at half the price (an extra)."""

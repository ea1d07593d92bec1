"""A run: one pure machine, its log, and the driver that carries out its actions."""

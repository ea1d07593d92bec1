"""Where answers come from: servers of others, servers that a run starts and stops, batch services."""

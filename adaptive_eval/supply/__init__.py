"""Where answers come from: the interface of a supply, and pools of servers that a run starts and stops."""

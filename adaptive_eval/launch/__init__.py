"""Model servers that a run starts, waits for and stops.

config.launch --command--> keeper --> server       a process group that never outlives the run
Served.start / stop                                 one model's server: ready, started again when it dies, stopped
Host.load                                           models that share a GPU, one at a time
"""

"""Model servers that a run starts, waits for and stops.

server_command(launch, ...)        the command of a model's server: pure
KeptProcess, keeper            a process group that never outlives the run
LaunchedServer                 one model's server: ready, started again when it dies, stopped
ServedEndpoint                 a model over all places where its servers come and go
Host                           models that share a GPU, one at a time
ExclusivePlaces                places, such as GPUs, that one run has at a time among all on this machine
"""

"""Sources of answers: whatever answers the requests of a run, each as a supply that the machine of the run asks."""

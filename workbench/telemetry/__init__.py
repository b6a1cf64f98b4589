"""What the machine did: load, busy time, the run in numbers. Reads the event stream and the drivers, nothing else."""

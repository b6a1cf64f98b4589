"""What the groups of ranks that train a model are for, how long they wait, and how gradients may be compressed. No torch."""

SECONDS = 600.0  # that a collective may take, where nothing else is asked for
PURPOSES = {
    "control": "what all ranks decide alike, over gloo",  # a few bytes, but it waits for the slowest rank's work
    "gradients": "their sum over the data-parallel ranks",
    "shards": "parameters and gradients of fsdp",
    "tensor": "activations of tensor parallelism",
}
HOOKS = ("fp16", "bf16", "powersgd")

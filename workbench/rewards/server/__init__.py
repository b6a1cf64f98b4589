"""The reward server: ``command`` starts what ``options`` say; ``application`` answers, ``batching`` queues, ``served`` scores."""

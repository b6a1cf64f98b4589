"""What reward server and client share: addresses, JSON messages, and token ids through shared memory."""

"""Reward models: a transformers model that gives one number, its weights in eight bits, its tokens, and a tiny one for tests."""

"""Processes that begin with everything imported: half a second each instead of fifteen."""

import multiprocessing
from multiprocessing.context import ForkServerContext

from benchmarks.kills import PRELOADED

# A test session has one server that all such processes are forked from, and what it imports is settled when the first one starts.
IMPORTED = [*PRELOADED, "vllm.entrypoints.llm", "transformers.models.llama.modeling_llama", "workbench.models.actor"]


def forks() -> ForkServerContext:
    """Where such processes come from. Importing uses no GPU: which ones a process sees is still open."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context

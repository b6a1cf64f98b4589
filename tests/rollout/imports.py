"""What every rank imports before it starts its engine: 10 s of one core."""

import transformers  # noqa: F401
import vllm.entrypoints.llm  # noqa: F401

import workbench.rollout.engine  # noqa: F401

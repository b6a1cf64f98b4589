"""Every contact with vLLM's Transformers backend, which runs families that vLLM has no model of (SmolLM3, OLMo 2) by transformers' own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_classes() -> Iterator[None]:
    """While an engine starts: what vLLM changes about a class of transformers, it changes about a subclass that the engine alone has.

    The backend makes a class compilable by giving it another ``__init__``, another ``__call__`` and another base, for the whole process:
    a trainer's model of that class then asks for vLLM's configuration when it is made, and fails when it is called if it was there
    before. Seen in 0.23 and in 0.32.
    """
    from vllm.model_executor.models.transformers import base

    decorator, stood_in = base.support_torch_compile, list[type]()

    def of_a_subclass(**how: Any) -> Callable[[Any], type]:
        def decorate(cls: Any) -> type:
            own: Any = type(cls.__name__, (cls,), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})
            cls._from_config = own._from_config  # by which the backend makes its model a moment later
            stood_in.append(cls)
            decorated: type = decorator(**how)(own)
            return decorated

        return decorate

    base.support_torch_compile = of_a_subclass
    try:
        yield
    finally:
        base.support_torch_compile = decorator
        for cls in stood_in:
            del cls._from_config  # type: ignore[attr-defined]  # PreTrainedModel's again

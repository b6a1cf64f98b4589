"""A class of transformers that vLLM makes compilable stays as it was for everybody else in the process."""

from typing import Any

import pytest
import torch

from tests.rollout.families import SIZES
from workbench.rollout import inner
from workbench.rollout.inner_transformers import own_classes

FAILED = "the start failed"


def decorated(cls: type) -> Any:
    """What the backend does before it makes its model: as in 0.23 and 0.32."""
    from vllm.model_executor.models.transformers import base

    dims = {"input_ids": 1, "inputs_embeds": 1, "position_ids": -1}
    base.support_torch_compile(dynamic_arg_dims=dims, enable_if=lambda config: True, is_encoder=False)(cls)
    return base.AutoModel


def fails(cls: type) -> None:
    """A start that ends between the two."""
    with own_classes():
        decorated(cls)
        raise RuntimeError(FAILED)


@torch.no_grad()
def test_the_engine_alone_has_the_changed_class() -> None:
    with inner.untouched_process():
        from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper
        from vllm.config import VllmConfig, set_current_vllm_config
    from transformers import SmolLM3Config, SmolLM3Model

    config, ids = SmolLM3Config(**SIZES), torch.tensor([[3, 4, 5]])
    before, attributes = SmolLM3Model(config), set(vars(SmolLM3Model))
    expected = before(ids).last_hidden_state
    with inner.untouched_process(), own_classes(), set_current_vllm_config(VllmConfig()):
        theirs = decorated(SmolLM3Model).from_config(config)
        meanwhile = SmolLM3Model(config)
    assert isinstance(theirs, TorchCompileWithNoGuardsWrapper)
    assert theirs.do_not_compile is not None
    assert type(theirs).__name__ == "SmolLM3Model"
    assert type(meanwhile) is SmolLM3Model
    assert set(vars(SmolLM3Model)) == attributes
    assert TorchCompileWithNoGuardsWrapper not in SmolLM3Model.__mro__
    torch.testing.assert_close(before(ids).last_hidden_state, expected)  # one that was there before can still be called
    SmolLM3Model(config)(ids)  # and others can be made


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    from transformers import Olmo2Config, Olmo2Model

    with inner.untouched_process():
        from vllm.model_executor.models.transformers import base

        decorator = base.support_torch_compile
        with pytest.raises(RuntimeError, match=FAILED):
            fails(Olmo2Model)
    assert base.support_torch_compile is decorator
    assert "_from_config" not in vars(Olmo2Model)
    assert type(Olmo2Model._from_config(Olmo2Config(**SIZES))) is Olmo2Model

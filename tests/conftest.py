"""Nothing of the network, and nobody's settings, in any test. The small model that engine and trainer tests share."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"  # jupyter_core's own migration, which warns when unset
os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112 - Ray's name: no idle workers, which nobody here uses, 1.7 s each

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import workbench  # noqa: F401 - sets how OpenMP waits, before torch is loaded
from benchmarks.lab import FLAGS, chromium

if TYPE_CHECKING:
    from workbench.runtime.plans import WorkerPlan
    from workbench.runtime.team import Team
    from workbench.runtime.worker import Worker

CHARACTERS = "0123456789 =abcdefghijklmnopqrstuvwxyz"
# Of the tests in two processes these begin, so that neither process ends with one of them while the other has nothing left.
LONGEST = (
    "test_notebooks.py",
    "test_kills.py",
    "test_ray.py",
    "test_restore.py",
    "test_nodes_run.py",
    "test_full_finetune.py",
    "test_reshard_run.py",
    "test_ppo_run.py",
)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """``make test`` asks for ``-n auto``: two processes, since tests wait more than they compute, and an engine takes 2 GB.

    None beside the first where tests share a GPU, a browser or the terminal.
    """
    alone = "not gpu" not in config.option.markexpr or config.option.capture == "no"
    return 0 if alone else 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a chromium the browser tests are no part of the run, unless it is asked for them (`-m browser`): then they fail.

    In one of two processes the longest files come first; both have to agree on the order.
    """
    if not (chromium() or "browser" in config.option.markexpr):
        out = [item for item in items if item.get_closest_marker("browser")]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    if hasattr(config, "workerinput"):
        rank = {name: n for n, name in enumerate(LONGEST)}
        items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.fixture(scope="session", autouse=True)
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models are kept, in all processes of the session: the tiny one is warmed up once, and the user's own folder is left alone."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    path.mkdir(exist_ok=True)
    os.environ["WORKBENCH_CACHE"] = str(path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 2 layers with grouped queries and its own tokenizer, as a checkpoint."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1} | {c: i for i, c in enumerate(CHARACTERS, 2)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    path = tmp_path_factory.mktemp("small-model")
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", pad_token="<pad>").save_pretrained(path)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=True,
        dtype="float32",
        initializer_range=0.2,  # logits that differ: a fault in an adapter has to show
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path


class SharedWorker:
    """A real engine and a real trainer on the small model, in this process, started once for all the tests that ask for them."""

    def __init__(self, model: Path) -> None:
        self._model, self._team = model, None

    def team(self) -> "Team":
        """The one worker behind a team, open and in sync."""
        from workbench.models.lora import LoRA
        from workbench.models.optimizer import Optimizer
        from workbench.rollout.config import VLLM
        from workbench.runtime.plans import WorkerPlan

        if self._team is None:
            config = VLLM(window=256, block_size=32, max_sequences=64, kv_cache_gib=0.1)
            optimizer = Optimizer(learning_rate=0.02)
            self._team = team_here(WorkerPlan(self._model, LoRA(rank=4, alpha=8), optimizer, config, "cpu", "float32", seed=0, kept=2))
        return self._team

    def close(self) -> None:
        """Free the process for another engine."""
        if self._team is not None:
            self._team.close()
            self._team = None


def team_here(plan: "WorkerPlan") -> "Team":
    """All roles of ``plan`` in this process, open and in sync."""
    from workbench.mapping import DeviceMap
    from workbench.runtime.inline import Inline
    from workbench.runtime.pools import split
    from workbench.runtime.team import Team

    (pool,) = split(DeviceMap(actor="cpu" if plan.device == "cpu" else "0"))
    team = Team(plan, (pool,), Inline(plan, pool))
    team.open(lambda what, done, total, note: None)
    team.sync(0)
    return team


@pytest.fixture(scope="session")
def shared_worker(small_model: Path) -> "Iterator[SharedWorker]":
    """Opens the worker when the first test asks for it."""
    shared = SharedWorker(small_model)
    yield shared
    shared.close()


@pytest.fixture
def team(shared_worker: SharedWorker) -> "Team":
    """The team of the shared worker."""
    return shared_worker.team()


@pytest.fixture
def worker(team: "Team") -> "Worker":
    """The shared worker itself."""
    return team.runtime.worker


@pytest.fixture(scope="module")
def free_process(shared_worker: SharedWorker) -> None:
    """For a module that starts an engine of its own: a process holds one."""
    shared_worker.close()

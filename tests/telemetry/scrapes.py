"""What a tally or a page of metrics says, as a table; and a run that says everything there is to say."""

from collections.abc import Iterable
from dataclasses import replace
from urllib.request import Request, urlopen

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.telemetry.runs import Story, a_load
from workbench.records import Checkpoint, HeldOut, Load, Memory, Progress, Queue, Ranks, Seen, State, Sync
from workbench.telemetry.tally import Tally

Values = dict[str, float]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def table(families: Iterable[Metric]) -> Values:
    """ "workbench_tokens_total kind=prompt" -> its value. The label ``run`` is left out."""
    found: Values = {}
    for family in families:
        for sample in family.samples:
            labels = [f"{name}={value}" for name, value in sample.labels.items() if name != "run"]
            key = " ".join([sample.name, *labels])
            assert key not in found
            found[key] = sample.value
    return found


def of(story: Story, after: float = 0.0, first: int = 0) -> Values:
    """What is said ``after`` some seconds of a story that nobody goes on with."""
    tally = Tally("a-run", first)
    for event in story.events:
        tally.take(event)
    return table(tally.families(story.now + after))


def page(url: str | None, accept: str = "text/plain") -> str:
    """A real scrape."""
    assert url is not None
    with urlopen(Request(url, headers={"Accept": accept}), timeout=5) as answer:
        assert answer.status == 200
        return answer.read().decode()


def scraped(url: str | None, accept: str = "text/plain") -> list[Metric]:
    """The same, parsed."""
    text = page(url, accept)
    return list(read_openmetrics(text) if accept == OPENMETRICS else read_text(text))


def everything() -> Story:
    """One GPU for actor and rollout; two steps and the begin of a third; each kind of record, with numbers that are easy to know again."""
    story = Story({"actor": ["node1:0"], "rollout": ["node1:0"], "reward": ["cpu:0"]})
    story.tell(State("running"))
    story.tell(Progress("steps", 0, 50))
    story.tell(Sync(0, 1, "merged", 1000, 0.25, 0.5, "sum"), role="rollout", phase="sync")
    story.tell(HeldOut(0, 0.25, 0.03, 64))
    for number in (1, 2):
        story.phase("rollout", 4.0)
        story.phase("reward", 1.0)
        story.phase("update_actor", 3.0)
        story.tell(Sync(number, number + 1, "merged", 1000, 0.25, 0.5, "sum"), role="rollout", phase="sync")
        story.tell(Ranks(number, [2.5, 3.0]), role="actor", phase="update_actor")
        story.tell(Queue(number, 12.0, 3.0, 2), role="rollout", phase="rollout")
        story.end(
            seconds=8.0,
            phase_seconds={"rollout": 4.0, "reward": 1.0, "update_actor": 3.0},
            tokens_prompt=100,
            tokens_completion=200,
            tokens_trained=300,
            reward_numbers={"length": 7.0},
            kl_weight=0.1,
            value_loss=0.5,
            value_clip_fraction=0.2,
            explained_variance=0.3,
            critic_grad_norm=0.7,
        )
        story.tell(Memory(100.0))
        story.events[-1] = replace(story.events[-1], device="node1:0")
    story.tell(Seen("WB702", "entropy collapses", "warning", 2, 1, "it fell", "turn"))
    story.tell(Checkpoint(2, "checkpoints/step-000002", 10, 0.5))
    story.tell(_load())
    return story


def _load() -> Load:
    return a_load(
        ["node1:0", "cpu:0"],
        busy=[0.9, 0.25],
        sm=[0.5, None],
        memory_gib=[70.0, 2.0],
        total_gib=[140.0, None],
        pcie_rx_gb_s=[1.5, None],
        pcie_tx_gb_s=[2.5, None],
        nvlink_rx_gb_s=[20.0, None],
        nvlink_tx_gb_s=[30.0, None],
        watts=[612.0, None],
        celsius=[64.0, None],
        sm_mhz=[1980.0, None],
        memory_mhz=[3201.0, None],
        throttled=["heat, power cap", None],
        role_memory_gib=[{"actor, rollout": 60.0, "": 10.0}, None],
        role_busy=[{"actor, rollout": 0.8}, None],
    )

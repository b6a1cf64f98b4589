"""What a reward server counts, in Prometheus' format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from workbench.rewards.server.batching import Batcher

BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("workbench_reward_requests", "Requests to /score, by status", ["status"], registry=registry)
        self.rows = Counter("workbench_reward_rows", "Rows scored, by the way they came", ["via"], registry=registry)
        self.errors = Counter("workbench_reward_errors", "Requests whose scoring failed", registry=registry)
        self.batch_rows = Histogram("workbench_reward_batch_rows", "Rows scored together", registry=registry, buckets=BATCH_BUCKETS)
        self.batch_seconds = Histogram("workbench_reward_batch_seconds", "Seconds to score a batch", registry=registry)
        self.seconds = Histogram("workbench_reward_request_seconds", "Seconds of a request to /score, waiting included", registry=registry)
        self.queue = Gauge("workbench_reward_queue_requests", "Requests that wait for a batch", registry=registry)
        self.queue_rows = Gauge("workbench_reward_queue_rows", "Rows that wait for a batch", registry=registry)
        self.queue_limit = Gauge("workbench_reward_queue_limit_rows", "Rows that may wait at most", registry=registry)

    def batch(self, rows: int, seconds: float) -> None:
        """A batch was scored."""
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def page(self, batcher: Batcher) -> bytes:
        """All of it, as GET /metrics answers, with the queue as it is now."""
        self.queue.set(batcher.waiting())
        self.queue_rows.set(batcher.waiting_rows())
        self.queue_limit.set(batcher.max_queue)
        return generate_latest(self.registry)

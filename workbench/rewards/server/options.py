"""The options of ``workbench reward-server``, checked before anything is loaded."""

from dataclasses import dataclass, field

from workbench.errors import ConfigError
from workbench.rewards.wire.address import TOKEN_VARIABLE, is_loopback


@dataclass(frozen=True)
class Serving:
    """The options. Raises ConfigError on what can't be served so. ``port`` 0: any free one; ``device`` None: a GPU where there is one."""

    model: str
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = field(default=None, repr=False)
    dtype: str = "bfloat16"
    device: str | None = None
    max_batch: int = 64
    max_wait_ms: float = 5.0
    max_queue: int = 8192
    shared_mem: str | None = None
    shared_mem_mib: int = 64

    def __post_init__(self) -> None:
        if self.token is not None and (not self.token or not self.token.isascii() or not self.token.isprintable()):
            raise ConfigError("--token", "it is empty, or has characters that no header can carry", "give letters and digits")
        if self.token is None and not is_loopback(self.host):
            found = "everyone who reaches this machine could use it, for there is no token"
            raise ConfigError(f"--host {self.host}", found, f"add --token TOKEN (or set {TOKEN_VARIABLE}), or leave --host out")
        for name, value in (("max-batch", self.max_batch), ("max-queue", self.max_queue), ("shared-mem-mib", self.shared_mem_mib)):
            if value < 1:
                raise ConfigError(f"--{name} {value}", "that is nothing", "give 1 or more")
        if self.max_wait_ms < 0:
            raise ConfigError(f"--max-wait-ms {self.max_wait_ms:g}", "time does not run backwards", "give 0 or more")

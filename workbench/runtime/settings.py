"""How a run meets Ray: ``wb.Ray``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.errors import ConfigError, check_kind, spelled
from workbench.models.purposes import HOOKS, PURPOSES, SECONDS


@spelled(timeout="timeouts", env_vars="env", runtime_env="env", gradient_compression="compression")
@dataclass(frozen=True)
class Ray:
    """Where the workers live: ``Run(runtime=Ray(address="10.0.0.1:6379"))``.

    ``address``: "host:port" of a cluster, "auto" for the one running on this machine; None: RAY_ADDRESS, else a private Ray that ends
    with its last run. ``timeouts``: purpose -> seconds a collective may take ("gradients", "control", "tensor", "shards").
    ``compression``: of gradients, where DDP wraps the model. ``start_timeout``: seconds until every worker must be up. ``env``: variables
    of the workers. A cluster's token is Ray's own business: RAY_AUTH_MODE, RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH; it is never logged.
    """

    address: str | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)
    compression: str | None = None
    start_timeout: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.address is not None:
            check_kind("Ray(address=...)", self.address, str, "text such as 'auto' or '10.0.0.1:6379'")
            check_address(f"Ray(address={self.address!r})", self.address)
        _check_timeouts(self.timeouts)
        if self.compression is not None and self.compression not in HOOKS:
            raise ConfigError(f"Ray(compression={self.compression!r})", "there is no such hook", f"write one of {', '.join(HOOKS)}")
        _check_seconds("Ray(start_timeout=...)", self.start_timeout)
        _check_env(self.env)

    def timeout(self, purpose: str) -> float:
        """Seconds that a collective of ``purpose`` may take."""
        return self.timeouts.get(purpose, SECONDS)


def host_and_port(address: str) -> tuple[str, int]:
    """ "10.0.0.1:6379" as ("10.0.0.1", 6379); an IPv6 host stands in brackets. Raises ValueError where it is neither."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host, int(port)


def check_address(asked: str, address: str) -> None:
    """Raise ConfigError unless ``address`` is "auto" or "host:port". ``asked``: where it was written."""
    if "://" in address:
        found = "a Ray client runs the driver on another machine, and the driver of a run is the process it is started in"
        raise ConfigError(asked, found, "write 'host:6379', the address that `ray start --head` prints")
    if address != "auto":
        try:
            host_and_port(address)
        except ValueError:
            raise ConfigError(asked, "that is no address", "write 'auto' or 'host:6379'") from None


def _check_timeouts(timeouts: Mapping[str, float]) -> None:
    check_kind("Ray(timeouts=...)", timeouts, Mapping, "seconds by purpose, such as {'gradients': 600}")
    for purpose, seconds in timeouts.items():
        if purpose not in PURPOSES:
            raise ConfigError(f"Ray(timeouts={{{purpose!r}: ...}})", "no group has that purpose", f"write one of {', '.join(PURPOSES)}")
        _check_seconds(f"Ray(timeouts={{{purpose!r}: ...}})", seconds)


def _check_seconds(name: str, seconds: float) -> None:
    check_kind(name, seconds, float, "seconds such as 600")
    if not seconds > 0:
        raise ConfigError(f"{name} with {seconds}", "that time is over before it begins", "give seconds such as 600")


def _check_env(env: Mapping[str, str]) -> None:
    check_kind("Ray(env=...)", env, Mapping, "variables such as {'NCCL_DEBUG': 'INFO'}")
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError(f"Ray(env={{{name!r}: {value!r}}})", "variables are text", f"write {str(name)!r}: {str(value)!r}")
        if name == "CUDA_VISIBLE_DEVICES":
            raise ConfigError("Ray(env={'CUDA_VISIBLE_DEVICES': ...})", "each worker sees the GPU that the map gives it", "change the map")

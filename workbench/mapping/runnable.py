"""Which maps this version can run: every role in one process, on one device."""

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.mapping.devices import node_of, number_of
from workbench.mapping.placement import Placement
from workbench.mapping.resolve import named, same_devices
from workbench.roles import Role

if TYPE_CHECKING:
    from workbench.mapping.device_map import DeviceMap

DRIVER = ("cpu:0",)
ONE = "every model shares one device in this version; roles on their own GPU groups come with the Ray runtime"


def check_present(devices: "DeviceMap") -> None:
    """Raise ConfigError where this version can't run the map, or where torch sees no GPU for it."""
    import torch

    check_runnable(devices)
    if devices.device == "cuda" and not torch.cuda.is_available():
        found = "torch sees no GPU here" + ("" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)")
        raise ConfigError(f"actor: {str(devices.actor)!r}", found, "write 'cpu', or see `workbench doctor`")


def limit(devices: "DeviceMap", algo: str | None = None) -> str:
    """Why this version can't run a map that is sound; "" where it can."""
    if algo == "ppo":
        return "it has no PPO"
    try:
        check_runnable(devices)
    except ConfigError as error:
        return error.found
    return ""


def check_runnable(devices: "DeviceMap") -> None:
    """Raise ConfigError where the map contradicts itself, and where one process can't obey it."""
    errors = [finding for finding in devices.check() if finding.severity == "error"]
    if errors:
        first = errors[0]
        more = f" ({len(errors) - 1} more: devices.check())" if len(errors) > 1 else ""
        raise ConfigError(f"{first.asked} ({first.code})", first.found + more, first.fix.text)
    places = devices.places  # an actor and a rollout with devices are there: the checks tell else
    if Role.CRITIC in places:
        raise ConfigError(f"critic: {str(devices.critic)!r}", "no algorithm of this version has one", "leave the critic out")
    _check_models(devices, places[Role.ACTOR], places[Role.ROLLOUT])
    for role, place in places.items():
        if place.nccl_backend in ("p2p", "ring"):
            found = "NCCL connects processes, and this version runs every role in one"
            raise ConfigError(f"{role}: nccl_backend {place.nccl_backend!r}", found, "leave nccl_backend out")
    if not places[Role.REFERENCE].share:
        asked = f"reference: {str(devices.reference)!r}"
        raise ConfigError(asked, "the reference is the actor with its adapter off", "write reference='share:actor'")
    if named(devices, Role.REWARD) != DRIVER:
        raise ConfigError(f"reward: {str(devices.reward)!r}", "rewards are functions in this process", "write reward='cpu'")


def _check_models(devices: "DeviceMap", actor: Placement, rollout: Placement) -> None:
    """Trainer and engine: on one device, and the first."""
    if len(actor.devices) > 1:
        raise ConfigError(f"actor: {str(actor)!r}", ONE, "write 'cpu' or '0'")
    device = named(devices, Role.ACTOR)[0]
    node, number = node_of(device), number_of(device)
    if actor.on_cpu and number:
        raise ConfigError(f"actor: {str(actor)!r}", "one process has the whole CPU: slots of it are for maps that are drawn", "write 'cpu'")
    if node not in ("cpu", "local"):
        found = f"this version runs on the machine that it is started on, and the map names the node {node!r}"
        raise ConfigError(f"actor: {str(actor)!r}", found, f"start it on {node}, and write {str(number)!r}")
    if number:
        fix = f"start the kernel with CUDA_VISIBLE_DEVICES={number} and write '0'"
        raise ConfigError(f"actor: {str(actor)!r}", "in one process every model is on the first visible GPU", fix)
    if not same_devices(devices, Role.ACTOR, Role.ROLLOUT):
        raise ConfigError(f"rollout: {str(rollout)!r} beside actor: {str(actor)!r}", ONE, f"write rollout={str(actor)!r}")
    if rollout.mode not in ("auto", "adapter"):
        fix = "write mode: adapter, or leave it out"
        raise ConfigError(f"rollout: mode {rollout.mode!r}", "this version's engine gets the adapter", fix)

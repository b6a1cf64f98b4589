"""The five roles of RLHF, and the names other frameworks give them."""

from difflib import get_close_matches
from enum import StrEnum

from workbench.errors import ConfigError


class Role(StrEnum):
    """Who does what in a step. There are exactly five; none is a composite of others."""

    ACTOR = "actor"
    CRITIC = "critic"
    ROLLOUT = "rollout"
    REFERENCE = "reference"
    REWARD = "reward"

    @classmethod
    def read(cls, name: str) -> "Role":
        """The role called ``name``, with the aliases of other frameworks: ``ref``, ``ref_model``, ``reward_model``."""
        key = ALIASES.get(name, name)
        if key in cls._value2member_map_:
            return cls(key)
        near = get_close_matches(name, [*cls._value2member_map_, *ALIASES], n=1)
        raise ConfigError(
            f"role {name!r}",
            f"the roles are {', '.join(cls)}",
            f"write {near[0]!r}" if near else "use one of these names",
        )


AT_WORK: dict[str, tuple[Role, ...]] = {  # phase -> roles whose devices work in it
    "rollout": (Role.ROLLOUT,),
    "reward": (Role.REWARD,),
    "reference": (Role.REFERENCE,),
    "values": (Role.CRITIC,),
    "advantages": (),  # a sum in the driver
    "update_critic": (Role.CRITIC,),
    "update_actor": (Role.ACTOR,),
    "sync": (Role.ACTOR, Role.ROLLOUT),
}

ALIASES = {"ref": "reference", "ref_model": "reference", "reference_model": "reference", "reward_model": "reward"}

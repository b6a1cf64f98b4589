"""Which roles there are, who may share with whom, and who may overlap."""

from collections.abc import Iterator
from itertools import combinations

from workbench.findings import Finding, Fix, finding
from workbench.mapping.checks.question import TRAINED, WITH_CRITIC, Question, as_patch, listed, relaid, whole_groups
from workbench.mapping.checks.repair import free, in_order, there
from workbench.mapping.devices import spans
from workbench.mapping.placement import Placement
from workbench.roles import Role


def missing(q: Question) -> Iterator[Finding]:
    """WB111: a role that the algorithm can't do without."""
    if Role.ACTOR not in q.places:
        rollout = q.placed.get(Role.ROLLOUT)
        patch = {"actor": {"devices": rollout.to_dict()["devices"]}} if rollout else {"actor": "cpu"}
        fix = Fix("add the actor, for instance on the rollout's devices", patch)
        yield finding("WB111", Role.ACTOR, f"roles {listed(q.places)}", "there is no actor, and nothing to train", fix)
    elif Role.ROLLOUT not in q.places:
        yield finding(
            "WB111", Role.ROLLOUT, f"roles {listed(q.places)}", "there is no rollout, and nothing to learn from", "add the rollout"
        )
    if q.algo in WITH_CRITIC and Role.CRITIC not in q.places:
        fix = Fix("add critic: share:actor (its own adapter on the actor's base), or GPUs of its own", {"critic": {"share": "actor"}})
        fix = fix if q.lora else _beside_actor(q, "add the critic, for instance on the actor's devices")
        yield finding("WB111", Role.CRITIC, f"algo {q.algo}", "it takes a critic, and the map has none", fix)


def _beside_actor(q: Question, text: str) -> Fix:
    """A critic with a model of its own, on the actor's devices and laid out as the actor."""
    actor = q.placed.get(Role.ACTOR)
    return Fix(text, {"critic": Placement(devices=actor.devices, layout=actor.layout, tp=actor.tp).to_dict()} if actor else None)


def useless(q: Question) -> Iterator[Finding]:
    """WB112: a critic under an algorithm that has none."""
    if q.algo is not None and q.algo not in WITH_CRITIC and Role.CRITIC in q.places:
        fix = Fix("leave the critic out, or use PPO", {"critic": None})
        yield finding(
            "WB112", Role.CRITIC, f"algo {q.algo}", "its advantages come from the group's rewards: a critic would never work", fix
        )


def inference_only(q: Question) -> Iterator[Finding]:
    """WB113: a role that trains, in a group for inference only."""
    for role in TRAINED:
        place = q.places.get(role)
        if place is not None and place.inference_only:
            # No patch: a group forbids these devices to all that train, and only a person knows which of the two was meant.
            fix = "leave inference_only out, or give the role devices that train"
            yield finding("WB113", role, f"{role}: inference_only", f"the {role} trains", fix)


def sharing(q: Question) -> Iterator[Finding]:
    """WB114: a role that can't share, or one that can't be shared with."""
    for role, place in q.places.items():
        if role is Role.CRITIC and place.share == Role.ACTOR and not q.lora:
            found = "without LoRA all weights of both train: they can't be the same ones"
            yield finding(
                "WB114", role, f"{role}: share:actor", found, _beside_actor(q, "name the critic's devices: the actor's, or others")
            )
        if not place.share or (role in (Role.CRITIC, Role.REFERENCE) and place.share == Role.ACTOR):
            continue
        own = role in (Role.ACTOR, Role.ROLLOUT, Role.REWARD)
        host = q.placed.get(Role(place.share)) if place.share in list(Role) else None
        on = host if host is not None else q.placed.get(Role.ACTOR)
        found = f"the {role} has a model of its own" if own else "only the actor's model can be shared"
        if role is Role.REWARD:
            fix = Fix("write reward: cpu for functions, devices for a model, or a service", {"reward": "cpu"})
        elif own:
            patch = {str(role): {"devices": on.to_dict()["devices"]}} if on else None
            fix = Fix(f"name its devices{f': {on.devices[0]} ... as those of the {place.share}' if on else ''}", patch)
        else:
            fix = Fix(f"write {role}: share:actor", {str(role): {"share": "actor"}})
        yield finding("WB114", role, f"{role}: share:{place.share}", found, fix)


def overlap(q: Question) -> Iterator[Finding]:
    """WB115: actor, rollout and critic have the same GPUs or disjoint ones. Reference and reward may overlap any."""
    for first, second in combinations((Role.ACTOR, Role.ROLLOUT, Role.CRITIC), 2):
        a, b = q.placed.get(first), q.placed.get(second)
        if a is None or b is None:
            continue
        mine, theirs = set(q.named(first)), set(q.named(second))
        both = tuple(device for device in q.named(second) if device in mine)
        if not both or mine == theirs:
            continue
        found = f"both have {spans(both)}, and not the same ones beside: they can neither take turns nor work at the same time"
        yield finding("WB115", second, f"{second}: {b} beside {first}: {a}", found, _parted(q, first, second))


def _parted(q: Question, first: Role, second: Role) -> Fix:
    """Other devices for ``second``: as many apart from ``first``, else those of ``first`` if they are as many, else those left apart."""
    text, place, mine = "give them the same devices, or ones apart", q.placed[second], q.named(first)
    apart = tuple(device for device in dict.fromkeys(q.named(second)) if device not in mine and there(q, device))
    pool = in_order(q, (*apart, *free(q, apart)[: len(place.devices) - len(apart)]))
    same = mine if all(there(q, device) for device in mine) and len(set(mine)) == len(mine) else ()
    fewer = whole_groups(place, pool)
    as_many = len(same) == len(place.devices) or (len(fewer) % place.tp > 0 and len(same) % place.tp == 0)
    given = pool if len(pool) == len(place.devices) else (same or fewer) if as_many else (fewer or same)
    if not given:
        return Fix(text)
    other = relaid(place, q.written(given))
    return Fix(f"{text}: {second}: {other}", as_patch({second: other}))

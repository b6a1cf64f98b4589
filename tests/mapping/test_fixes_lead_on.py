"""Every layout, mode, way of training and place of the engine: each is accepted, or refused with fixes of which each is accepted."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import workbench as wb
from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.topology import Topology

MODES = ("auto", "adapter", "merged", "zero_copy", "full")
TASK = wb.tasks.from_list([("1=", "1"), ("2=", "2")], scorer=lambda prompt, completion, answer: 0.0)
SLOTS = Topology.cpu(slots=4)


@dataclass(frozen=True)
class Case:
    """One way of running: what a person can write differently."""

    layout: str
    tp: int  # of the engine
    mode: str
    full: bool
    apart: bool
    quantized: bool = False

    @property
    def devices(self) -> DeviceMap:
        rollout = {"devices": "2-3" if self.apart else "0-1", "tp": self.tp, "mode": self.mode}
        return DeviceMap.load({"actor": f"0-1 {self.layout}", "rollout": rollout})

    def run(self, folder: Path, devices: DeviceMap | None = None) -> None:
        """Make the run that this is. Nothing starts."""
        engine = wb.VLLM(quantization="fp8") if self.quantized else wb.VLLM()
        wb.Run(devices or self.devices, topology=SLOTS, task=TASK, model="small", full=self.full, engine=engine, held_out=0, folder=folder)


CASES = [Case(*values) for values in product(("ddp", "fsdp", "tp2"), (1, 2), MODES, (False, True), (False, True))]


def followed(case: Case, fix: str) -> Iterator[Case]:
    """What a reader makes of each of a fix's alternatives; each of its parts has to be understood."""
    for alternative in re.split(r", or ", fix):
        changed = case
        for part in alternative.split(" and "):
            changed = _part(changed, part)
        if mode := re.fullmatch(r"(?:write )?mode: (\w+) or (\w+)", alternative):
            yield from (replace(case, mode=one) for one in mode.groups())
        else:
            yield changed


def _part(case: Case, part: str) -> Case:
    if mode := re.fullmatch(r"(?:write )?mode: (\w+)(?: or \w+)?", part):
        return replace(case, mode=mode[1])
    if layout := re.fullmatch(r"write the actor's layout: (\w+)", part):
        return replace(case, layout=layout[1])
    plain = {
        "leave the mode out: auto finds one": {"mode": "auto"},
        "leave the mode out": {"mode": "auto"},
        "leave the rollout's mode out": {"mode": "auto"},
        "give actor": {},  # "and rollout the same devices"
        "rollout the same devices": {"apart": False},
        "train an adapter": {"full": False},
        "train all weights: Run(full=True)": {"full": True},
        "no quantization": {"quantized": False},
    }
    return replace(case, **plain[part])


def refused(case: Case, folder: Path) -> ConfigError | None:
    try:
        case.run(folder)
    except ConfigError as error:
        return error
    return None


def test_what_is_refused_says_what_is_accepted(tmp_path: Path) -> None:
    count = 0
    for case in CASES:
        error = refused(case, tmp_path)
        for better in followed(case, error.fix) if error else ():
            count += 1
            after = refused(better, tmp_path)
            assert after is None, (case, error.fix, better, str(after))
    assert count > 40


def test_of_two_reasons_one_is_told_after_the_other(tmp_path: Path) -> None:
    """With weights that are quantized in the engine: no way leads back to where it has been, and each ends."""

    def follow(case: Case, seen: tuple[Case, ...]) -> None:
        assert case not in seen, (case, seen)
        error = refused(case, tmp_path)
        for better in followed(case, error.fix) if error else ():
            follow(better, (*seen, case))

    for case in CASES:
        if case.mode in ("merged", "full"):
            follow(replace(case, quantized=True), ())


def test_what_is_refused_for_good_reasons(tmp_path: Path) -> None:
    """By hand: what can be run at all."""
    for case in CASES:
        if case.full:
            fine = case.mode in ("auto", "full") and not case.apart and case.layout != "tp2"
        elif case.mode == "zero_copy":
            fine = not case.apart and (case.layout, case.tp) in (("ddp", 1), ("tp2", 2))
        else:
            fine = case.mode in ("auto", "adapter") or (case.mode == "merged" and not case.apart)
        assert (refused(case, tmp_path) is None) == fine, case


def test_patches_are_accepted_too(tmp_path: Path) -> None:
    """A finding's patch leaves no error of the map; where all weights are trained, other words tell what the map has to become first."""
    patched = 0
    for case in CASES:
        for finding in case.devices.check(SLOTS, lora=not case.full):
            if finding.severity == "error" and finding.fix.patch is not None:
                after = case.devices.apply(finding)
                assert not [one for one in after.check(SLOTS, lora=not case.full) if one.severity == "error"]
                error = refused(case, tmp_path)
                if error is not None and finding.code in error.asked:
                    case.run(tmp_path, after)
                    patched += 1
    assert patched > 10

"""One PPO step at the shape of Qwen2-1.5B, critic and actor on one base or on two: seconds per phase, memory by GPU.

    python -m benchmarks.ppo_step                        # all maps that fit the GPUs that are there
    python -m benchmarks.ppo_step --only one_base two_bases
    python -m benchmarks.ppo_step --small                # a small model on four CPU slots, to try the script

As ``placements``: random weights, a process per GPU through Ray, all maps in one run of this script. ``memory`` says what torch's allocator
held at most, of which the engine has a fixed share.
"""

import argparse
import tempfile
from typing import Any

import workbench as wb
from benchmarks.common import write
from benchmarks.grpo_step import read
from benchmarks.placements import gpus, make_elsewhere, measure_map

MAPS: dict[str, dict[str, str]] = {
    "one_base": {"actor": "0", "critic": "share:actor"},
    "two_bases": {"actor": "0", "critic": "0"},
    "one_base_on_two": {"actor": "0-1", "critic": "share:actor"},
    "critic_apart": {"actor": "0", "critic": "1", "rollout": "0"},
}


def needs(places: dict[str, str]) -> int:
    """Devices of a map."""
    return 2 if any("1" in place for place in places.values()) else 1


def main() -> None:
    """Parse, measure, write after every map: a later one may fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=MAPS, default=[])
    arguments = read(parser, "ppo_step_h200", steps=5)
    found = gpus()
    algo = wb.PPO(group_size=arguments.group, minibatches=1, kl=0.01)
    figures: dict[str, Any] = {
        "what": "PPO with a KL in the reward, LoRA r16 actor and critic, adapter mode, a process per GPU through Ray",
        "gpus": [gpu["name"] for gpu in found],
        "shape": {"model": arguments.shape, **{k: getattr(arguments, k) for k in ("prompts", "group", "prompt_tokens", "tokens")}},
        "steps": {"measured": arguments.steps - arguments.skip, "skipped": arguments.skip},
        "maps": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        model = make_elsewhere(folder, arguments.shape)
        for name in arguments.only or [name for name, places in MAPS.items() if needs(places) <= (len(found) or 4)]:
            figures["maps"][name] = measure_map(name, MAPS[name], arguments, model, algo=algo)
            write(arguments.name, figures, arguments.out)


if __name__ == "__main__":
    main()

"""The helper that sees what is left in /dev/shm: a block with a living holder is not, the same block after its holder's death is."""

import os
import subprocess
import sys

import pytest

from tests.blocks import SHARED_MEMORY, left_behind

MAPPED = """
import mmap, sys, time
with open(sys.argv[1], "wb+") as file:
    file.truncate(4096)
    block = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
time.sleep(600)
"""
OPENED = """
import sys, time
file = open(sys.argv[1], "wb+")
print("opened", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("program", [MAPPED, OPENED])
def test_a_block_is_left_when_its_holder_is_dead(program: str) -> None:
    block = SHARED_MEMORY / f"wb-test-blocks-{os.getpid()}"
    before = set(SHARED_MEMORY.iterdir())
    holder = subprocess.Popen([sys.executable, "-c", program, str(block)], stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        assert block.exists()
        assert block not in left_behind(before, 0)
        holder.kill()
        holder.communicate()
        assert block in left_behind(before, 0.3)
        assert block not in left_behind(before | {block}, 0)
    finally:
        holder.kill()
        block.unlink()
    assert block not in left_behind(before, 0)

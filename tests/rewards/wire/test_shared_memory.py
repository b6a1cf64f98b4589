"""The block of token ids: sizes, slots, who may take what, and what a killed server leaves behind."""

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from workbench.errors import ConfigError, RewardServiceError
from workbench.rewards.wire.shared_memory import MIB, SHM, SLOTS, Block, Lent, Slots, block_path


@pytest.fixture
def name():
    """A name that no other test session uses."""
    name = f"wb-test-{os.getpid()}-{time.monotonic_ns()}"
    yield name
    (SHM / name).unlink(missing_ok=True)


@pytest.fixture
def block(name):
    made = Block(name, 1)
    yield made
    made.close()


def test_what_one_writes_the_other_reads(block, name):
    slots = pickle.loads(pickle.dumps(Slots(name)))
    assert slots.room() == MIB // SLOTS // 4
    with slots.lent([[1, 2, 3], [2**31 - 1], [7, 8]], 1) as lent:
        assert lent.lengths == [3, 1, 2]
        assert block.read(lent) == [[1, 2, 3], [2**31 - 1], [7, 8]]


def test_every_slot_is_lent_once_and_comes_back(block, name):
    slots = Slots(name)
    held = [slots.lent([[number]], 1) for number in range(SLOTS)]
    lent = [context.__enter__() for context in held]
    assert sorted(each.slot for each in lent) == list(range(SLOTS))
    assert [block.read(each) for each in lent] == [[[number]] for number in range(SLOTS)]
    with pytest.raises(RewardServiceError, match=rf"all {SLOTS} slots were in use for 0\.05 s"), slots.lent([[1]], 0.05):
        pass
    held[3].__exit__(None, None, None)
    with slots.lent([[9]], 0) as again:
        assert again.slot == lent[3].slot
    for context in held[:3] + held[4:]:
        context.__exit__(None, None, None)


def test_many_threads_never_see_each_others_ids(block, name):
    wrong = []

    def work(number):
        for turn in range(50):
            rows = [[number] * (turn + 1), [turn]]
            with Slots(name).lent(rows, 10) as lent:
                if block.read(lent) != rows:
                    wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_client_that_is_killed_holds_no_slot(block, name):
    code = f"""
import contextlib, time
from workbench.rewards.wire.shared_memory import Slots, SLOTS
stack = contextlib.ExitStack()
[stack.enter_context(Slots({name!r}).lent([[1]], 1)) for _ in range(SLOTS)]
print("held", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout.readline() == "held\n"
        with pytest.raises(RewardServiceError, match="in use"), Slots(name).lent([[1]], 0):
            pass
        client.kill()
        client.wait()
    with Slots(name).lent([[1]], 0) as lent:
        assert block.read(lent) == [[1]]
    assert block_path(name).exists(), "a client that ends unlinks nothing"


def test_a_living_servers_block_is_not_taken(block, name):
    with pytest.raises(ConfigError, match=rf"shared memory '{name}': another reward server is using it\n  fix: choose another name"):
        Block(name, 1)
    assert Slots(name).room()


def test_a_killed_servers_block_is_replaced(name):
    imports = "import time; from workbench.rewards.wire.shared_memory import Block"
    code = f"{imports}; b = Block({name!r}, 1); print(b.id.hex(), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        old = server.stdout.readline().strip()
        server.kill()
        server.wait()
    assert block_path(name).exists()
    block = Block(name, 2)
    assert block.read(Lent(old, 0, [1])) is None, "ids in the old block are not looked for in the new one"
    assert Slots(name).room() == 2 * MIB // SLOTS // 4
    block.close()
    block.close()
    assert not block_path(name).exists()


def test_another_programs_block_is_left_alone(name):
    path = block_path(name)
    path.write_bytes(b"something of somebody's" * 10)
    with pytest.raises(ConfigError, match=r"is another program's\n  fix: choose another name"):
        Block(name, 1)
    with pytest.raises(RewardServiceError, match=r"is not a reward server's"):
        Slots(name).room()
    assert path.read_bytes().startswith(b"something")


def test_too_little_memory_is_said_before_anything_is_taken(name):
    state = os.statvfs(SHM)
    free = state.f_bavail * state.f_frsize // MIB
    with pytest.raises(ConfigError, match=r"MiB: /dev/shm has [\d.]+ MiB free\n  fix: write --shared-mem-mib \d+; or make room"):
        Block(name, free + 100)
    assert not block_path(name).exists()


def test_no_shared_memory_at_all(name, tmp_path):
    with pytest.raises(ConfigError, match=r"there is no .*gone\n  fix: leave --shared-mem out"):
        Block(name, 1, tmp_path / "gone")
    with pytest.raises(
        RewardServiceError, match=r"can't be opened: No such file.*\n  fix: start the server on this machine with --shared-mem"
    ):
        Slots(name).room()


@pytest.mark.parametrize("bad", ["", "a/b", "../x", ".hidden", "x" * 101, "a b"])
def test_names(bad):
    with pytest.raises(ConfigError, match="a name has letters"):
        block_path(bad)


@pytest.mark.parametrize("lent", [(8, [1]), (-1, [1]), (0, [0]), (0, [-5, 6]), (0, [40_000])])
def test_what_can_not_lie_in_a_slot(block, lent):
    with pytest.raises(ValueError, match=r"there are 8 slots of 32768 ids"):
        block.read(Lent(block.id.hex(), *lent))


def test_only_the_owner_may_read_it(block):
    assert Path(block.path).stat().st_mode & 0o777 == 0o600

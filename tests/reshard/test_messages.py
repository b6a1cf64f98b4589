"""What one rank does of a schedule; by hand."""

from workbench.reshard.lying import Ddp, Engine, Fsdp
from workbench.reshard.messages import Exchange, readings, resident, work
from workbench.reshard.parameters import Block, Cut, Parameter
from workbench.reshard.schedule import schedule
from workbench.reshard.slices import whole

# rank 0 has the first rows of each, and needs the left half of w and all of the bias and the norm
WIDE = Parameter("w", (4, 6), 2, Cut(1, (Block(6),)))
BIAS = Parameter("bias", (6,), 2)
NORM = Parameter("norm", (2,), 4)
PLAN = schedule([WIDE, BIAS, NORM], Fsdp(2), Engine(2))


def test_messages_by_hand() -> None:
    # out: rows 0-1 of w, columns 3-5; half of the bias; half of the norm, whose elements are wider, first
    mine = work(PLAN, 0, 10**6)
    (exchange,) = mine.exchanges
    assert exchange.sent == exchange.received == ((1, 4 + 12 + 6),)
    assert [(slot.copy.parameter, slot.peer, slot.start) for slot in exchange.incoming] == [("norm", 1, 0), ("w", 1, 4), ("bias", 1, 16)]
    assert {slot.copy.parameter: slot.start for (slot,) in exchange.outgoing} == {"norm": 0, "w": 4, "bias": 16}
    assert exchange.bytes == 44
    assert mine.moving == ("w", "bias", "norm")
    assert [(copy.parameter, copy.bytes) for copy in mine.stays] == [("w", 12), ("bias", 6), ("norm", 4)]


def test_half_a_bucket_goes_out_and_half_comes_in() -> None:
    exchanges = work(PLAN, 0, 36).exchanges
    assert [exchange.bytes for exchange in exchanges] == [36, 8]
    assert [exchange.bytes for exchange in work(PLAN, 0, 24).exchanges] == [24, 20]


def test_a_rank_without_a_part_in_a_bucket_has_an_empty_exchange() -> None:
    # rank 2 is no rank of the engine, and gives its row to both others; 2 bytes fit in and out: 1 to 0; 2 to 0 and 0 to 1; 2 to 1
    plan = schedule([Parameter("w", (3, 2), 2, Cut(1, (Block(2),)))], Fsdp(3), Engine(2))
    assert [exchange.sent for exchange in work(plan, 2, 4).exchanges] == [(), ((0, 2),), ((1, 2),)]
    assert work(plan, 2, 4).exchanges[0] == Exchange((), (), (), ())


def test_what_goes_to_several_ranks_is_read_once() -> None:
    plan = schedule([Parameter("w", (4, 2), 2)], Fsdp(4), Ddp(4))
    (exchange,) = work(plan, 1, 10**6).exchanges
    assert [[slot.peer for slot in same] for same in exchange.outgoing] == [[0, 2, 3]]
    assert [sorted(copy.target_rank for copy in same) for same in readings(plan, 1, 10**6)] == [[0, 1, 2, 3]]


def test_what_is_read_again_is_cut_as_it_was_sent() -> None:
    plan = schedule([Parameter("w", (8, 4), 2)], Fsdp(2), Ddp(2))  # 32 bytes each way, 8 a row
    sent = [slot.copy.part for exchange in work(plan, 0, 32).exchanges for (slot,) in exchange.outgoing]
    assert sent == [((0, 2), (0, 4)), ((2, 4), (0, 4))]
    assert [same[0].part for same in readings(plan, 0, 32)] == sent
    assert [copy.part for copy in work(plan, 0, 32).stays] == sent


def test_what_touches_is_one_slice() -> None:
    plan = schedule([Parameter("w", (8, 4), 2, Cut(1, (Block(4),))), BIAS], Fsdp(4), Engine(2, 2))
    assert len([copy for copy in (*plan.stays, *plan.copies) if copy.target_rank == 3]) == 7  # the bias lies on three ranks
    found = {copy.parameter: copy for copy in resident(plan, 3)}
    assert len(found) == 2
    assert (found["w"].part, found["w"].target_slice, found["w"].bytes) == (((0, 8), (2, 4)), ((0, 8), (0, 2)), 32)
    assert found["bias"].part == whole((6,))


def test_all_ranks_of_a_schedule_have_its_signature() -> None:
    assert work(PLAN, 0, 36).signature == work(PLAN, 1, 36).signature != work(PLAN, 0, 24).signature
    assert schedule([WIDE, BIAS, NORM], Fsdp(2), Engine(2)) == PLAN
    assert hash(schedule([WIDE, BIAS, NORM], Fsdp(2), Engine(2))) == hash(PLAN)

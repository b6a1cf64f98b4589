"""How tensor parallelism cuts a weight; by hand."""

import pytest

from workbench.errors import ConfigError
from workbench.reshard.parameters import Block, Cut, Fused, Parameter, Piece, Shard, fuse

# 4 query heads and 2 key-value heads of 3 rows, 5 inputs
QKV = Parameter("qkv", (24, 5), 2, Cut(0, (Block(12, 4), Block(6, 2, repeated=True), Block(6, 2, repeated=True))))


def rows(shard: Shard) -> list[tuple]:
    """(rows of the parameter, rows of the shard) of each piece."""
    return [(piece.part[0], piece.local[0]) for piece in shard.pieces]


def test_a_shard_of_a_fused_matrix_is_a_slice_of_each_block():
    assert rows(QKV.share(0, 2)) == [((0, 6), (0, 6)), ((12, 15), (6, 9)), ((18, 21), (9, 12))]
    assert rows(QKV.share(1, 2)) == [((6, 12), (0, 6)), ((15, 18), (6, 9)), ((21, 24), (9, 12))]
    assert QKV.share(0, 1).pieces[1] == Piece(((12, 18), (0, 5)), ((12, 18), (0, 5)))


def test_more_shards_than_key_value_heads_hold_the_same_head():
    assert rows(QKV.share(0, 4)) == [((0, 3), (0, 3)), ((12, 15), (3, 6)), ((18, 21), (6, 9))]
    assert rows(QKV.share(1, 4)) == [((3, 6), (0, 3)), ((12, 15), (3, 6)), ((18, 21), (6, 9))]
    assert rows(QKV.share(2, 4)) == [((6, 9), (0, 3)), ((15, 18), (3, 6)), ((21, 24), (6, 9))]


def test_a_block_may_lie_along_another_dimension():
    down = Parameter("down", (5, 8), 2, Cut(1, (Block(8),)))
    assert down.share(1, 4) == Shard((Piece(((0, 5), (2, 4)), ((0, 5), (0, 2))),))


def test_a_padded_vocabulary_leaves_the_last_shares_short_or_empty():
    embedding = Parameter("embedding", (10, 3), 2, Cut(0, (Block(10, padded=16),)))
    assert [rows(embedding.share(rank, 4)) for rank in range(4)] == [[((0, 4), (0, 4))], [((4, 8), (0, 4))], [((8, 10), (0, 2))], []]
    assert [embedding.share(rank, 4).padding for rank in range(4)] == [0, 0, 6, 12]  # elements: rows x 3


def test_parts_that_the_engine_fuses_lie_one_after_the_other_in_its_tensor():
    heads = [("q", 12, 4, False), ("k", 6, 2, True), ("v", 6, 2, True)]
    parts = [Parameter(name, (size, 5), 2, Cut(0, (Block(size, count, repeated),))) for name, size, count, repeated in heads]
    q, k, v = fuse("qkv", parts)
    assert v.fused == Fused("qkv", (Block(12, 4), Block(6, 2, True)))
    for rank in range(4):  # as the fused matrix is cut
        together = [piece.local for part in (q, k, v) for piece in part.share(rank, 4, fused=True).pieces]
        assert together == [piece.local for piece in QKV.share(rank, 4).pieces]
    assert rows(k.share(2, 4)) == [((3, 6), (0, 3))]  # by itself it begins at 0


def test_chunks_as_fsdp_cuts_them():
    bias = Parameter("bias", (9,), 2)
    assert [rows(bias.chunk(rank, 4)) for rank in range(4)] == [[((0, 3), (0, 3))], [((3, 6), (0, 3))], [((6, 9), (0, 3))], []]
    assert rows(Parameter("w", (5, 2), 2).chunk(1, 2)) == [((3, 5), (0, 2))]


def test_chunks_are_those_of_torch():
    import torch

    for size in range(1, 14):
        for ranks in range(1, 9):
            mine = [Parameter("w", (size,), 2).chunk(rank, ranks).pieces for rank in range(ranks)]
            theirs = [len(chunk) for chunk in torch.chunk(torch.zeros(size), ranks)]
            assert [piece.local[0][1] for pieces in mine for piece in pieces] == theirs


@pytest.mark.parametrize(
    ("parameter", "shards", "words"),
    [
        (Parameter("up", (10, 4), 2, Cut(0, (Block(10),))), 4, "up in 4 tensor-parallel shards: it has 10 rows\n  fix: use a size"),
        (Parameter("q", (12, 4), 2, Cut(0, (Block(12, 4),))), 8, "it has 4 heads"),
        (Parameter("q", (12, 4), 2, Cut(0, (Block(12, 4),))), 6, "it has 4 heads"),  # 12 rows could be cut in 6, heads not
        (Parameter("k", (12, 4), 2, Cut(0, (Block(12, 4, True),))), 6, "it has 4 heads"),
        (Parameter("wte", (10, 4), 2, Cut(0, (Block(10, padded=12),))), 5, "it has 12 rows"),
    ],
)
def test_what_can_not_be_cut(parameter, shards, words):
    with pytest.raises(ConfigError, match=words):
        parameter.share(0, shards)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Block(0), "rows are 1 or more"),
        (lambda: Block(10, 3), "a multiple of the heads"),
        (lambda: Block(True), "that is a bool"),
        (lambda: Block(10, repeated=True), "only whole heads are repeated"),
        (lambda: Block(10, padded=9), "padding adds rows"),
        (lambda: Block(10, 2, padded=12), "padding adds rows"),
        (lambda: Parameter("w", (), 2), "one dimension or more"),
        (lambda: Parameter("w", (4, 0), 2), "one dimension or more"),
        (lambda: Parameter("w", (4,), 0), "0 bytes an element"),
        (lambda: Parameter("w", (4,), 2, Cut(0, (Block(3),))), "its blocks have 3 rows along dimension 0"),
        (lambda: Parameter("w", (4,), 2, Cut(1, (Block(4),))), "along dimension 1"),
        (lambda: Parameter("w", (4,), 2, fused=Fused("x", ())), "fused into x and has no cut"),
        (lambda: fuse("x", [Parameter("w", (4,), 2)]), "fuse w into x: they are not all cut along one dimension"),
    ],
)
def test_what_can_not_be(make, words):
    with pytest.raises(ConfigError, match=words):
        make()

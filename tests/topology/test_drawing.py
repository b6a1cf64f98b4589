"""What a drawing shows, and that nothing in it collides, for every machine that it has to draw."""

from dataclasses import replace
from itertools import combinations, pairwise
from time import process_time

import pytest

from tests.topology.machines import crowded, cut_off, machines, odd_pairs, one, pcie
from workbench.palette import THEMES
from workbench.topology import GPU, Topology
from workbench.topology.drawing.casting import Casting, Chip, Entry, Held, Note
from workbench.topology.drawing.fabric import mesh, tracks, width_of
from workbench.topology.drawing.grid import WIDE, grouped, has_mesh, is_even, islands, place
from workbench.topology.drawing.machine import WIDTH, draw
from workbench.topology.drawing.png import png
from workbench.topology.drawing.scene import Arc, Circle, Line, Rect, Scene, Text
from workbench.topology.drawing.summary import MOST_CARDS, MOST_RUNS, MOST_TILES
from workbench.topology.drawing.svg import svg
from workbench.topology.topology import connect

MACHINES = machines()


def texts(scene: Scene) -> list[str]:
    return [item.text for item in scene.items if isinstance(item, Text)]


def arcs(scene: Scene) -> list[Arc]:
    return [item for item in scene.items if isinstance(item, Arc)]


def collisions(scene: Scene) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes overlap by more than a pixel."""
    boxes = sorted(((item.box, item.text) for item in scene.items if isinstance(item, Text)), key=lambda pair: pair[0][1])
    found = []
    for at, ((left, top, right, bottom), text) in enumerate(boxes):
        for (left2, top2, right2, _), other in boxes[at + 1 :]:
            if top2 >= bottom - 1:
                break
            if left2 < right - 1 and left < right2 - 1 and top2 < bottom - 1 and top <= top2:
                found.append((text, other))
    return found


def outside(scene: Scene) -> list[object]:
    """Shapes that leave the canvas."""
    found: list[object] = []
    for item in scene.items:
        if isinstance(item, Text):
            box = item.box
        elif isinstance(item, Rect):
            box = (item.x, item.y, item.x + item.width, item.y + item.height)
        elif isinstance(item, Circle):
            box = (item.x - item.radius, item.y - item.radius, item.x + item.radius, item.y + item.radius)
        elif isinstance(item, Arc):
            box = (min(item.x1, item.x2), item.y, max(item.x1, item.x2), item.y + item.depth)
        else:
            box = (min(item.x1, item.x2), min(item.y1, item.y2), max(item.x1, item.x2), max(item.y1, item.y2))
        if box[0] < 0 or box[1] < 0 or box[2] > scene.width or box[3] > scene.height:
            found.append(item)
    return found


@pytest.mark.parametrize("is_crowded", [False, True], ids=["alone", "crowded"])
@pytest.mark.parametrize("name", MACHINES)
def test_nothing_collides_or_leaves_the_canvas(name: str, is_crowded: bool) -> None:
    topology = MACHINES[name]
    scene = draw(topology, crowded(topology) if is_crowded else None)
    assert scene.width == WIDTH
    assert collisions(scene) == []
    assert outside(scene) == []
    assert all(item.text for item in scene.items if isinstance(item, Text) and item.size > 11)


@pytest.mark.parametrize("name", MACHINES)
def test_boxes_lie_within_one_another_or_apart(name: str) -> None:
    scene = draw(MACHINES[name])
    tiles = [item for item in scene.items if isinstance(item, Rect) and item.fill in ("tile",)]
    areas = [item for item in scene.items if isinstance(item, Rect) and item.fill == "area"]
    assert len(tiles) == len(MACHINES[name].gpus)
    for tile in tiles:
        assert sum(_within(tile, area) for area in areas) == 1
    for a, b in combinations(areas, 2):
        assert a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y


def _within(inner: Rect, outer: Rect) -> bool:
    right, bottom = outer.x + outer.width, outer.y + outer.height
    return outer.x <= inner.x and inner.x + inner.width <= right and outer.y <= inner.y and inner.y + inner.height <= bottom


@pytest.mark.parametrize("name", MACHINES)
def test_every_colour_has_its_shade_in_both_themes(name: str) -> None:
    topology = MACHINES[name]
    used = set()
    for item in draw(topology, crowded(topology)).items:
        used |= {item.fill, item.stroke} if isinstance(item, Rect | Circle) else {item.colour}
    assert used - {""} <= set(THEMES["light"]) & set(THEMES["dark"])


def test_text_is_never_coloured() -> None:
    topology = MACHINES["dgx1-v100"]
    colours = {item.colour for item in draw(topology, crowded(topology)).items if isinstance(item, Text)}
    assert colours <= {"ink", "muted", "paper"}


def test_all_to_all_is_one_band() -> None:
    scene = draw(MACHINES["dgx-a100"])
    assert "NVSwitch, all to all · NV12 · about 300 GB/s" in texts(scene)
    assert arcs(scene) == []


def test_bridges_and_infinity_fabric_are_called_so() -> None:
    assert "NVLink · NV4 · about 56 GB/s" in texts(draw(MACHINES["rtx3090-2-bridge"]))
    assert "Infinity Fabric, all to all · XGMI · about 48 GB/s" in texts(draw(MACHINES["mi300x-8"]))
    assert "NVLink, all to all · NV6 · about 300 GB/s" in texts(draw(Topology.preset("gb200-nvl4")))  # 3 x 6 links: no switch


def test_a_mesh_is_lines_as_thick_as_it_has_links() -> None:
    lines = arcs(draw(MACHINES["dgx1-v100"]))
    assert len(lines) == 16  # the hybrid cube mesh: 8 of one link, 8 of two
    widths = sorted({line.width for line in lines})
    assert widths == [1.4, 2.8]
    assert [sum(line.width == width for line in lines) for width in widths] == [8, 8]
    assert "local:0 - local:3: NV2, about 50 GB/s" in next(line.hint for line in lines if line.hint.startswith("local:0 - local:3"))


def test_lines_of_a_mesh_have_ports_of_their_own_and_those_of_one_gpu_do_not_cross() -> None:
    topology = MACHINES["dgx1-v100"]
    row = place(grouped(topology, "local"), 0, 860, WIDE)[0]
    lines = mesh(topology, row, topology.ids, 0)
    ends = sorted(x for line in lines for x in (line.x1, line.x2))
    assert min(b - a for a, b in pairwise(ends)) > 8
    for slot in row.slots:
        mine = sorted(_ways(lines, slot.x, slot.right), key=lambda way: way[0])
        left, right = [w for w in mine if w[1] < w[0]], [w for w in mine if w[1] > w[0]]
        assert mine == left + right
        assert [w[1] for w in left] == sorted((w[1] for w in left), reverse=True)  # near, then far
        assert [w[1] for w in right] == sorted((w[1] for w in right), reverse=True)  # far, then near


def _ways(lines: list[Arc], left: float, right: float) -> list[tuple[float, float]]:
    both = [(line.x1, line.x2) for line in lines] + [(line.x2, line.x1) for line in lines]
    return [(x, other) for x, other in both if left <= x <= right]


def test_widths_grow_with_links() -> None:
    assert [width_of(lanes, [1, 2, 4]) for lanes in (1, 2, 4)] == pytest.approx([1.4, 2.8, 5.6])
    assert width_of(3, [3]) == 1.4
    assert width_of(18, [1, 18]) == 7.0


def test_tracks_keep_overlapping_spans_apart() -> None:
    assert tracks([(0, 10), (5, 15), (12, 20), (16, 30)]) == [0, 1, 0, 1]
    assert tracks([]) == []


def test_bands_that_cross_have_tracks_of_their_own() -> None:
    topology = odd_pairs()
    bands = [item for item in draw(topology).items if isinstance(item, Rect) and item.fill == "band"]
    assert len(bands) == 2
    assert has_mesh(topology, "local") is False
    assert [is_even(topology, island) for island in islands(topology, "local")] == [True, True]


def test_switches_are_brackets_and_cards_stand_near_their_gpus() -> None:
    said = texts(draw(MACHINES["dgx-a100"]))
    assert said.count("PXB") == 4
    assert {"mlx5_0", "mlx5_9"} <= set(said)
    assert "mlx5_4, mlx5_5, mlx5_10, mlx5_11 are far from every GPU (SYS)" in said
    nested = texts(draw(pcie()))
    assert (nested.count("PXB"), nested.count("PIX")) == (1, 2)
    assert "Peer to peer: no two GPUs may read each other's memory" in nested


def test_what_lies_between_other_pairs_is_said() -> None:
    assert "Between the other pairs: SYS, about 6 GB/s" in texts(draw(MACHINES["dgx1-v100"]))
    assert "Between GPUs: NODE, about 17.5 GB/s; SYS, about 12.5 GB/s" in texts(draw(MACHINES["l40s-4"]))


def test_nodes_are_joined_by_their_network() -> None:
    two = texts(draw(MACHINES["2xdgx-a100"]))
    assert {"node1", "node2", "network · about 25 GB/s a GPU, one direction"} <= set(two)
    assert "16 GPUs, 2 nodes, 24 network cards" in two


def test_what_is_not_known_is_marked() -> None:
    said = texts(draw(cut_off()))
    assert "8 GPUs · incomplete" in said
    assert "? 21 of 28 links between GPUs are not known" in said
    assert "CPUs not known" in said
    assert "8 x GPU (type and memory not known)" in said
    assert "?" in said  # before each warning


def test_a_fabric_of_which_most_pairs_are_known_is_a_dashed_band() -> None:
    topology = Topology.preset("hgx-h100")
    scene = draw(replace(topology, links=topology.links[:-3], complete=False))
    assert "NVSwitch, all to all but for 3 pairs not known · NV18 · about 450 GB/s" in texts(scene)
    assert [item.dashed for item in scene.items if isinstance(item, Rect) and item.fill == "band"] == [True]
    assert len(arcs(draw(cut_off()))) == 7  # of which little is known: what is certain


def test_cpu_slots_are_called_so_and_dashed() -> None:
    scene = draw(Topology.cpu(4))
    assert {"CPU slot 0", "stands for a GPU", "4 CPU slots, each stands for a GPU"} <= set(texts(scene))
    assert sum(isinstance(item, Rect) and item.dashed for item in scene.items) == 4


def test_names_of_mixed_gpus_are_on_their_tiles() -> None:
    gpus = (GPU(0, name="NVIDIA GeForce RTX 4090", memory_gib=24.0), GPU(1, name="NVIDIA GeForce GT 1030", memory_gib=2.0))
    assert {"RTX 4090 · 24 GiB", "GT 1030 · 2 GiB"} <= set(texts(draw(Topology("mixed", gpus))))


def chip(lane: str, group: str, text: str) -> Chip:
    return Chip(lane, "rollout", (text,), group)


def test_one_bar_for_what_holds_a_model_together() -> None:
    topology = MACHINES["dgx-a100"]
    chips = {id: (chip("rollout", f"rollout {at // 2}", f"rollout tp2 #{at // 2}"),) for at, id in enumerate(topology.ids)}
    scene = draw(topology, Casting(chips, lanes=("rollout",)))
    bars = [item for item in scene.items if isinstance(item, Rect) and item.fill == "rollout-soft"]
    assert len(bars) == 4
    assert [text for text in texts(scene) if text.startswith("rollout")] == [f"rollout tp2 #{at}" for at in range(4)]


def test_bars_of_different_gpus_share_a_line() -> None:
    topology = MACHINES["dgx-a100"]
    chips = {id: (chip("actor", "a", "actor") if at < 4 else chip("critic", "c", "critic"),) for at, id in enumerate(topology.ids)}
    bars = [
        item for item in draw(topology, Casting(chips, lanes=("actor", "critic"))).items if isinstance(item, Rect) and "-soft" in item.fill
    ]
    assert len({bar.y for bar in bars}) == 1


def test_gpus_without_a_role_are_hatched() -> None:
    topology = MACHINES["l40s-4"]
    scene = draw(topology, Casting({"local:0": (chip("actor", "a", "actor"),)}, lanes=("actor",)))
    assert texts(scene).count("mapped to nothing") == 3
    assert sum(isinstance(item, Line) and item.colour == "hair" for item in scene.items) > 20
    assert "mapped to nothing" not in texts(draw(topology))  # nobody was to be mapped


def test_notes_have_numbers_at_their_gpus() -> None:
    note = Note(1, "error", "WB301 · a title", "what is wrong", "what to do", ("local:2",))
    scene = draw(MACHINES["l40s-4"], Casting({"local:2": (chip("actor", "a", "actor"),)}, lanes=("actor",), notes=(note,)))
    assert texts(scene).count("1") == 2
    assert {"WB301 · a title", "what is wrong", "Fix: what to do", "error", "1 error"} <= set(texts(scene))
    discs = [item for item in scene.items if isinstance(item, Circle) and item.fill == "error"]
    assert len(discs) == 2


def test_no_notes_are_good_news_but_only_where_somebody_judged() -> None:
    good = "No findings: nothing is wrong with this map"
    assert good in texts(draw(one(), Casting(notes=())))
    assert good not in texts(draw(one()))
    partly = texts(draw(one(), Casting(notes=(), unchecked="memory was not checked: no model given")))
    assert {"No findings", "memory was not checked: no model given"} <= set(partly)
    assert good not in partly


def test_words_of_the_key_are_explained_once_and_where_they_are() -> None:
    words = {"hybrid": "actor and rollout take turns"}
    entries = tuple(Entry("actor", name, "0-3, hybrid", words=words) for name in ("actor", "rollout"))
    scene = draw(MACHINES["l40s-4"], Casting(entries=(*entries, Entry("reward", "reward", "CPU"))))
    assert texts(scene).count("hybrid: actor and rollout take turns") == 1
    hints = [item.hint for item in scene.items if isinstance(item, Text) and item.text in ("actor", "0-3, hybrid", "reward", "CPU")]
    assert hints == ["hybrid: actor and rollout take turns"] * 3 + ["", ""]
    assert "hybrid: actor and rollout take turns" in scene.description


def held(gib: float, of: float | None = 45.0, over: bool = False) -> Casting:
    return Casting({"local:0": (chip("actor", "a", "actor"),)}, lanes=("actor",), memory={"local:0": Held(gib, of, over, "weights")})


def memory_bars(scene: Scene) -> list[tuple[str, float]]:
    """Colour and width of the bars of memory, the whole one first."""
    return [(item.fill, item.width) for item in scene.items if isinstance(item, Rect) and item.hint == "weights"]


def test_memory_is_a_bar_as_long_as_it_is_full() -> None:
    scene = draw(MACHINES["l40s-4"], held(9.0))
    (whole, width), (part, filled) = memory_bars(scene)
    assert (whole, part) == ("band", "wire")
    assert filled / width == pytest.approx(0.2)
    assert "L40S · 9.0 of 45 GiB" in texts(scene)
    assert texts(scene).count("L40S · 45 GiB") == 3  # the others hold nothing


def test_too_much_memory_is_a_full_bar_in_the_colour_of_errors() -> None:
    (_, width), (colour, filled) = memory_bars(draw(MACHINES["l40s-4"], held(90.0, over=True)))
    assert (colour, filled) == ("error", width)


def test_memory_of_unknown_size_is_a_number_alone() -> None:
    scene = draw(MACHINES["l40s-4"], held(9.0, None))
    assert memory_bars(scene) == []
    assert "L40S · 9.0 of ? GiB" in texts(scene)


@pytest.mark.parametrize("name", ["l40s-4", "dgx-a100", "3xdgx1-v100", "8xhgx-h100"])
def test_bars_of_memory_collide_with_nothing(name: str) -> None:
    topology = MACHINES[name]
    memory = {id: Held(123.4, 45.0, True, "weights") for id in topology.ids}
    scene = draw(topology, replace(crowded(topology), memory=memory, sums=("node1:0-7,node2:0-7: 123.4 of 45.0 GiB",) * 9))
    assert len(memory_bars(scene)) == 2 * len(topology.gpus)
    assert collisions(scene) == []
    assert outside(scene) == []
    assert "and 3 more" in texts(scene)


def test_sixteen_gpus_take_less_than_50_ms() -> None:
    topology = Topology.preset("2xdgx-a100")
    casting = crowded(topology)
    assert min(_seconds(topology, casting) for _ in range(5)) < 0.05  # others may use the machine


def _seconds(topology: Topology, casting: Casting) -> float:
    begin = process_time()
    svg(draw(topology, casting))
    return process_time() - begin


def test_a_clique_of_different_links_is_a_mesh() -> None:
    gpus = [GPU(index, name="Tesla V100") for index in range(3)]
    topology = Topology(
        "uneven", tuple(gpus), connect(gpus, {("local:0", "local:1"): "NV2", ("local:0", "local:2"): "NV1", ("local:1", "local:2"): "NV1"})
    )
    assert has_mesh(topology, "local") is True
    assert len(arcs(draw(topology))) == 3


BIG = {
    "1024 slots": lambda: Topology.cpu(1024),
    "200 unknown": lambda: Topology("unknown", tuple(GPU(index) for index in range(200))),
    "64xl40s-4": lambda: Topology.preset("64xl40s-4"),
    "mesh": lambda: mesh_of(100),
}


def mesh_of(count: int) -> Topology:
    gpus = tuple(GPU(index) for index in range(count))
    names = {(a.id, b.id): f"NV{1 + (a.index + b.index) % 2}" for a, b in combinations(gpus, 2)}
    return Topology("mesh", gpus, connect(gpus, names))


@pytest.mark.parametrize("name", BIG)
def test_many_gpus_are_few_shapes_soon(name: str) -> None:
    topology = BIG[name]()
    casting = crowded(topology)
    begin = process_time()
    scene = draw(topology, casting)
    written = svg(scene)
    assert process_time() - begin < 0.5  # tiles of 256 GPUs took 4 s
    assert len(scene.items) < 1500
    assert len(written) < 200_000
    assert collisions(scene) == []
    assert outside(scene) == []
    png(draw(one()))  # matplotlib is there from now on
    begin = process_time()
    png(draw(topology))
    assert process_time() - begin < 1


def test_nodes_alike_are_one_card() -> None:
    topology = Topology.preset("64xl40s-4")
    actors, engines = topology.ids[: 30 * 4], topology.ids[30 * 4 :]
    chips = {id: (Chip("actor", "update_actor", ("actor", "actor"), f"actor {id}", hint=f"actor on {id}"),) for id in actors}
    chips |= {id: (Chip("rollout", "rollout", (f"rollout tp2 #{id}", "rollout"), f"{at // 2}"),) for at, id in enumerate(engines[:-4])}
    notes = (Note(1, "error", "a title", "what", devices=("node7:2",)),)
    said = texts(draw(topology, Casting(chips, lanes=("actor", "rollout"), notes=notes)))
    assert [text for text in said if text.startswith("node")] == ["node1 ... (29 alike)", "node7", "node31 ... (33 alike)", "node64"]
    assert [text for text in said if " on " in text] == ["actor on 4", "actor on 4", "rollout on 4"]
    assert said.count("4 x NVIDIA L40S, 45 GiB") == said.count("no NVLink · NODE, SYS") == 4
    assert said.count("4 mapped to nothing") == 1
    assert said.count("1") == 2  # at node7 and at the note


def test_bars_of_a_card_reach_as_far_as_their_gpus() -> None:
    topology = Topology.cpu(200)
    chips = {id: (chip("actor" if at < 50 else "rollout", "", "x"),) for at, id in enumerate(topology.ids[:150])}
    scene = draw(topology, Casting(chips, lanes=("actor", "rollout")))
    assert {"Slots 0 to 199", "actor on 50", "rollout on 100", "50 mapped to nothing"} <= set(texts(scene))
    (line,) = [item.width for item in scene.items if isinstance(item, Rect) and item.fill == "area"]
    widths = [item.width / line for item in scene.items if isinstance(item, Rect) and item.fill == "rollout-soft"]
    assert widths == pytest.approx([0.25, 0.5])


def test_what_changes_too_often_is_one_bar() -> None:
    topology = Topology.cpu(200)
    chips = {id: (chip("actor", "", "x"),) for id in topology.ids[::2]}
    assert len(chips) > MOST_RUNS
    assert "actor on 100 of 199" in texts(draw(topology, Casting(chips, lanes=("actor",))))


def test_links_of_a_card_in_words() -> None:
    assert "all to all · NV18" in texts(draw(Topology.preset("9xhgx-h100")))
    assert {"islands: 1 of 8 · NV1, NV2", "else SYS"} <= set(texts(draw(Topology.preset("9xdgx1-v100"))))
    assert "? links not known" in texts(draw(BIG["200 unknown"]()))
    assert len(MACHINES["8xhgx-h100"].gpus) == MOST_TILES
    assert "all to all · NV18" not in texts(draw(MACHINES["8xhgx-h100"]))  # as many are drawn one by one


def test_more_cards_than_a_page_holds_are_counted() -> None:
    gpus = tuple(GPU(index, node=f"n{node}", memory_gib=float(node)) for node in range(1, 41) for index in range(2))
    said = texts(draw(Topology("all different", gpus)))
    assert sum(text.startswith("2 x GPU") for text in said) == MOST_CARDS
    assert any(text.startswith("and 8 more nodes: n33, n34") for text in said)

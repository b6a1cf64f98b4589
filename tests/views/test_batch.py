"""The batch as a table: grouped, shaded by sign, safe, and honest about groups that teach nothing."""

import pytest

from workbench.batch import Batch, Completion, Prompt
from workbench.errors import ConfigError
from workbench.views.batch import BatchTable, batch_table


def said(text: str, finish: str = "stop") -> Completion:
    return Completion(tuple(range(len(text))), (-0.1,) * len(text), text, finish)


@pytest.fixture(name="batch")
def batch_fixture() -> Batch:
    return Batch(
        prompts=(Prompt("sort 312=", (1, 2), "123", 0, "sort 312="), Prompt("<i>sort</i> 98=\n", (1,), "89", 1, "<i>sort</i> 98=\n")),
        completions=(said("123"), said("<script>x</script> ", "length"), said("89"), said("89")),
        rewards=(1.0, -0.5, 1.0, 1.0),
        advantages=(1.5, -0.75, 0.0, 0.0),
    )


def test_text_is_grouped_by_prompt(batch: Batch) -> None:
    assert batch_table(batch).text.splitlines() == [
        "2 prompts, 4 completions · mean reward 0.62 · 1 of 2 groups without variance",
        "",
        "sort 312=   answer 123 · mean reward 0.25",
        "  reward  advantage  tokens  end     completion",
        "       1      +1.50       3  stop    123",
        "   -0.50      -0.75      19  length  <script>x</script>·",
        "",
        "<i>sort</i> 98=↵   answer 89 · mean reward 1 · no variance",
        "  reward  advantage  tokens  end   completion",
        "       1          0       2  stop  89",
        "       1          0       2  stop  89",
    ]


def test_html_is_escaped(batch: Batch) -> None:
    html = batch_table(batch).html
    assert "<script" not in html
    assert "<i>" not in html
    assert "&lt;script&gt;x&lt;/script&gt;" in html


def test_shades_tell_the_sign_and_the_size(batch: Batch) -> None:
    html = batch_table(batch).html
    assert 'background:rgba(15,108,189,0.38)">+1.50' in html
    assert 'background:rgba(207,74,26,0.19)">-0.75' in html
    assert html.count("background:") == 2 + 4  # both advantages that are not zero, and every reward


def test_a_group_without_variance_is_marked_and_explained(batch: Batch) -> None:
    html = batch_table(batch).html
    assert html.count("no gradient from this group") == 1
    assert html.count("no variance") == 1


def test_many_groups_are_cut_and_the_rest_is_announced(batch: Batch) -> None:
    table = BatchTable(batch, groups=1)
    assert table.text.endswith("1 more groups; run.batch.show(groups=2) shows all")
    assert table.show(groups=2).text.count("sort") == 2
    assert "98" not in table.html.split("1 more groups")[0].split("sort 312=")[1]


def test_long_texts_are_shortened(batch: Batch) -> None:
    assert "&lt;script…" in BatchTable(batch, characters=8).html


def test_a_batch_before_its_rewards(batch: Batch) -> None:
    table = batch_table(Batch(batch.prompts, batch.completions))
    assert "variance" not in table.text
    assert "       —          —       3  stop    123" in table.text
    assert "background:" not in table.html


def test_an_empty_batch_is_a_table_without_rows() -> None:
    assert batch_table(Batch((), ())).text == "0 prompts, 0 completions"


def test_a_table_of_no_group_is_refused(batch: Batch) -> None:
    with pytest.raises(ConfigError, match="batch table of 0 groups"):
        BatchTable(batch, groups=0)


def test_tensors_are_padded_on_the_right_and_grouped() -> None:
    prompts = (Prompt("a", (5, 6), "", 0, "a"), Prompt("b", (7,), "", 1, "b"))
    completions = tuple(Completion(ids, tuple(-float(i) for i in ids), "", "stop") for ids in ((1,), (2, 3), (4, 1, 1), (9,)))
    tensors = BatchTable(Batch(prompts, completions, (0.0, 1.0, 2.0, 3.0), (-1.0, 1.0, -1.0, 1.0))).tensors()
    assert tensors.ids.tolist() == [[5, 6, 1, 0], [5, 6, 2, 3], [7, 4, 1, 1], [7, 9, 0, 0]]
    assert tensors.response.int().tolist() == [[0, 0, 1, 0], [0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 0, 0]]
    assert tensors.logp.tolist() == [[0, 0, -1, 0], [0, 0, -2, -3], [0, -4, -1, -1], [0, -9, 0, 0]]
    assert tensors.rewards.tolist() == [[0, 1], [2, 3]]
    assert tensors.advantages.tolist() == [[-1, 1], [-1, 1]]

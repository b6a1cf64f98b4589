"""Outputs as a code host and as an offline page show them."""

from typing import Any

from nbformat.v4 import new_output

from workbench.headless.shown import WIDGET, on_a_host, on_a_page

IMG = '<img alt="curves" src="data:image/png;base64,AAAA">'
TWIN = {WIDGET: {"model_id": "m"}, "text/plain": "words", "text/html": f"<b>head</b>{IMG}<i>foot</i>", "image/png": "BBBB"}


def output(data: dict[str, Any], **more: Any) -> Any:
    return new_output("execute_result", data=data, execution_count=3, **more)


def test_a_view_becomes_words_picture_words() -> None:
    shown = on_a_host(output(TWIN))
    assert [one.output_type for one in shown.outputs] == ["execute_result", "display_data", "display_data"]
    assert [dict(one.data) for one in shown.outputs] == [
        {"text/plain": "words", "text/html": "<b>head</b>"},
        {"image/png": "AAAA", "text/plain": "curves"},
        {"text/html": "<i>foot</i>"},
    ]
    assert (shown.outputs[0].execution_count, shown.remarks) == (3, ())


def test_a_page_keeps_html_whole_and_drawings_for_pictures() -> None:
    drawing = '<svg id="a" class="wb-machine" width="1"><text>x</text></svg>'
    shown = on_a_page(output({**TWIN, "text/html": f"{drawing}{IMG}<script>s()</script>{IMG}"}))
    (one,) = shown.outputs
    assert one.data["text/html"] == f"{drawing}{IMG}"
    assert WIDGET not in one.data
    assert len(shown.remarks) == 1


def test_a_picture_without_html_stays_with_its_size() -> None:
    sizes = {"image/png": {"width": 3}, "other": 1}
    shown = on_a_host(output({"image/png": "AAAA", "image/svg+xml": "<svg/>", "text/plain": "<Figure>"}, metadata=sizes))
    assert dict(shown.outputs[0].data) == {"image/png": "AAAA", "text/plain": "<Figure>"}
    assert shown.outputs[0].metadata == {"image/png": {"width": 3}}


def test_a_widget_of_others_has_its_text_and_a_remark() -> None:
    shown = on_a_host(output({WIDGET: {"model_id": "m"}, "text/plain": "IntSlider(value=0)"}))
    assert dict(shown.outputs[0].data) == {"text/plain": "IntSlider(value=0)"}
    assert shown.remarks == ("is a widget without a static twin: its text stands there",)


def test_a_script_alone_is_text_and_a_remark() -> None:
    shown = on_a_host(output({"text/html": "<div></div><script>plot()</script>", "text/plain": "Plot"}))
    assert dict(shown.outputs[0].data) == {"text/plain": "Plot"}
    assert "needs JavaScript" in shown.remarks[0]


def test_a_script_with_a_picture_beside_it_is_no_loss() -> None:
    shown = on_a_host(output({"text/html": "<script>plot()</script>", "image/png": "AAAA"}))
    assert (dict(shown.outputs[0].data), shown.remarks) == ({"image/png": "AAAA"}, ())


def test_what_nobody_shows_is_left_out_and_told_of() -> None:
    shown = on_a_host(new_output("display_data", data={"application/vnd.plotly.v1+json": {}}))
    assert shown.outputs == ()
    assert "is of application/vnd.plotly.v1+json alone" in shown.remarks[0]


def test_streams_and_errors_stay() -> None:
    for one in (new_output("stream", text="x"), new_output("error", ename="E", evalue="v", traceback=[])):
        assert on_a_host(one).outputs == on_a_page(one).outputs == (one,)

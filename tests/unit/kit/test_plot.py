"""A drawing of lines over time: where its points are, where lines are interrupted, what its axes state."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from e2e.kit.plot import HEIGHT, LEFT, TOP, WIDTH, Chart, Line, Point, Span, drawn


def chart(*lines: Line, limit: float | None = None, spans: tuple[Span, ...] = ()) -> Chart:
    """A hundred seconds, sampled every two."""
    return Chart("Rows & more", lines, 100, 2, lambda value: f"{value:g} s", limit, spans)


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return [each for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}" + tag)]


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in elements(svg, "text")]


def places(svg: str) -> list[list[Point]]:
    """Of each polyline, in pixels."""
    runs = [each.attrib["points"].split() for each in elements(svg, "polyline")]
    return [[(float(x), float(y)) for x, y in (place.split(",") for place in run)] for run in runs]


def test_a_line_is_where_its_values_are() -> None:
    svg = drawn(chart(Line("a", ((0, 0), (2, 50), (4, 100)))))

    (run,) = places(svg)
    top = 150  # the next mark above the largest value
    assert run == [
        pytest.approx((LEFT, TOP + HEIGHT)),
        pytest.approx((LEFT + WIDTH * 0.02, TOP + HEIGHT * (1 - 50 / top)), abs=0.06),
        pytest.approx((LEFT + WIDTH * 0.04, TOP + HEIGHT * (1 - 100 / top)), abs=0.06),
    ]


def test_a_line_is_interrupted_where_samples_are_missing_and_a_lone_one_is_a_dot() -> None:
    svg = drawn(chart(Line("a", ((0, 1), (2, 1), (8, 1), (10, 1), (20, 1)))))

    assert [len(run) for run in places(svg)] == [2, 2]
    (dot,) = elements(svg, "circle")
    assert float(dot.attrib["cx"]) == pytest.approx(LEFT + WIDTH * 0.2, abs=0.06)


def test_each_line_has_a_colour_and_its_name_in_it() -> None:
    svg = drawn(chart(Line("a", ((0, 1), (2, 1))), Line("b", ((0, 2), (2, 2)))))

    drawn_in = [each.attrib["stroke"] for each in elements(svg, "polyline")]
    dashes = [each.attrib["stroke"] for each in elements(svg, "line") if each.attrib.get("stroke-width") == "3"]
    assert drawn_in == dashes
    assert len(set(drawn_in)) == 2
    assert texts(svg)[-2:] == ["a", "b"]


def test_lines_of_one_name_have_one_colour_and_are_named_once() -> None:
    svg = drawn(chart(Line("a", ((0, 1), (2, 1))), Line("a", ((6, 1), (8, 1))), Line("b", ((0, 2), (2, 2)))))

    first, second, other = [each.attrib["stroke"] for each in elements(svg, "polyline")]
    assert first == second != other
    assert texts(svg)[-2:] == ["a", "b"]


def test_names_continue_in_the_next_row_and_none_leaves_the_drawing() -> None:
    names = [f"a/events-{number:02}/0" for number in range(20)]
    svg = drawn(chart(*(Line(name, ((0, 1), (2, 1))) for name in names)))

    shown = [each for each in elements(svg, "text") if each.text in names]
    assert [each.text for each in shown] == names
    assert len({each.attrib["y"] for each in shown}) > 1
    root = ElementTree.fromstring(svg)
    assert max(float(each.attrib["y"]) for each in shown) < float(root.attrib["height"])
    assert all(float(each.attrib["x"]) + 7 * len(each.text or "") < float(root.attrib["width"]) for each in shown)


@pytest.mark.parametrize(
    ("most", "marks"),
    [
        (0, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        (1, (0, 0.5, 1, 1.5)),
        (4, (0, 1, 2, 3, 4, 5)),
        (90, (0, 20, 40, 60, 80, 100)),
        (2500, (0, 1000, 2000, 3000)),
        (0.03, (0, 0.01, 0.02, 0.03, 0.04)),
    ],
)
def test_the_marks_of_the_value_axis_are_round_and_end_above_the_largest(most: float, marks: tuple[float, ...]) -> None:
    assert chart(Line("a", ((0, most),))).ticks == pytest.approx(marks)


def test_axes_are_labelled_with_the_unit_and_with_minutes() -> None:
    shown = texts(drawn(chart(Line("a", ((0, 90),)))))

    assert shown[0] == "Rows & more"
    assert "60 s" in shown
    assert [text for text in shown if ":" in text] == [f"{at // 60}:{at % 60:02}" for at in range(0, 101, 10)]


def test_what_lasted_is_a_bar_below_the_time_axis() -> None:
    svg = drawn(chart(Line("a", ((0, 1),)), spans=(Span("freeze <r2>", 20, 60), Span("kill r1", 98, 150))))

    first, second = [each for each in elements(svg, "rect") if each.attrib["fill"] != "none"]
    assert float(first.attrib["x"]) == pytest.approx(LEFT + WIDTH * 0.2, abs=0.06)
    assert float(first.attrib["width"]) == pytest.approx(WIDTH * 0.4, abs=0.06)
    assert float(first.attrib["y"]) > TOP + HEIGHT
    assert float(second.attrib["x"]) + float(second.attrib["width"]) <= LEFT + WIDTH + 2
    (beyond,) = [each for each in elements(svg, "text") if each.text == "kill r1"]
    assert (beyond.attrib["text-anchor"], float(beyond.attrib["x"]) < float(second.attrib["x"])) == ("end", True)
    assert "freeze <r2>" in texts(svg)


@pytest.mark.parametrize(("limit", "shown"), [(30, True), (None, False), (500, False)])
def test_a_limit_is_shown_where_the_values_come_near_it(limit: float | None, shown: bool) -> None:
    svg = drawn(chart(Line("a", ((0, 50), (2, 90))), limit=limit))

    red = [each for each in elements(svg, "line") if each.attrib.get("stroke-dasharray") == "6 3"]
    assert len(red) == shown


def test_a_panel_without_data_states_that() -> None:
    assert "no data" in texts(drawn(chart()))
    assert "no data" not in texts(drawn(chart(Line("a", ((0, 0),)))))

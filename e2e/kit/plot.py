"""Lines over time as an SVG, with what lasted meanwhile, such as faults, below the time axis.

Pure: the same values give the same text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
TEXT = 'font-family="sans-serif" font-size="12" fill="#777"'
WIDTH, HEIGHT, LEFT, RIGHT, TOP = 616, 180, 68, 16, 36
"""Of the plot, and what is left of it, right of it and above it, in pixels."""
ROW = 18
"""Height of a line of text."""
RED = "#d62728"
_CHARACTER, _SWATCH = 7.0, 18
"""Estimated width of a character, and of the coloured dash before it."""
_MOST_TIMES, _MOST_VALUES = 10, 5
_HEADROOM = 1.05
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)

Point = tuple[float, float]
"""Seconds and value."""


@dataclass(frozen=True, slots=True)
class Line:
    """Its points in order of time, `Chart.step` apart: where some are missing, it is interrupted. Lines of one legend
    have one colour, such as those of a stream by one owner and by the next."""

    legend: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """What lasted from `began` to `ended`, in seconds."""

    text: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Values of 0 and more from 0 to `seconds`. `show` writes a value with its unit; red is what reaches `limit`."""

    title: str
    lines: tuple[Line, ...]
    seconds: float
    step: float
    show: Callable[[float], str]
    limit: float | None = None
    spans: tuple[Span, ...] = ()

    @property
    def legends(self) -> tuple[str, ...]:
        """Each once, in the order of the lines."""
        return tuple(dict.fromkeys(line.legend for line in self.lines))

    def x(self, seconds: float) -> float:
        return LEFT + WIDTH * min(max(seconds / self.seconds, 0.0), 1.0)

    def y(self, value: float) -> float:
        return TOP + HEIGHT * (1 - value / self.ticks[-1])

    @property
    def ticks(self) -> tuple[float, ...]:
        """Marks of the value axis, from 0 to above the largest value: whole multiples of 1, 2 or 5 times a power of
        ten."""
        most = _HEADROOM * max((value for line in self.lines for _, value in line.points), default=0.0) or 1.0
        power = 10.0 ** math.floor(math.log10(most / _MOST_VALUES))
        step = next(power * times for times in (1, 2, 5, 10) if most / (power * times) <= _MOST_VALUES)
        return tuple(number * step for number in range(math.ceil(most / step - 1e-9) + 1))


def drawn(chart: Chart) -> str:
    """The SVG, with a newline at its end."""
    lasting = TOP + HEIGHT + 1.5 * ROW
    names = [*_legend(chart, lasting + ROW * (len(chart.spans) + 0.75))]
    rows = len(chart.spans) + max((row + 1 for row, _ in names), default=0)
    width, height = LEFT + WIDTH + RIGHT, lasting + ROW * (rows + 0.25)
    size = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        _text(LEFT, TOP - 14, chart.title, weight="bold"),
        *_values(chart),
        *_times(chart),
        *_spans(chart, lasting),
        *_limit(chart),
        *(part for line in chart.lines for part in _line(chart, line, _colour(chart.legends.index(line.legend)))),
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
        *(part for _, part in names),
    ]
    if not chart.lines:
        parts.append(_text(LEFT + WIDTH / 2, TOP + HEIGHT / 2, "no data", anchor="middle"))
    return "\n".join([*parts, "</svg>", ""])


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(x: float, y: float, content: str, *, anchor: str = "start", weight: str = "normal") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {where} {TEXT}>{escape(content)}</text>"


def _rule(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {stroke}/>'


def _values(chart: Chart) -> Iterator[str]:
    for tick in chart.ticks:
        yield _rule(LEFT, chart.y(tick), LEFT + WIDTH, chart.y(tick), 'stroke="#ddd" stroke-width="0.5"')
        yield _text(LEFT - 6, chart.y(tick) + 4, chart.show(tick), anchor="end")


def _times(chart: Chart) -> Iterator[str]:
    """Minutes and seconds."""
    step = next((each for each in _TIMES if chart.seconds / each <= _MOST_TIMES), _TIMES[-1])
    for at in range(0, int(chart.seconds) + 1, step):
        yield _rule(chart.x(at), TOP + HEIGHT, chart.x(at), TOP + HEIGHT + 4, 'stroke="#bbb"')
        yield _text(chart.x(at), TOP + HEIGHT + ROW, f"{at // 60}:{at % 60:02}", anchor="middle")


def _spans(chart: Chart, top: float) -> Iterator[str]:
    """A bar for each, with its text beside its beginning, where there is room, and lines where it began and ended."""
    for number, span in enumerate(chart.spans):
        y, (begin, end) = top + ROW * number, (chart.x(span.began), chart.x(span.ended))
        for x in (begin, end):
            yield _rule(x, TOP, x, y, f'stroke="{RED}" stroke-width="0.7" stroke-dasharray="2 3"')
        width = max(end - begin, 2.0)
        yield f'<rect x="{begin:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW - 4}" fill="{RED}" opacity="0.2"/>'
        if begin + _CHARACTER * len(span.text) < LEFT + WIDTH:
            yield _text(begin + 4, y + 11, span.text)
        else:
            yield _text(begin - 4, y + 11, span.text, anchor="end")


def _limit(chart: Chart) -> Iterator[str]:
    if chart.limit is not None and chart.limit <= chart.ticks[-1]:
        y = chart.y(chart.limit)
        yield _rule(LEFT, y, LEFT + WIDTH, y, f'stroke="{RED}" stroke-dasharray="6 3"')


def _line(chart: Chart, line: Line, colour: str) -> Iterator[str]:
    for run in _unbroken(line.points, chart.step):
        places = [f"{chart.x(at):.1f},{chart.y(value):.1f}" for at, value in run]
        if len(places) > 1:
            yield f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        else:
            x, y = places[0].split(",")
            yield f'<circle cx="{x}" cy="{y}" r="1.3" fill="{colour}"/>'


def _unbroken(points: Sequence[Point], step: float) -> Iterator[list[Point]]:
    run: list[Point] = []
    for point in points:
        if run and point[0] - run[-1][0] > 1.5 * step:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _legend(chart: Chart, top: float) -> Iterator[tuple[int, str]]:
    """The row, and a part of it: a dash of the line's colour and its name, as many in a row as there is room for."""
    row, x = 0, float(LEFT)
    for number, legend in enumerate(chart.legends):
        if not legend:
            continue
        width = _SWATCH + _CHARACTER * len(legend) + 12
        if x > LEFT and x + width > LEFT + WIDTH:
            row, x = row + 1, float(LEFT)
        y = top + ROW * row
        yield row, _rule(x, y - 4, x + 12, y - 4, f'stroke="{_colour(number)}" stroke-width="3"')
        yield row, _text(x + _SWATCH, y, legend)
        x += width

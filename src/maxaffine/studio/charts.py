"""The charts of the studio as options of ECharts, and the small drawings laid over maps."""

from __future__ import annotations

import html
import math
from typing import Any

from maxaffine.report import style

PARTS = {"approximation": style.BLUE, "leakage": style.ORANGE, "rounding": style.GREEN, "target_rounding": style.PURPLE}
GREY = "#8a8f98"  # readable on white and on black
GRID = {"left": 60, "right": 20, "bottom": 40, "outerBoundsMode": "none"}  # charts under each other share their left edge
INAUDIBLE = -40.0  # logits below the largest by more weigh nothing that is seen
SIGNED = ["#0b3c7d", "#6aaed6", "#f2f2f2", "#f4a582", "#8c1a11"]  # below zero, zero, above
ENTRY = 16  # pixels of an entry of a matrix
SYMBOLS = ("circle", "rect", "triangle", "diamond", "pin", "arrow")
POWERS = "v => { const a = Math.abs(v); return v === 0 || (a < 1e4 && a >= 1) ? v : v.toExponential(a < 1 && a > 1e-12 ? 1 : 0)"
POWERS += ".replace('.0e', 'e'); }"
PLAIN = {"animation": False, "textStyle": {"color": GREY}, "tooltip": {"trigger": "axis"}}


def _axis(name: str, **more: Any) -> dict[str, Any]:
    grey = {"lineStyle": {"color": GREY}, "onZero": False}
    return {
        "type": "value", "name": name, "axisLine": grey, "axisLabel": {"color": GREY}, "nameTextStyle": {"color": GREY},
        "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.3}}, "scale": True, **more,
    }  # fmt: skip


def values(view: dict[str, Any], name: str, point: float | None = None) -> dict[str, Any]:
    """Target and layer along one variable, with a mark where one token hands over to the next, and one at the point."""
    dotted, chosen = {"color": GREY, "type": "dotted", "width": 1}, {"color": style.WORST, "type": "solid", "width": 1.5}
    marks = [{"xAxis": x, "lineStyle": dotted} for x in view["edges"]]
    marks += [] if point is None else [{"xAxis": point, "lineStyle": chosen}]
    layer = line("layer", view["x"], view["layer"], style.LAYER, 1.6)
    layer["lineStyle"]["type"] = [6, 6]
    layer["markLine"] = {"symbol": "none", "silent": True, "label": {"show": False}, "precision": 12, "data": marks}
    series = [line("target", view["x"], view["target"], style.SKY, 4), layer]
    return PLAIN | {
        "legend": {"data": ["target", "layer"], "textStyle": {"color": GREY}, "top": 0, "icon": "roundRect", "itemHeight": 4},
        "grid": GRID | {"top": 35}, "yAxis": _axis(""), "series": series,
        "xAxis": _axis(name, nameLocation="middle", nameGap=25, min="dataMin", max="dataMax"),
    }  # fmt: skip


def errors(view: dict[str, Any], name: str, point: float | None = None) -> dict[str, Any]:
    """layer - target along one variable, between the proved bounds where they are not far away, and a mark at the point."""
    bound, most = view["bound"], max(map(abs, view["error"])) or 1.0
    shown = bound is not None and bound <= 25 * most
    most = max(most, bound) if shown else most
    unit = 10.0 ** math.floor(math.log10(most))
    drawn = line("layer - target", view["error_x"], [one / unit for one in view["error"]], GREY, 1.2)
    proved = {"color": style.PROVED}
    marks = [{"yAxis": sign * bound / unit, "lineStyle": proved} for sign in (1, -1)] if shown else []
    low, high, origin = view["error_x"][0], view["error_x"][-1], view["origin"]
    if point is not None and low <= point - origin <= high:
        marks += [{"xAxis": point - origin, "lineStyle": {"color": style.WORST, "type": "solid", "width": 1.5}}]
    drawn["markLine"] = {  # empty rather than absent: a chart that is drawn anew keeps what it is not told
        "symbol": "none", "silent": True, "label": {"show": False}, "precision": 12, "data": marks,
    }  # fmt: skip
    end = 2 * math.ceil(0.525 * most / unit)
    title = f"layer - target, in {unit:.0e}{'; dashed: the proved bound' if shown else ''}"
    across: dict[str, Any] = {"axisLabel": {"color": GREY}}  # said in every case, as above
    if view["near"]:
        title += "; near the worst point found"
        name += f" - {origin:.9g}" if origin > 0.0 else f" + {-origin:.9g}" if origin < 0.0 else ""
        across = {"axisLabel": {"color": GREY, ":formatter": POWERS}, "interval": (high - low) / 2}
    return PLAIN | {
        "title": {"text": title, "textStyle": {"fontSize": 12, "color": GREY, "fontWeight": "normal"}},
        "grid": GRID | {"top": 35}, "yAxis": _axis("", min=-end, max=end, interval=end / 2), "series": [drawn],
        "xAxis": _axis(name, nameLocation="middle", nameGap=25, min=low, max=high, **across),
    }  # fmt: skip


def extent(view: dict[str, Any], names: list[str]) -> str:
    """How large the error is, and where that was looked for."""
    said = f"error 0 to {view['worst']:.3g}"
    if view["kind"] == "maps" and view["near"]:
        across, up = (names[k] for k in view["axes"])
        (x0, y0), (x1, y1) = view["error_low"], view["error_high"]
        said += f", near the worst point found: {x1 - x0:.2g} of {across}, {y1 - y0:.2g} of {up}"
    return said


def matrix(found: dict[str, Any]) -> tuple[dict[str, Any], int, int]:
    """A literal matrix as a picture whose entries can be read, and its height and width in pixels."""
    rows = found["rows"]
    most = max((abs(one) for row in rows for one in row), default=0.0) or 1.0
    data = []
    for i, row in enumerate(rows):
        for k, one in enumerate(row):
            shade = 0.0 if one == 0.0 else math.copysign(max(0.1, 1.0 + math.log10(abs(one) / most) / 6.0), one)
            data.append({"value": [k, i, shade], "name": f"row {i}, column {k}: {one:.6g}"})
    wide, high = len(rows[0]) if rows else 1, len(rows)
    counted = {"type": "category", "axisLabel": {"color": GREY, "fontSize": 10}, "axisTick": {"show": False}}
    options = PLAIN | {
        "tooltip": {"formatter": "{b}", "position": "top"},
        "grid": {"left": 30, "top": 6, "right": 4, "bottom": 22},
        "xAxis": counted | {"data": list(range(wide))}, "yAxis": counted | {"data": list(range(high)), "inverse": True},
        "visualMap": {"show": False, "min": -1, "max": 1, "dimension": 2, "inRange": {"color": SIGNED}},
        "series": [{"type": "heatmap", "data": data, "itemStyle": {"borderColor": GREY, "borderWidth": 0.2}}],
    }  # fmt: skip
    return options, 28 + ENTRY * high, 34 + max(ENTRY * wide, 60)


def plot(series: list[dict[str, Any]], across: str, up: str) -> dict[str, Any]:
    """Series over a common axis, with their names above."""
    return PLAIN | {
        "legend": {"textStyle": {"color": GREY}, "top": 0, "type": "scroll"}, "grid": GRID | {"top": 35, "bottom": 45},
        "xAxis": _axis(across, nameLocation="middle", nameGap=28), "yAxis": _axis(up, nameLocation="middle", nameGap=35),
        "series": series,
    }  # fmt: skip


def line(name: str, x: list[float], y: list[float], colour: str, width: float) -> dict[str, Any]:
    """One curve."""
    return {
        "name": name, "type": "line", "showSymbol": False, "data": [list(pair) for pair in zip(x, y, strict=True)],
        "lineStyle": {"color": colour, "width": width}, "itemStyle": {"color": colour},
    }  # fmt: skip


def attention(column: dict[str, Any]) -> dict[str, Any]:
    """Weights of one query column at a point as bars, largest first, and under them how far each logit is below the largest."""
    tokens = {"type": "category", "data": [str(k) for k in column["tokens"]], "axisLine": {"lineStyle": {"color": GREY}}}
    hidden = tokens | {"axisLabel": {"show": False}, "axisTick": {"show": False}}
    told = tokens | {"gridIndex": 1, "name": "token", "nameLocation": "middle", "nameGap": 22, "axisLabel": {"color": GREY},
                     "axisLine": {"onZero": False}}  # fmt: skip
    below = [one - max(column["logits"]) for one in column["logits"]]
    least = max(math.floor(min(below)) - 1, INAUDIBLE)
    named = {"nameLocation": "middle", "nameGap": 34, "nameTextStyle": {"color": GREY}, "axisLabel": {"color": GREY}}
    orange = {"color": style.ORANGE}
    return PLAIN | {
        "axisPointer": {"link": [{"xAxisIndex": "all"}]},
        "grid": [GRID | {"left": 52, "top": 10, "height": 70}, GRID | {"left": 52, "top": 95, "height": 70}],
        "xAxis": [hidden, told],
        "yAxis": [_axis("weight", min=0, max=1, interval=0.5) | named,
                  _axis("logit - max", gridIndex=1, min=least, max=0, interval=-least / 2) | named],
        "series": [
            {"name": "weight", "type": "bar", "data": column["weights"], "itemStyle": {"color": style.BLUE}},
            {"name": "logit below the largest", "type": "line", "data": below, "xAxisIndex": 1, "yAxisIndex": 1, "clip": True,
             "symbol": "circle", "symbolSize": 5, "lineStyle": orange, "itemStyle": orange},
        ],
    }  # fmt: skip


def frontier(rows: list[dict[str, Any]], shown: dict[str, Any]) -> dict[str, Any]:
    """Tokens against error, a curve per method, and the layer that is shown."""
    series: list[dict[str, Any]] = []
    for k, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        points = sorted([row["error"], row["tokens"]] for row in rows if row["method"] == method)
        colour = (*style.CURVES[:-1], GREY)[k % len(style.CURVES)]
        series.append({
            "name": method, "type": "line", "data": points, "lineStyle": {"color": colour}, "itemStyle": {"color": colour},
            "symbol": SYMBOLS[k % len(SYMBOLS)], "symbolSize": 8,
        })  # fmt: skip
    ring = {"color": "transparent", "borderColor": style.WORST, "borderWidth": 2}
    series.append({"name": "this layer", "type": "scatter", "symbolSize": 16, "itemStyle": ring,
                   "data": [[shown["asked"], shown["tokens"]]]})  # fmt: skip
    powers = {"type": "log", "axisLabel": {"color": GREY, ":formatter": POWERS}}
    errors = [row["error"] for row in rows] + [shown["asked"]]
    return PLAIN | {
        "tooltip": {"trigger": "item"}, "legend": {"textStyle": {"color": GREY}, "top": 0, "type": "scroll"},
        "grid": GRID | {"left": 70, "right": 30, "top": 40, "bottom": 45},
        "xAxis": _axis("error", nameLocation="middle", nameGap=28, inverse=True, min=min(errors), max=max(errors)) | powers,
        "yAxis": _axis("tokens", nameLocation="middle", nameGap=48) | powers, "series": series,
    }  # fmt: skip


def proof(summary: dict[str, Any]) -> str:
    """The parts of the bound from left to right beside the error asked for; what was observed as a tick."""
    bound, asked = summary["bound"], 0.0 if summary["turned"] == "keys" else summary["asked"]
    if bound is None or not max(bound, asked) > 0.0:
        return ""
    end, at, drawn = max(bound, asked), 0.0, []
    for name, part, said in summary["parts"]:
        wide = 100.0 * part / end
        title = html.escape(f"{name}: {part:.3g}. {said}")
        drawn.append(
            f'<rect x="{at:.3f}%" width="{wide:.3f}%" height="18" fill="{PARTS.get(name, GREY)}"><title>{title}</title></rect>'
        )
        at += wide
    tick, edge = min(100.0 * summary["observed"] / end, 100.0), 100.0 * asked / end
    return (
        '<svg width="100%" height="20" role="img" aria-label="parts of the proved bound beside the error asked for">'
        f'<rect width="100%" height="18" fill="none" stroke="{GREY}"/>{"".join(drawn)}'
        f'<line x1="{edge:.3f}%" x2="{edge:.3f}%" y1="0" y2="18" stroke="{GREY}"/>'
        f'<line x1="{tick:.3f}%" x2="{tick:.3f}%" y1="0" y2="18" stroke="{style.WORST}" stroke-width="2"/></svg>'
    )


def overlay(view: dict[str, Any], point: list[float], size: int, error: bool = False) -> str:
    """Cells and the chosen point over a map of `size` pixels; over the map of the error in its own window."""
    near = error and view["near"]
    low, high = (view["error_low"], view["error_high"]) if near else (view["low"], view["high"])
    drawn = [
        '<polygon points="' + " ".join(f"{size * x:.1f},{size * y:.1f}" for x, y in cell)
        + '" fill="none" stroke="white" stroke-opacity=".45" stroke-width=".6"/>'
        for cell in view["error_cells" if near else "cells"]
    ]  # fmt: skip
    i, j = view["axes"]
    x, y = size * (point[i] - low[0]) / (high[0] - low[0]), size * (1.0 - (point[j] - low[1]) / (high[1] - low[1]))
    return "".join([*drawn, ring(x, y)])


def ring(x: float, y: float) -> str:
    """The chosen point of a picture."""
    white = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="white" stroke-width="4" stroke-opacity=".8"/>'
    return f'{white}<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="{style.WORST}" stroke-width="2.5"/>'

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
PLAIN = {"animation": False, "textStyle": {"color": GREY}, "tooltip": {"trigger": "axis"}}


def _axis(name: str, **more: Any) -> dict[str, Any]:
    grey = {"lineStyle": {"color": GREY}, "onZero": False}
    return {"type": "value", "name": name, "axisLine": grey, "axisLabel": {"color": GREY}, "scale": True, **more}


def values(view: dict[str, Any], name: str) -> dict[str, Any]:
    """Target and layer along one variable, with a mark where one token hands over to the next."""
    marks = {
        "symbol": "none",
        "silent": True,
        "label": {"show": False},
        "lineStyle": {"color": GREY, "type": "dotted", "width": 1},
    }
    series = [
        line("target", view["x"], view["target"], style.TARGET, 3),
        line("layer", view["x"], view["layer"], style.LAYER, 1.2)
        | {"markLine": marks | {"data": [{"xAxis": x} for x in view["edges"]]}},
    ]
    return PLAIN | {
        "legend": {"data": ["target", "layer"], "textStyle": {"color": GREY}, "top": 0},
        "grid": GRID | {"top": 35}, "yAxis": _axis(""), "series": series,
        "xAxis": _axis(name, nameLocation="middle", nameGap=25, min="dataMin", max="dataMax"),
    }  # fmt: skip


def errors(view: dict[str, Any], name: str) -> dict[str, Any]:
    """layer - target along one variable, between the proved bounds where they are not far away."""
    bound, most = view["bound"], max(map(abs, view["error"])) or 1.0
    shown = bound is not None and bound <= 25 * most
    most = max(most, bound) if shown else most
    unit = 10.0 ** math.floor(math.log10(most))
    drawn = line("layer - target", view["x"], [one / unit for one in view["error"]], GREY, 1.2)
    drawn["markLine"] = {  # empty rather than absent: a chart that is drawn anew keeps what it is not told
        "symbol": "none", "silent": True, "lineStyle": {"color": style.PROVED}, "label": {"show": False}, "precision": 9,
        "data": [{"yAxis": bound / unit}, {"yAxis": -bound / unit}] if shown else [],
    }  # fmt: skip
    end = math.ceil(10.5 * most / unit) / 10
    return PLAIN | {
        "title": {"text": f"layer - target, in {unit:.0e}", "textStyle": {"fontSize": 12, "color": GREY}},
        "grid": GRID | {"top": 35}, "yAxis": _axis("", min=-end, max=end), "series": [drawn],
        "xAxis": _axis(name, nameLocation="middle", nameGap=25, min="dataMin", max="dataMax"),
    }  # fmt: skip


def plot(series: list[dict[str, Any]], across: str, up: str) -> dict[str, Any]:
    """Series over a common axis, with their names above."""
    return PLAIN | {
        "legend": {"textStyle": {"color": GREY}, "top": 0}, "grid": GRID | {"top": 55, "bottom": 45},
        "xAxis": _axis(across, nameLocation="middle", nameGap=28), "yAxis": _axis(up), "series": series,
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


def frontier(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens against error, a curve per method."""
    series = []
    for colour, method in zip(style.CURVES * 3, dict.fromkeys(row["method"] for row in rows), strict=False):
        points = sorted([row["error"], row["tokens"]] for row in rows if row["method"] == method)
        series.append(
            {"name": method, "type": "line", "data": points, "lineStyle": {"color": colour}, "itemStyle": {"color": colour}}
        )
    logarithmic = {"type": "log"}
    return PLAIN | {
        "tooltip": {"trigger": "item"}, "legend": {"textStyle": {"color": GREY}, "top": 0},
        "grid": GRID | {"left": 80, "right": 30, "top": 40, "bottom": 45},
        "xAxis": _axis("error", nameLocation="middle", nameGap=28, inverse=True) | logarithmic,
        "yAxis": _axis("tokens") | logarithmic, "series": series,
    }  # fmt: skip


def proof(summary: dict[str, Any]) -> str:
    """The parts of the bound from left to right beside the error asked for; what was observed as a tick."""
    bound, asked = summary["bound"], summary["asked"]
    if bound is None or not asked > 0.0:
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


def overlay(view: dict[str, Any], point: list[float], size: int) -> str:
    """Cells and the chosen point over a map of `size` pixels."""
    drawn = [
        '<polygon points="' + " ".join(f"{size * x:.1f},{size * y:.1f}" for x, y in cell)
        + '" fill="none" stroke="white" stroke-opacity=".45" stroke-width=".6"/>'
        for cell in view["cells"]
    ]  # fmt: skip
    (i, j), low, high = view["axes"], view["low"], view["high"]
    x, y = size * (point[i] - low[0]) / (high[0] - low[0]), size * (1.0 - (point[j] - low[1]) / (high[1] - low[1]))
    return "".join([*drawn, ring(x, y)])


def ring(x: float, y: float) -> str:
    """The chosen point of a picture."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="{style.WORST}" stroke-width="2.5"/>'

"""Pictures of a layer through a point: curves or maps that stay while the point moves, and the attention there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.studio import charts, keys

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

MAP = 360  # pixels of a map
STEPS = 40  # of an arrow key, from one side to the other
MOST_HELD = 8  # variables with a slider
# The value of the first axis where a chart was clicked.
WHERE = "(e) => emit(getElement(%d).chart.convertFromPixel({gridIndex: 0}, [e.offsetX, e.offsetY])[0])"
MOST_COLUMNS, MOST_NUMBERS = 6, 4  # query columns of a layer, and numbers of each, that are shown


class Pictures:
    """Target, layer and error, drawn once for every choice of axes; what moves with the point is changed in place."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.body = ui.column().classes("w-full gap-1")
        self.weights = ui.column().classes("w-full gap-1")
        self._drawn: tuple[Any, ...] = ()
        self._parts: dict[str, Any] = {}
        self._columns: list[tuple[Any, ...]] = []  # what stands for a query column: two labels and a chart

    def view(self, view: dict[str, Any]) -> None:
        """Curves or maps."""
        s, self.seen = self.page.summary or {}, view
        drawn = (view["kind"], tuple(view["axes"]), tuple(s["low"]), tuple(s["high"]))
        if drawn != self._drawn:
            self._drawn, self._parts = drawn, {}
            self.body.clear()
            with self.body:
                if len(s["names"]) > 1:
                    self._axes(s)
                if view["kind"] == "curves":
                    self._curves(s, view["axes"][0])
                else:
                    self._maps(s, *view["axes"])
        self._fill(s, view)

    def _fill(self, s: dict[str, Any], view: dict[str, Any]) -> None:
        for k, label in self._parts.get("held", {}).items():
            label.text = f"{s['names'][k]} = {self.page.point[k]:.4g}"
        if view["kind"] == "curves":
            name = s["names"][view["axes"][0]]
            at = self.page.point[view["axes"][0]]
            for part, made in (("values", charts.values(view, name, at)), ("errors", charts.errors(view, name, at))):
                _redraw(self._parts[part], made)
            return
        low, high = view["range"]
        for name in ("target", "layer", "error"):
            label, image = self._parts[name]
            label.text = charts.extent(view, s["names"]) if name == "error" else f"{name}: {low:.3g} to {high:.3g}"
            image.content = charts.overlay(view, self.page.point, MAP, error=name == "error")
            image.set_source(view[name])

    def _curves(self, s: dict[str, Any], axis: int) -> None:
        self._parts = self._parts | {
            "values": ui.echart({}).classes("w-full h-56").props('role=img aria-label="target and layer"'),
            "errors": ui.echart({}).classes("w-full h-44").props('role=img aria-label="layer - target"'),
        }
        for name in ("values", "errors"):
            chart = self._parts[name]
            chart.props(f'data-name="curve-{name}"').style("cursor: crosshair")
            chart.on("click", partial(self._at, axis, name == "errors"), js_handler=WHERE % chart.id)
        ui.label(f"click a curve, or move the slider, for the weights at a value of {s['names'][axis]}").classes(
            "text-xs opacity-60"
        )
        with ui.row().classes("w-full").style(f"padding: 0 {charts.GRID['right']}px 0 {charts.GRID['left']}px"):
            self._slider(s, axis, 400, f'label data-name="point" aria-label="{s["names"][axis]}"')

    def _at(self, axis: int, error: bool, event: Any) -> None:
        """A click on a curve."""
        s, x = self.page.summary or {}, event.args
        if isinstance(x, (int, float)):
            place = float(x) + (self.seen["origin"] if error else 0.0)
            self._moved({axis: min(max(place, s["low"][axis]), s["high"][axis])})

    def _slider(self, s: dict[str, Any], k: int, steps: int, props: str) -> None:
        low, high = s["low"][k], s["high"][k]
        move = ui.slider(min=low, max=high, step=(high - low) / steps, value=self.page.point[k]).props(props)
        move.on_value_change(lambda e: self._moved({k: float(e.value)}))

    def _maps(self, s: dict[str, Any], i: int, j: int) -> None:
        across, up = s["names"][i], s["names"][j]
        with ui.row().classes("w-full gap-4"):
            for name in ("target", "layer", "error"):
                with ui.column().classes("gap-0").style(f"flex: 1 1 {MAP // 2}px; max-width: {MAP}px"):
                    label = ui.label().classes("text-xs min-h-8 flex items-end")
                    clicked, stepped = partial(self._clicked, name == "error"), partial(self._stepped, name == "error")
                    image = ui.interactive_image(size=(MAP, MAP), on_mouse=clicked)
                    image.props(f'data-name="map-{name}"').style("width: 100%; aspect-ratio: 1")
                    keys.moves(image, f"{name}, {across} to the right, {up} upwards: arrow keys move the point", stepped)
                    self._parts[name] = (label, image)
        ui.label(f"{across} to the right, {up} upwards; click a picture for the weights at a point").classes("text-xs opacity-60")

    def _axes(self, s: dict[str, Any]) -> None:
        """Which variables are drawn, and where the others are held."""
        names, held = dict(enumerate(s["names"])), [k for k in range(len(s["names"])) if k not in self.page.axes]
        with ui.row().classes("items-center"):
            first = ui.select(names, label="across", value=self.page.axes[0]).props("outlined dense").classes("w-28")
            both = {-1: "(a curve)"} | names
            second = ui.select(both, label="up", value=self.page.axes[1] if len(self.page.axes) > 1 else -1)
            second.props("outlined dense").classes("w-28")

            def chosen() -> None:
                axes = (first.value,) if second.value in (-1, first.value) else (first.value, second.value)
                self.page.look(axes=axes)

            first.on_value_change(chosen)
            second.on_value_change(chosen)
        with ui.row().classes("w-full gap-4"):
            self._parts["held"] = {}
            for k in held[:MOST_HELD]:
                with ui.column().classes("w-40 gap-0"):
                    self._parts["held"][k] = ui.label().classes("text-xs")
                    self._slider(s, k, 200, f'aria-label="{s["names"][k]}"')

    def _window(self, error: bool) -> tuple[list[float], list[float]]:
        """Edges of a map: the box, or of the error where it is at home."""
        part = "error_" if error else ""
        return self.seen[f"{part}low"], self.seen[f"{part}high"]

    def _clicked(self, error: bool, event: Any) -> None:
        (i, j), (low, high) = self.seen["axes"], self._window(error)
        x = low[0] + (high[0] - low[0]) * event.image_x / MAP
        y = high[1] - (high[1] - low[1]) * event.image_y / MAP
        self._moved({i: x, j: y})

    def _stepped(self, error: bool, right: int, up: int) -> None:
        at, (low, high) = self.page.point, self._window(error)
        self._moved({
            axis: min(max(at[axis] + steps * (high[k] - low[k]) / STEPS, low[k]), high[k])
            for k, (axis, steps) in enumerate(zip(self.seen["axes"], (right, up), strict=True))
        })  # fmt: skip

    def _moved(self, coordinates: dict[int, float]) -> None:
        self.page.look(point=[coordinates.get(k, value) for k, value in enumerate(self.page.point)])

    def attention(self, found: dict[str, Any]) -> None:
        """Who answers at the point, and with what."""
        shown = found.get("columns", [])[:MOST_COLUMNS]
        if "why" in found or len(shown) != len(self._columns):
            self.weights.clear()
            with self.weights:
                self._columns = self._of(found, len(shown))
        if "why" in found:
            return
        names = (self.page.summary or {})["names"]
        where = ", ".join(f"{name} = {value:.4g}" for name, value in zip(names, found["point"], strict=True))
        value, target = (", ".join(f"{one:.10g}" for one in found[key]) for key in ("value", "target"))
        self.value.text = f"at {where}: the layer says {value}, the target {target}"
        for column, (query, sums, chart) in zip(shown, self._columns, strict=True):
            query.text = _asked(column)
            largest = f"largest logit {max(column['logits']):.4g}"
            many = f"{column['count']:,} tokens answer" if column["count"] > 1 else "1 token answers"
            sums.text = f"{many}: {largest}, weights sum to {column['sum']:.12g}"
            _redraw(chart, charts.attention(column))

    def _of(self, found: dict[str, Any], count: int) -> list[tuple[Any, ...]]:
        if "why" in found:
            ui.label(f"no weights are shown: {found['why']}").classes("text-sm")
            return []
        self.value = ui.label().classes("font-mono text-sm").props('data-name="value" role=status')
        columns = []
        with ui.row().classes("w-full"):
            for _ in range(count):
                with ui.column().classes("gap-0").style("flex: 1 1 18rem"):
                    query = ui.label().classes("text-xs font-mono").props('data-name="query"')
                    sums = ui.label().classes("text-xs").props('data-name="weights"')
                    chart = ui.echart({}).classes("w-full h-52")
                    chart.props('data-name="attention" role=img aria-label="weights and logits"')
                    columns.append((query, sums, chart))
        if len(found["columns"]) > count:
            ui.label(f"{len(found['columns']) - count:,} more query columns are not shown").classes("text-xs opacity-70")
        return columns


def _redraw(chart: Any, made: dict[str, Any]) -> None:
    chart.options.clear()
    chart.options.update(made)
    chart.update()


def _asked(column: dict[str, Any]) -> str:
    """A query column in numbers, and what it adds to the layer's value."""
    query, adds = ([f"{one:.4g}" for one in column[key][:MOST_NUMBERS]] for key in ("query", "adds"))
    for key, shown in (("query", query), ("adds", adds)):
        shown += [".."] if len(column[key]) > MOST_NUMBERS else []
    return f"query {column['number']} = ({', '.join([*query, '1'])}) adds {', '.join(adds)}"

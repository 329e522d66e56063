"""What the page shows of a layer: numbers and proof, pictures, attention at a point, what can be turned and what be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.report import style
from maxaffine.studio import charts

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

MAP = 360  # pixels of a map
COMPARED = {"method": "method", "tokens": "tokens_text", "proved bound": "bound", "observed": "observed", "size": "bytes"}


class Shown:
    """One layer on the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.top = ui.column().classes("w-full gap-1")
        self.numbers()
        self.body = ui.column().classes("w-full gap-1")
        self.weights = ui.column().classes("w-full gap-1")
        with ui.expansion("Turn: temperature and matrices", icon="tune").classes("w-full") as self.turning:
            self._turn()
        with ui.expansion("Compare: frontier, another method", icon="compare_arrows").classes("w-full"):
            self._compare()
        with ui.expansion("Matrices", icon="grid_on", on_value_change=self._matrices).classes("w-full"):
            self.literal = ui.column().classes("w-full")
        with ui.expansion("Take: files, code, a link", icon="download").classes("w-full"):
            self._take()

    # -- numbers

    def numbers(self) -> None:
        """The headline and the proof."""
        s = self.page.summary or {}
        self.top.clear()
        with self.top:
            ui.label(f"{s['tokens_text']} tokens, {s['method']}, {s['dtype']}, {s['bytes']}").classes("text-lg font-bold")
            if s["bound"] is None:
                said = f"nothing is proved: {s['theorem']}"
            else:
                bound, asked = style.above(s["bound"]), f"{s['asked']:g}"
                said = f"{s['kind']}: error <= {bound} {s['where']} (asked: {asked}), for {s['scope']}"
            ui.label(said).props('data-name="proof"').classes("font-mono text-sm")
            ui.label(f"observed: error {s['observed']:.6g} (not a bound)").props('data-name="observed"').classes(
                "font-mono text-sm"
            )
            bar = charts.proof(s)
            if bar:
                ui.html(bar, sanitize=False).classes("w-full")
                legend = ", ".join(f"{name} {part:.2g}" for name, part, _ in s["parts"] if part)
                ui.label(f"parts of the bound from left to right: {legend}; the tick is what was observed").classes(
                    "text-xs opacity-70"
                )
            with ui.expansion("why, in words").classes("w-full"):
                ui.label(s["explained"]).classes("whitespace-pre-wrap font-mono text-xs")

    # -- pictures

    def view(self, view: dict[str, Any]) -> None:
        """Curves or maps."""
        s = self.page.summary or {}
        self.body.clear()
        with self.body:
            if len(s["names"]) > 1:
                self._axes(s)
            if view["kind"] == "curves":
                name = s["names"][view["axes"][0]]
                ui.echart(charts.values(view, name), on_click=None).classes("w-full h-56")
                ui.echart(charts.errors(view, name)).classes("w-full h-44")
                low, high, axis = s["low"][view["axes"][0]], s["high"][view["axes"][0]], view["axes"][0]
                move = ui.slider(min=low, max=high, step=(high - low) / 400, value=self.page.point[axis])
                move.on_value_change(lambda e: self._moved({axis: float(e.value)}))
                move.props(f'label aria-label="{name}" data-name="point"')
            else:
                self._maps(view, s)

    def _maps(self, view: dict[str, Any], s: dict[str, Any]) -> None:
        i, j = view["axes"]
        with ui.row().classes("w-full gap-4"):
            for name in ("target", "layer", "error"):
                low, high = view["range"] if name != "error" else (0.0, view["worst"])
                with ui.column().classes("gap-0"):
                    ui.label(f"{name}: {low:.3g} to {high:.3g}").classes("text-xs")
                    over = charts.overlay(view, self.page.point, MAP)
                    image = ui.interactive_image(view[name], content=over, size=(MAP, MAP), cross=True)
                    image.on_mouse(lambda e: self._clicked(e, view))
                    image.props(f'data-name="map-{name}"').style(f"width:{MAP * 3 // 4}px;height:{MAP * 3 // 4}px")
                    ui.label(f"{s['names'][i]} to the right, {s['names'][j]} upwards; click for the weights").classes(
                        "text-xs opacity-60"
                    )

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
            for k in held[:8]:
                with ui.column().classes("w-40 gap-0"):
                    ui.label(f"{s['names'][k]} = {self.page.point[k]:.4g}").classes("text-xs")
                    low, high = s["low"][k], s["high"][k]
                    move = ui.slider(min=low, max=high, step=(high - low) / 200, value=self.page.point[k])
                    move.on_value_change(lambda e, k=k: self._moved({k: float(e.value)}))
                    move.props(f'aria-label="{s["names"][k]}"')

    def _clicked(self, event: Any, view: dict[str, Any]) -> None:
        i, j = view["axes"]
        x = view["low"][0] + (view["high"][0] - view["low"][0]) * event.image_x / MAP
        y = view["high"][1] - (view["high"][1] - view["low"][1]) * event.image_y / MAP
        self._moved({i: x, j: y})

    def _moved(self, coordinates: dict[int, float]) -> None:
        self.page.look(point=[coordinates.get(k, value) for k, value in enumerate(self.page.point)])

    def attention(self, found: dict[str, Any]) -> None:
        """Who answers at the point, and with what."""
        s = self.page.summary or {}
        self.weights.clear()
        with self.weights:
            if "why" in found:
                ui.label(f"no weights are shown: {found['why']}").classes("text-sm")
                return
            where = ", ".join(f"{name} = {value:.4g}" for name, value in zip(s["names"], found["point"], strict=True))
            value, target = (", ".join(f"{one:.10g}" for one in found[key]) for key in ("value", "target"))
            ui.label(f"at {where}: the layer says {value}, the target {target}").classes("font-mono text-sm").props(
                'data-name="value"'
            )
            with ui.row().classes("w-full"):
                for group in found["groups"][:6]:
                    with ui.column().classes("gap-0 grow min-w-64"):
                        told = f"attention of {group['count']:,} tokens (query column {group['group']}): "
                        told += f"weights sum to {group['sum']:.12g}"
                        ui.label(told).classes("text-xs").props('data-name="weights"')
                        ui.echart(charts.weights(group)).classes("w-full h-40")

    # -- turn

    def _turn(self) -> None:
        ui.label(
            "Every logit times r: the same keys and values at another temperature. What is proved is proved anew, or withdrawn."
        )
        with ui.row().classes("w-full items-center no-wrap"):
            label = ui.label("r = 1").classes("w-24 font-mono").props('data-name="r"')
            slider = ui.slider(min=-1.5, max=1.5, step=0.05, value=0.0).props(
                'aria-label="temperature, power of ten" data-name="sharpness"'
            )
            slider.on_value_change(lambda e: label.set_text(f"r = {10.0 ** float(e.value):.3g}"))
            slider.on("change", lambda: self._sharpen(10.0 ** float(slider.value)))
            ui.button("r = 1", on_click=lambda: back()).props("flat dense")

            def back() -> None:
                slider.set_value(0.0)
                self._sharpen(1.0)

            exact = ui.input("r").props("outlined dense").classes("w-20")
            exact.on("keydown.enter", lambda: self._typed(exact.value))
        if not self.page.from_table:
            ui.label("The paper's lookup on a grid of cells instead: choose how many per variable, and see what is proved of it.")
            with ui.row().classes("w-full items-center no-wrap"):
                cells = ui.slider(min=1, max=64, step=1, value=8).props('label aria-label="cells per variable" data-name="cells"')
                cells.on("change", lambda: self._keys(int(cells.value)))
                ui.button("Back to the layer", on_click=lambda: self._sharpen(1.0)).props("flat dense")
        ui.label("Noise on the literal matrices, as a share of every entry. The certificate speaks of the stored numbers alone.")
        with ui.row().classes("w-full items-center"):
            sliders = {name: ui.slider(min=-8, max=0, step=0.25, value=-8).props(f'aria-label="noise on {name}, power of ten"')
                       .classes("w-40") for name in ("W_Q", "W_K", "W_V")}  # fmt: skip
            for name in sliders:
                ui.label(name).classes("text-xs")
            ui.button("Move", on_click=lambda: self.page.request(
                "move", {name: 0.0 if one.value <= -8 else 10.0 ** float(one.value) for name, one in sliders.items()},
                then=self._noisy)).props('flat data-name="move"')  # fmt: skip
        self.noise = ui.column().classes("w-full")

    def _typed(self, text: str) -> None:
        try:
            self._sharpen(float(text))
        except (TypeError, ValueError):
            self.page.tell(f"r (={text!r}) must be a number, such as 2 or 0.5.")

    def _sharpen(self, factor: float) -> None:
        self.page.progress.text = "proving at this temperature .."
        self.page.request("sharpen", factor, then=self.page.turned)

    def _keys(self, count: int) -> None:
        self.page.progress.text = "a lookup on a grid .."
        self.page.request("keys", self.page.asked, count, then=self.page.turned)

    def _noisy(self, found: dict[str, Any]) -> None:
        self.noise.clear()
        with self.noise:
            ui.label(f"the certificate is withdrawn: it speaks of the stored weights. Observed: error {found['error']:.3g} at "
                     f"{found['points']:,} points (not a bound)").classes("text-sm").props('data-name="withdrawn"')  # fmt: skip
            if "picture" in found:
                with ui.row():
                    for name in ("picture", "away"):
                        ui.image(found[name]).classes("w-64")
            else:
                view = found | {"edges": [], "bound": None}
                ui.echart(charts.values(view, (self.page.summary or {})["names"][0])).classes("w-full h-48")

    # -- compare

    def _compare(self) -> None:
        from maxaffine.heads import HEADS

        with ui.row().classes("items-center"):
            method = ui.select(list(HEADS), label="another method", value="lookup").props("outlined dense")
            ui.button("Compare", on_click=lambda: self._compare_with(str(method.value))).props("flat")
            ui.button("Frontier", on_click=lambda: self.page.request("frontier", self.page.asked, then=self._frontier)).props(
                "flat"
            )
        self.compared = ui.column().classes("w-full")

    def _compare_with(self, method: str) -> None:
        from dataclasses import replace

        self.page.progress.text = "compiling the other one .."
        self.page.request("compare", replace(self.page.asked, method=method), then=self._beside)

    def _beside(self, found: dict[str, Any]) -> None:
        ours, other = self.page.summary or {}, found["summary"]
        self.compared.clear()
        with self.compared:
            columns = [{"name": key, "label": key, "field": key} for key in ("what", "this layer", "the other")]
            rows = [{"what": what, "this layer": str(ours[key]), "the other": str(other[key])} for what, key in COMPARED.items()]
            ui.table(columns=columns, rows=rows).props("dense flat")
            if found["view"]["kind"] == "maps":
                ui.image(found["view"]["error"]).classes("w-64")
            else:
                ui.echart(charts.errors(found["view"], other["names"][0])).classes("w-full h-44")

    def _frontier(self, rows: list[dict[str, Any]]) -> None:
        self.compared.clear()
        with self.compared:
            ui.echart(charts.frontier(rows)).classes("w-full h-72")

    # -- matrices

    def _matrices(self, event: Any) -> None:
        if event.value and not self.literal.default_slot.children:
            self.page.request("matrices", then=self._literal)

    def _literal(self, found: dict[str, Any]) -> None:
        self.literal.clear()
        with self.literal:
            for name, (shape, picture) in found["pictures"].items():
                ui.label(f"{name}: {shape[0]} x {shape[1]} (red above 0, blue below, by the logarithm of the size)").classes(
                    "text-xs"
                )
                ui.image(picture).style("image-rendering: pixelated; max-width: 100%; width: 480px")
            ui.label(found["words"]).classes("whitespace-pre-wrap font-mono text-xs")

    # -- take

    def _take(self) -> None:
        with ui.row():
            for kind in ("safetensors", "onnx", "png", "svg"):
                ui.button(kind, on_click=lambda kind=kind: self._download(kind)).props(f'outline data-name="take-{kind}"')
        ask = self.page.asked
        if self.page.from_table:
            ui.code(ask.python(loaded=True), language="python").classes("w-full")
            return
        ui.code(ask.command(), language="bash").classes("w-full")
        ui.code(ask.python(), language="python").classes("w-full")
        ui.link("a link that restores this page", f"/?{ask.query()}&go=1").props('data-name="link"')

    def _download(self, kind: str) -> None:
        self.page.progress.text = f"making {kind} .."
        self.page.request("export", kind, then=lambda made: ui.download.content(made[1], made[0]))

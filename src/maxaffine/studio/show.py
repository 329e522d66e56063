"""What the page shows of a layer: numbers and proof, pictures, what can be turned and what be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.report import style
from maxaffine.studio import charts, keys
from maxaffine.studio.pictures import Pictures

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

COMPARED = {"method": "method", "tokens": "tokens_text", "proved bound": "bound", "observed": "observed", "size": "bytes"}


class Shown:
    """One layer on the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.top = ui.column().classes("w-full gap-1")
        self.numbers()
        self.pictures = Pictures(page)
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
            ui.label(said).props('data-name="proof" role=status').classes("font-mono text-sm")
            took = f"; compiled in {s['took']:.1f} s of processor time" if "took" in s else ""
            ui.label(f"observed: error {s['observed']:.6g} (not a bound){took}").props('data-name="observed"').classes(
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
            keys.on_enter(exact, lambda: self._typed(exact.value))
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

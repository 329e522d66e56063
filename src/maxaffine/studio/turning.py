"""What can be turned: the temperature, the keys, the literal matrices; the layer follows while a slider moves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.studio import charts, keys

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

FACTOR = 1.5  # powers of ten, up and down, of the temperature's slider
CELLS = (1, 64)  # per variable
LEAST_NOISE = -8  # power of ten; there is none below
NOISE = "Noise on the literal matrices, as a share of every entry. The certificate speaks of the stored numbers alone."
NOISY = ("W_Q", "W_K", "W_V")


class Turning:
    """Sliders, and what is said of them."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._moving = False  # a slider is set by the page, not by hand
        self.said = ui.label().classes("text-sm mistake").props("role=alert")
        ui.label(
            "Temperature: every logit times r, the same keys and values. What is proved is proved anew, or withdrawn."
        ).classes("text-sm")
        with ui.row().classes("w-full items-center no-wrap gap-4"):
            self.factor = ui.label("r = 1").classes("w-20 shrink-0 font-mono").props('data-name="r"')
            self.sharpness = ui.slider(min=-FACTOR, max=FACTOR, step=0.05, value=0.0).props(
                'aria-label="temperature, power of ten" data-name="sharpness"'
            )
            self.exact = ui.input("r").props("outlined dense maxlength=40").classes("w-20 shrink-0")
        self.sharpness.on_value_change(lambda e: self._slid(10.0 ** float(e.value)))
        keys.on_enter(self.exact, lambda: self._typed(self.exact.value))
        if not page.from_table:
            ui.label("Keys: the paper's lookup on a grid instead, with so many cells per variable.").classes("text-sm")
            with ui.row().classes("w-full items-center no-wrap gap-4"):
                self.count = ui.label("8 cells").classes("w-20 shrink-0 font-mono")
                self.cells = ui.slider(min=CELLS[0], max=CELLS[1], step=1, value=8).props(
                    'aria-label="cells per variable" data-name="cells"'
                )
                self.cells.on_value_change(lambda e: self.count.set_text(f"{int(e.value)} cells"))
                self.cells.on("change", lambda: self._keys(int(self.cells.value)))
        ui.button("Back to the layer", on_click=lambda: self._slid(1.0)).props('flat dense no-caps data-name="back"')
        ui.label(NOISE).classes("text-sm")
        self.noise: dict[str, Any] = {}
        with ui.row().classes("w-full gap-x-8 gap-y-1"):
            for name in NOISY:
                with ui.column().classes("gap-0 w-40"):
                    label = ui.label(f"{name}: none").classes("text-xs font-mono")
                    slider = ui.slider(min=LEAST_NOISE, max=0, step=0.25, value=LEAST_NOISE)
                    slider.props(f'aria-label="noise on {name}, power of ten" data-name="noise-{name}"')
                    slider.on_value_change(lambda e, name=name, label=label: self._noise(name, label, float(e.value)))
                    self.noise[name] = slider
        self.noisy = ui.column().classes("w-full")

    def restore(self, r: str, cells: str) -> None:
        """As a link says."""
        if cells.isdigit() and not self.page.from_table:
            self._keys(min(max(int(cells), CELLS[0]), CELLS[1]))
        elif r:
            self._typed(r)

    def _typed(self, text: str) -> None:
        try:
            factor = float(text)
        except (TypeError, ValueError):
            self.said.text = f"r (={text!r}) must be a number, such as 2 or 0.5."
            return
        self._slid(factor)

    def _slid(self, factor: float) -> None:
        if self._moving:
            return
        self.said.text, written = "", f"{factor:.6g}"
        self._moving = True
        self.factor.text = f"r = {factor:.3g}"
        if factor > 0.0 and math.isfinite(factor):
            self.sharpness.set_value(min(max(math.log10(factor), -FACTOR), FACTOR))
        self._moving = False
        self.noisy.clear()
        self.page.request(
            "sharpen", float(written), then=lambda s: self.page.turned(s, r="" if written == "1" else written), wrong=self._wrong,
            words="proving at this temperature ..", kind="turn",
        )  # fmt: skip

    def _keys(self, count: int) -> None:
        self.said.text, self.count.text = "", f"{count} cells"
        self._moving = True
        self.cells.set_value(count)
        self._moving = False
        self.noisy.clear()
        self.page.request("keys", self.page.asked, count, then=lambda s: self.page.turned(s, cells=str(count)), wrong=self._wrong,
                          words="a lookup on a grid ..", kind="turn")  # fmt: skip

    def _wrong(self, sentence: str) -> None:
        self.said.text = sentence

    # -- noise

    def _noise(self, name: str, label: Any, power: float) -> None:
        label.text = f"{name}: none" if power <= LEAST_NOISE else f"{name}: {10.0**power:.2g}"
        powers = {one: float(slider.value) for one, slider in self.noise.items()}
        moved = {one: 0.0 if own <= LEAST_NOISE else 10.0**own for one, own in powers.items()}
        if not any(moved.values()):
            self.noisy.clear()
            return
        self.page.request("move", moved, then=self._moved, wrong=self._wrong, words="the literal layer ..")

    def _moved(self, found: dict[str, Any]) -> None:
        if all(slider.value <= LEAST_NOISE for slider in self.noise.values()):
            return
        self.noisy.clear()
        with self.noisy:
            ui.label(f"The certificate is withdrawn: it speaks of the stored weights. Observed: error {found['error']:.3g} at "
                     f"{found['points']:,} points (not a bound).").classes("text-sm").props('data-name="withdrawn"')  # fmt: skip
            if "picture" not in found:
                view = found | {"edges": [], "bound": None}
                ui.echart(charts.values(view, (self.page.summary or {})["names"][0])).classes("w-full h-48")
                return
            with ui.row().classes("gap-4"):
                for words, name in (("the literal layer", "picture"), (f"error, 0 to {found['error']:.3g}", "away")):
                    with ui.column().classes("gap-0"):
                        ui.label(words).classes("text-xs")
                        ui.element("img").classes("w-60").props(f'src="{found[name]}" alt="{words}"')

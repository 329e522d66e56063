"""What the page shows of a layer: numbers and proof, pictures, and what can be turned, compared, looked into and taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.report import style
from maxaffine.studio import charts
from maxaffine.studio.comparing import Comparing
from maxaffine.studio.pictures import Pictures
from maxaffine.studio.taking import Taking
from maxaffine.studio.turning import Turning

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

LONGEST = 160  # characters of a function in a headline


class Shown:
    """One layer on the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.top = ui.column().classes("w-full gap-1")
        self._numbers()
        self.pictures = Pictures(page)
        with _part("Turn: temperature, keys, noise", "tune"):
            self.turning = Turning(page)
        with _part("Compare: another method, frontier", "compare_arrows"):
            self.progress = ui.label().classes("text-sm opacity-70").props('data-name="aside"')
            Comparing(page)
        with _part("Matrices", "grid_on") as matrices:
            literal = ui.column().classes("w-full")
        matrices.on_value_change(lambda e: self._matrices())
        with _part("Take: files, code, a link", "download"):
            self.taking = Taking(page)
        self._opened, self._literal = matrices, literal

    def renewed(self) -> None:
        """The layer was turned: nothing that was said of it before stays."""
        self._numbers()
        self.taking.code()
        self._literal.clear()
        self._matrices()

    def _numbers(self) -> None:
        s = self.page.summary or {}
        self.top.clear()
        with self.top:
            ui.label(style.shortened(s["target"], LONGEST)).classes("font-mono text-sm opacity-80 break-all").props(
                'data-name="target"'
            )
            ui.label(f"{s['tokens_text']} tokens, {s['method']}, {s['dtype']}, {s['bytes']}").classes("text-lg font-bold")
            ui.label(_promise(s)).props('data-name="proof" role=status').classes("font-mono text-sm")
            took = f"; compiled in {s['took']:.1f} s of processor time" if "took" in s else ""
            ui.label(f"observed: error {s['observed']:.6g} (not a bound){took}").props('data-name="observed"').classes(
                "font-mono text-sm"
            )
            bar = charts.proof(s)
            if bar:
                ui.html(bar, sanitize=False).classes("w-full")
                _legend(s)
            with ui.expansion("why, in words").props("dense").classes("w-full"):
                ui.label(s["explained"]).classes("words font-mono text-xs").props("tabindex=0")

    def _matrices(self) -> None:
        if not self._opened.value or self._literal.default_slot.children:
            return

        def said(sentence: str) -> None:
            with self._literal:
                ui.label(sentence).classes("text-sm")

        self.page.request(
            "matrices", then=lambda found: charted(found, self._literal), wrong=said, words="the literal matrices .."
        )


def charted(found: dict[str, Any], into: Any) -> None:
    """The literal matrices as labelled pictures, with the meaning of their rows."""
    into.clear()
    with into:
        ui.label("Red above 0, blue below, by the logarithm of the size. Point at an entry to read it.").classes("text-sm")
        for name, matrix in found["matrices"].items():
            rows, columns = matrix["shape"]
            part = "" if [len(matrix["rows"]), len(matrix["rows"][0])] == [rows, columns] else ", its first rows and columns"
            ui.label(f"{name}: {rows} x {columns}{part}").classes("text-xs")
            options, high, wide = charts.matrix(matrix)
            chart = ui.echart(options).style(f"height: {high}px; width: {wide}px; max-width: 100%")
            chart.props(f'role=img aria-label="{name}" data-name="matrix"')
        ui.label(found["words"]).classes("words font-mono text-xs").props("tabindex=0")


def _part(title: str, icon: str) -> Any:
    return ui.expansion(title, icon=icon).classes("w-full").props('header-class="px-0" dense')


def _promise(s: dict[str, Any]) -> str:
    """What is proved, and whether that is what was asked."""
    if s["bound"] is None:
        withdrawn = f"withdrawn: nothing is proved of this layer ({s['theorem']})"
        return withdrawn if s["turned"] == "r" else f"nothing is proved: {s['theorem']}"
    asked = "" if s["turned"] == "keys" else f" (asked: {s['asked']:g})"
    said = f"{s['kind']}: error <= {style.above(s['bound'])} {s['where']}{asked}, for {s['scope']}"
    return f"the promise of {s['asked']:g} is withdrawn. {said}" if s["bound"] > s["asked"] else said


def _legend(s: dict[str, Any]) -> None:
    """What the colours of the bar are."""
    with ui.row().classes("gap-x-4 gap-y-0 text-xs"):
        for name, part, _ in s["parts"]:
            if part:
                with ui.row().classes("items-center gap-1 no-wrap"):
                    ui.element("span").style(f"width: 10px; height: 10px; background: {charts.PARTS.get(name, charts.GREY)}")
                    ui.label(f"{name.replace('_', ' ')} {part:.2g}")
        with ui.row().classes("items-center gap-1 no-wrap"):
            ui.element("span").style(f"width: 2px; height: 12px; background: {style.WORST}")
            ui.label(f"observed {s['observed']:.2g}")
        if s["turned"] != "keys":
            with ui.row().classes("items-center gap-1 no-wrap"):
                ui.element("span").style(f"width: 10px; height: 10px; border: 1px solid {charts.GREY}")
                ui.label(f"asked {s['asked']:g}")

"""Another method at the same error beside the layer, and tokens against error of every head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.report import style
from maxaffine.studio import charts

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

ROWS = ("method", "tokens", "proved bound", "observed error", "size")


class Comparing:
    """A choice, two buttons, and what comes of them."""

    def __init__(self, page: Page) -> None:
        from maxaffine.heads import HEADS

        self.page = page
        if page.from_table:
            ui.label("Of a table there is one layer here; the command line compares methods.").classes("text-sm")
            return
        with ui.row().classes("items-center"):
            method = ui.select(list(HEADS), label="another method", value="lookup").props("outlined dense options-dense")
            method.classes("w-40")
            for words, do in (("Compare", lambda: self._compare(str(method.value))), ("Frontier", self._frontier)):
                ui.button(words, on_click=do).props(f'flat data-name="{words.lower()}"')
        self.shown = ui.column().classes("w-full")

    def _compare(self, method: str) -> None:
        ask = replace(self.page.asked, method=method)
        self.page.beside("compare", ask, self.page.axes, self.page.point, then=self._beside, wrong=self._wrong,
                         words=f"compiling by {method} ..")  # fmt: skip

    def _frontier(self) -> None:
        self.page.beside("frontier", self.page.asked, then=self._curves, wrong=self._wrong, words="what every head would need ..")

    def _wrong(self, sentence: str) -> None:
        self.shown.clear()
        with self.shown:
            ui.label(sentence).classes("text-sm mistake whitespace-pre-wrap").props('role=alert data-name="incomparable"')

    def _beside(self, found: dict[str, Any]) -> None:
        ours, other = self.page.summary or {}, found["summary"]
        self.shown.clear()
        with self.shown:
            columns = [{"name": key, "label": key, "field": key, "align": "left"} for key in ("", "this layer", "the other")]
            told = zip(ROWS, _told(ours), _told(other), strict=True)
            rows = [{"": what, "this layer": one, "the other": two} for what, one, two in told]
            ui.table(columns=columns, rows=rows).props('dense flat data-name="compared"')
            seen = self.page.shown.pictures.seen if self.page.shown is not None else None
            with ui.row().classes("w-full gap-4"):
                for words, view in (("this layer", seen), ("the other", found["view"])):
                    if view is not None:
                        with ui.column().classes("gap-0").style("flex: 1 1 240px; max-width: 360px"):
                            self._error(words, view, other["names"])

    def _error(self, words: str, view: dict[str, Any], names: list[str]) -> None:
        ui.label(f"{words}: {charts.extent(view, names)}").classes("text-xs")
        if view["kind"] == "maps":
            ui.element("img").classes("w-full").props(f'src="{view["error"]}" alt="error of {words}"')
        else:
            ui.echart(charts.errors(view, names[view["axes"][0]])).classes("w-full h-44")

    def _curves(self, rows: list[dict[str, Any]]) -> None:
        self.shown.clear()
        with self.shown:
            ui.echart(charts.frontier(rows, self.page.summary or {})).classes("w-full h-80").props('data-name="curves"')
            ui.label("Tokens that every head would need for an error. The ring is the layer above.").classes("text-xs opacity-70")


def _told(s: dict[str, Any]) -> list[str]:
    bound = "nothing is proved" if s["bound"] is None else style.above(s["bound"])
    return [s["method"], s["tokens_text"], bound, f"{s['observed']:.3g}", s["bytes"]]

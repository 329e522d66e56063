"""The tabs of the studio: a layer; mean field; max-margin selection; the lab's report."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from maxaffine.core.errors import MaxaffineError
from maxaffine.studio import look, training
from maxaffine.studio.ask import Ask
from maxaffine.studio.page import Page


def tabs(query: dict[str, str]) -> Page:
    """Build the page that a link asks for, and return what has to be closed with it."""
    mistake = ""
    try:
        ask = Ask.of_query({name: text for name, text in query.items() if name not in ("token", "go")})
    except MaxaffineError as wrong:
        ask, mistake = Ask(), str(wrong)
    look.dress()
    with ui.header().classes("items-center py-1 gap-x-4 gap-y-0").style(f"background: {look.BAR}"):
        ui.label("maxaffine studio").classes("text-lg")
        with ui.tabs().props("dense no-caps") as bar:
            layer = ui.tab("layer", label="A layer")
            field = ui.tab("field", label="Mean field")
            margin = ui.tab("margin", label="Max-margin")
            report = ui.tab("report", label="Experiments")
    with ui.tab_panels(bar, value=layer).classes("w-full"):
        with ui.tab_panel(layer):
            page = Page(ask)
        later = {
            name: (ui.tab_panel(tab), build)
            for name, tab, build in (
                ("field", field, training.mean_field),
                ("margin", margin, training.max_margin),
                ("report", report, training.report),
            )
        }

    def opened(event: Any) -> None:
        """The tabs about training are built when they are first looked at."""
        panel, build = later.pop(str(event.value), (None, None))
        if panel is not None and build is not None:
            with panel:
                build()

    bar.on_value_change(opened)
    if mistake:
        page.tell(mistake)
    elif query.get("go") == "1":
        ui.timer(0.1, page.restore, once=True)
    return page

"""The tabs of the studio: a layer; mean field; max-margin selection; the lab's report."""

from __future__ import annotations

from nicegui import ui

from maxaffine.core.errors import MaxaffineError
from maxaffine.studio import training
from maxaffine.studio.ask import Ask
from maxaffine.studio.page import Page


def tabs(query: dict[str, str]) -> Page:
    """Build the page that a link asks for, and return what has to be closed with it."""
    mistake = ""
    try:
        ask = Ask.of_query({name: text for name, text in query.items() if name not in ("token", "go")})
    except MaxaffineError as wrong:
        ask, mistake = Ask(), str(wrong)
    with ui.header().classes("items-center py-1"):
        ui.label("maxaffine studio").classes("text-lg")
        with ui.tabs().props("dense no-caps") as bar:
            layer = ui.tab("layer", label="A layer")
            field = ui.tab("field", label="Mean field")
            margin = ui.tab("margin", label="Max-margin")
            report = ui.tab("report", label="Experiments")
    with ui.tab_panels(bar, value=layer).classes("w-full"):
        with ui.tab_panel(layer):
            page = Page(ask)
        with ui.tab_panel(field):
            training.mean_field()
        with ui.tab_panel(margin):
            training.max_margin()
        with ui.tab_panel(report):
            training.report()
    if mistake:
        page.tell(mistake)
    elif query.get("go") == "1":
        ui.timer(0.1, page.compile, once=True)
    return page

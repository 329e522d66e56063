"""What can be taken away: files, the command and the Python that make the layer again, a link that restores the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.studio.ask import LOADED

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

KINDS = {"safetensors": "the layer", "onnx": "the layer", "png": "figure", "svg": "figure", "pdf": "figure"}


class Taking:
    """Buttons, code, a link; of the layer as it is turned now."""

    def __init__(self, page: Page) -> None:
        self.page = page
        with ui.row().classes("gap-2"):
            for kind, what in KINDS.items():
                ui.button(f"{what}, .{kind}", on_click=lambda kind=kind: self._download(kind)).props(
                    f'outline no-caps dense data-name="take-{kind}"'
                ).classes("px-3")
        self.said = ui.label().classes("text-sm mistake").props("role=alert")
        self.written = ui.column().classes("w-full")
        self.address: Any = None
        self.code()

    def code(self) -> None:
        """What makes the layer again."""
        self.written.clear()
        ask, s = self.page.asked, self.page.summary or {}
        with self.written:
            if self.page.from_table:
                ui.label("With the layer's file, .safetensors, beside it:").classes("text-sm")
                ui.code(LOADED, language="python").classes("w-full")
                return
            if ask.command():
                ui.code(ask.command(), language="bash").classes("w-full").props('data-name="command"')
            ui.code(ask.python(s["asked"]), language="python").classes("w-full").props('data-name="python"')
            self.address = ui.link("a link that restores this page", "/").props('data-name="link"')
        self.link()

    def link(self) -> None:
        """The link, for what is shown now."""
        if self.address is not None:
            self.address.props["href"] = f"/?{self.page.asked.query()}&go=1"
            self.address.update()

    def _download(self, kind: str) -> None:
        self.said.text = ""
        self.page.request("export", kind, then=lambda made: ui.download.content(made[1], made[0]), wrong=self._wrong,
                          words=f"making .{kind} ..", kind=f"export {kind}")  # fmt: skip

    def _wrong(self, sentence: str) -> None:
        self.said.text = sentence

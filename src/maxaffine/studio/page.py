"""The page of one layer: type, see, turn, take."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from nicegui import ui

from maxaffine.core.errors import MaxaffineError
from maxaffine.studio import keys, show
from maxaffine.studio.ask import DTYPES, NORMS, Ask
from maxaffine.studio.worker import TABLE, Worker

AT_ONCE = 2  # compiles
MOST_WAITING = 4  # requests
COMPILES = ("compile", "table")  # requests that a page may have one of
TICK = 0.15  # seconds between looks at the worker
busy: set[int] = set()  # pages that compile


class Page:
    """One browser tab: its form, its worker, what it shows."""

    def __init__(self, ask: Ask) -> None:
        self.asked, self.worker = ask, Worker()
        self.summary: dict[str, Any] | None = None
        self.point: list[float] = []
        self.axes: tuple[int, ...] = (0,)
        self.from_table = False
        self._then: Callable[[Any], None] | None = None
        self._waiting: list[tuple[str, tuple[Any, ...], Callable[[Any], None]]] = []  # what waits for the worker
        self._wanted: tuple[tuple[int, ...], list[float]] | None = None  # a look that waits longer
        self._build()
        ui.timer(TICK, self.tick)

    # -- the form

    def _build(self) -> None:
        with ui.row().classes("w-full items-start no-wrap max-md:flex-wrap gap-6"):
            with ui.column().classes("w-80 max-md:w-full shrink-0 gap-2"):
                self._form()
            with ui.column().classes("grow min-w-0 w-full gap-2"):
                self.said = (
                    ui.label().classes("text-negative whitespace-pre-wrap font-mono text-sm").props('role=alert id="said"')
                )
                self.results = ui.column().classes("w-full gap-3")
                with self.results:
                    ui.label("Type a function, and compile it.").classes("opacity-60")

    def _form(self) -> None:
        from maxaffine.heads import HEADS
        from maxaffine.target.gallery import gallery

        ask = self.asked
        mono = 'outlined dense input-class="font-mono"'
        self.expression = ui.textarea("function", value=ask.expression).props(f'{mono} autogrow data-name="expression"')
        self.expression.classes("w-full")
        self.box = ui.input("box", value=ask.box).props(mono).classes("w-full")
        with ui.row().classes("w-full no-wrap items-center"):
            self.error = ui.input("error", value=ask.error).props("outlined dense").classes("w-24")
            ui.slider(min=-10, max=0, step=0.5, value=-6, on_change=self._slide).props('aria-label="error, power of ten"')
        with ui.row().classes("w-full no-wrap"):
            self.norm = (
                ui.select(list(NORMS), label="norm", value=_one_of(ask.norm, NORMS)).props("outlined dense").classes("w-20")
            )
            self.dtype = (
                ui.select(list(DTYPES), label="dtype", value=_one_of(ask.dtype, DTYPES)).props("outlined dense").classes("grow")
            )
        methods = ["auto", *HEADS]
        self.method = (
            ui.select(methods, label="method", value=_one_of(ask.method, methods)).props("outlined dense").classes("w-full")
        )
        with ui.row():
            self.go = ui.button("Compile", on_click=self.compile).props('data-name="compile"')
            self.stop = ui.button("Cancel", on_click=self.cancel).props('outline data-name="cancel"')
        self.stop.disable()
        for field in (self.expression, self.box, self.error):
            keys.on_enter(field, self.compile)
        keys.whole_page(self.escape)
        self.progress = ui.label().classes("text-sm opacity-70").props('data-name="progress"')
        ui.select(list(gallery), label="or from the gallery", with_input=True, on_change=self._from_gallery).props(
            "outlined dense"
        ).classes("w-full")
        page = weakref.proxy(self)  # the web server keeps the addresses of uploads, and with them what receives one
        table = ui.upload(label="or a table (.csv)", on_upload=lambda e: page.dropped(e), max_file_size=TABLE, auto_upload=True)
        table.on("rejected", lambda: page.tell(f"a table may have at most {TABLE:,} bytes here."))
        table.props('flat bordered accept=.csv data-name="table"').classes("w-full")

    def _slide(self, event: Any) -> None:
        power = float(event.value)
        self.error.value = f"1e{int(power)}" if power == int(power) else f"3e{int(power // 1)}"

    def _from_gallery(self, event: Any) -> None:
        if event.value:
            self.expression.value, self.box.value = event.value, ""

    def current(self) -> Ask:
        """The form as it stands."""
        return Ask(self.expression.value or "", self.box.value or "", self.error.value or "", str(self.norm.value),
                   str(self.dtype.value), str(self.method.value))  # fmt: skip

    # -- requests

    def tell(self, sentence: str) -> None:
        """What went wrong, under the form's eyes."""
        self.said.text = sentence

    def request(self, name: str, *arguments: Any, then: Callable[[Any], None]) -> None:
        """Ask the worker, now or when it has answered what it was asked before."""
        if self.worker.busy:
            self._waiting = [*self._waiting, (name, arguments, then)][-MOST_WAITING:]
            return
        self.tell("")
        self._then = then
        self.worker.ask(name, *arguments)

    def compile(self) -> None:
        """Compile what the form says."""
        try:
            ask = self.current()
            ask.request()
        except MaxaffineError as mistake:
            self.tell(str(mistake))
            return
        if self._begin("compile", ask):
            self.asked, self.from_table = ask, False

    def _begin(self, name: str, *arguments: Any) -> bool:
        if id(self) in busy:
            return False
        if len(busy) >= AT_ONCE:
            self.tell(f"{AT_ONCE} compiles are under way on other pages; try again when one has ended.")
            return False
        busy.add(id(self))
        self.go.disable()
        self.stop.enable()
        self.progress.text = "starting .."
        self._waiting.clear()
        self.request(name, *arguments, then=self._compiled)
        return True

    async def dropped(self, event: Any) -> None:
        """A table came."""
        from maxaffine.cli import arguments

        try:
            error = arguments.constant(self.error.value or "", "`error`")
        except MaxaffineError as mistake:
            self.tell(str(mistake))
            return
        if self._begin("table", event.file.name, await event.file.read(), error):
            self.from_table = True

    def cancel(self) -> None:
        """Kill the worker: nothing of the request is left."""
        self.worker.stop()
        self._over()
        self._waiting.clear()
        self.summary = self._wanted = None
        self.results.clear()
        self.tell("cancelled.")

    def escape(self) -> None:
        """Cancel a compile that is under way; where none is, nothing happens."""
        if id(self) in busy:
            self.cancel()

    def _over(self) -> None:
        busy.discard(id(self))
        self.go.enable()
        self.stop.disable()
        self.progress.text = ""

    def close(self) -> None:
        """The tab is gone: so is its process."""
        busy.discard(id(self))
        self.worker.stop()

    def tick(self) -> None:
        """What the worker said since the last tick."""
        for kind, *said in self.worker.heard():
            if kind == "progress":
                stage, done, total = said
                self.progress.text = f"{stage}: {done:,} of {total:,}" if total > 1 else f"{stage} .."
                continue
            then, self._then = self._then, None
            if not any(name in COMPILES for name, _, _ in self._waiting):
                self._over()
            if kind == "done" and then is not None:
                then(said[0])
            elif kind != "done":
                self.tell(said[0])
        if self._waiting and not self.worker.busy:
            name, arguments, then = self._waiting.pop(0)
            self.request(name, *arguments, then=then)
        if self._wanted is not None and not self.worker.busy and self.summary is not None:
            (axes, point), self._wanted = self._wanted, None
            self.request("look", axes, point, then=self._looked)

    # -- answers

    def _compiled(self, summary: dict[str, Any]) -> None:
        self.summary = summary
        dimension = len(summary["names"])
        self.axes = (0,) if dimension == 1 else (0, 1)
        self.point = list(summary["at"]) if len(summary["at"]) == dimension else [
            (low + high) / 2 for low, high in zip(summary["low"], summary["high"], strict=True)]  # fmt: skip
        self.results.clear()
        with self.results:
            self.shown = show.Shown(self)
        self.look()

    def turned(self, summary: dict[str, Any]) -> None:
        """The layer at another temperature."""
        self.summary = summary
        self.shown.numbers()
        self.look()

    def look(self, point: list[float] | None = None, axes: tuple[int, ...] | None = None) -> None:
        """See the layer through another point or along other axes, as soon as the worker is free."""
        self.point, self.axes = point or self.point, axes or self.axes
        self._wanted = (self.axes, self.point)

    def _looked(self, found: dict[str, Any]) -> None:
        self.shown.pictures.view(found["view"])
        self.shown.pictures.attention(found["attention"])


def _one_of(value: str, known: Any) -> str:
    return value if value in known else next(iter(known))

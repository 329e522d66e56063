"""The page of one layer: what is asked of the processes beside it, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nicegui import ui

from maxaffine.core.errors import MaxaffineError
from maxaffine.studio import keys, show
from maxaffine.studio.ask import Ask, placed
from maxaffine.studio.desk import Desk, Errand
from maxaffine.studio.form import EXAMPLES, Form

WELCOME = (
    "Type a function of named variables, a box for them and an error. It is compiled into one softmax attention layer; the page "
    "shows who answers where, and what is proved of it. Or begin with one of these:"
)
TICK = 0.1  # seconds between looks at the processes
# On a narrow page the answer is below the form.
TO_RESULTS = "if (innerWidth < 768) document.querySelector('[data-name=results]').scrollIntoView({behavior: 'smooth'})"


class Page:
    """One browser tab: its form, its processes, what it shows.

    One process holds the layer; what is compared with it is made in another, so that either can be cancelled alone.
    """

    def __init__(self, ask: Ask) -> None:
        self.asked = ask
        self.desk, self.aside = Desk(self._progress, self._lost), Desk(self._aside_progress, lambda: None)
        self.summary: dict[str, Any] | None = None
        self.point: list[float] = []
        self.axes: tuple[int, ...] = (0,)
        self.from_table = False
        self.shown: show.Shown | None = None
        with ui.row().classes("w-full items-start no-wrap max-md:flex-wrap gap-6"):
            with ui.column().classes("w-80 max-md:w-full shrink-0 gap-2"):
                self.form = Form(self, ask)
            self.results = ui.column().classes("grow min-w-0 w-full gap-3").props('data-name="results"')
            with self.results:
                self._welcome()
        keys.whole_page(self.escape)
        ui.timer(TICK, self.tick)

    def _welcome(self) -> None:
        ui.label(WELCOME).classes("max-w-prose")
        with ui.row().classes("gap-2"):
            for words, *example in EXAMPLES:
                ui.button(f"{words}: {example[0]}", on_click=lambda example=example: self._example(*example)).props(
                    "outline no-caps dense"
                ).classes("px-3")

    def _example(self, expression: str, box: str, error: str) -> None:
        self.form.fill(expression, box, error)
        self.compile()

    # -- requests

    def tell(self, sentence: str, field: str = "") -> None:
        """What is wrong with the form, under its field."""
        self.form.tell(sentence, field)

    def request(
        self, name: str, *arguments: Any, then: Callable[[Any], None], words: str = "",
        wrong: Callable[[str], None] | None = None, kind: str = "",
    ) -> None:  # fmt: skip
        """Ask the process that holds the layer; a sentence that refuses goes to `wrong`, where it can be seen."""
        said = wrong or self.tell
        self.desk.ask(Errand(name, arguments, then, lambda sentence, _: said(sentence), words), kind)

    def beside(self, name: str, *arguments: Any, then: Callable[[Any], None], wrong: Callable[[str], None], words: str) -> None:
        """Ask the process for what is compared."""
        if self.aside.compiles:
            self.aside.stop()
        self.aside.ask(Errand(name, arguments, then, lambda sentence, _: wrong(sentence), words))

    def compile(self) -> None:
        """Compile what the form says."""
        try:
            ask = self.form.current()
            ask.request()
        except MaxaffineError as mistake:
            field, sentence = placed(str(mistake))
            self.tell(sentence, field)
            return
        if self._begin("compile", ask):
            self.asked, self.from_table = ask, False

    def restore(self) -> None:
        """Compile what a link says, and turn and look at it as it was."""
        link = self.asked
        self.compile()
        if self.desk.compiles:
            self.asked = link

    def _begin(self, name: str, *arguments: Any) -> bool:
        if self.desk.compiles:
            return False
        self.tell("")
        self.desk.drop_waiting()
        self.desk.ask(Errand(name, arguments, self._compiled, self._refused, "starting .."))
        return True

    async def dropped(self, event: Any) -> None:
        """A table came."""
        from maxaffine.cli import arguments

        try:
            error = arguments.constant(self.form.error.value or "", "`error`")
        except MaxaffineError as mistake:
            self.tell(str(mistake), "error")
            return
        if self._begin("table", event.file.name, await event.file.read(), error):
            self.asked, self.from_table = Ask(), True

    def cancel(self) -> None:
        """Kill what is under way: nothing of it is left."""
        if self.desk.compiles:
            self.desk.stop()
            self._lost()
        self.aside.stop()
        self.tell("cancelled.")

    def escape(self) -> None:
        """Cancel what is under way; where nothing is, nothing happens."""
        if self.desk.compiles or self.aside.compiles:
            self.cancel()

    def close(self) -> None:
        """The tab is gone: so are its processes."""
        self.desk.close()
        self.aside.close()

    def tick(self) -> None:
        """What the processes said since the last tick."""
        for desk in (self.desk, self.aside):
            desk.tick()
        compiles = self.desk.compiles
        self.form.go.set_enabled(not compiles)
        self.form.stop.set_enabled(compiles or self.aside.compiles)

    # -- answers

    def _progress(self, words: str) -> None:
        self.form.progress.text = words

    def _aside_progress(self, words: str) -> None:
        if self.shown is not None:
            self.shown.progress.text = words

    def _lost(self) -> None:
        """The process that held the layer is gone."""
        self.summary = self.shown = None
        self.results.clear()

    def _refused(self, sentence: str, remedy: dict[str, Any]) -> None:
        field, sentence = placed(sentence)
        self.tell(sentence, "" if remedy else field)
        self.form.offer(remedy)

    def _compiled(self, summary: dict[str, Any]) -> None:
        self.summary = summary
        low, high, names = summary["low"], summary["high"], summary["names"]
        self.point = list(summary["at"])
        if len(self.point) != len(names):
            self.point = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
        self.axes = (0,) if len(names) == 1 else (0, 1)
        r, cells = self.asked.r, self.asked.cells
        self._restore()
        self.results.clear()
        with self.results:
            self.shown = show.Shown(self)
        ui.run_javascript(TO_RESULTS)
        self.look()
        if r or cells:
            self.shown.turning.restore(r, cells)

    def _restore(self) -> None:
        """Point and axes of a link, as far as they fit the layer."""
        s, asked = self.summary or {}, self.asked
        try:
            at, axes = [float(one) for one in asked.at.split(",")], tuple(int(one) for one in asked.axes.split(","))
        except ValueError:
            return
        inside = len(at) == len(s["names"]) and all(a <= x <= b for a, x, b in zip(s["low"], at, s["high"], strict=True))
        if inside and 1 <= len(axes) <= 2 and len(set(axes)) == len(axes) and all(0 <= k < len(at) for k in axes):
            self.point, self.axes = at, axes

    def turned(self, summary: dict[str, Any], r: str = "", cells: str = "") -> None:
        """The layer at another temperature, or another layer in its place."""
        self.summary, self.asked = summary, replace(self.asked, r=r, cells=cells)
        if self.shown is not None:
            self.shown.renewed()
        self.look()

    def look(self, point: list[float] | None = None, axes: tuple[int, ...] | None = None) -> None:
        """See the layer through another point or along other axes, as soon as its process is free."""
        self.point, self.axes = point or self.point, axes or self.axes
        at = ",".join(repr(one) for one in self.point)
        if len(at) <= 2000:
            self.asked = replace(self.asked, axes=",".join(map(str, self.axes)), at=at)
        self.request("look", self.axes, self.point, then=self._looked)

    def _looked(self, found: dict[str, Any]) -> None:
        if self.shown is None:
            return
        self.shown.pictures.view(found["view"])
        self.shown.pictures.attention(found["attention"])
        self.shown.taking.link()

"""The form: function, box, error and how they are set by hand; what is wrong stands under the field that it is about."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

from nicegui import ui

from maxaffine.core.errors import MaxaffineError
from maxaffine.studio import keys
from maxaffine.studio.ask import DTYPES, LONGEST, LONGEST_OTHERS, NORMS, Ask
from maxaffine.studio.worker import TABLE

if TYPE_CHECKING:
    from maxaffine.studio.page import Page

LEAST_POWER = -12  # of the slider for the error
MOST_SLIDERS = 4  # variables whose edges have a slider
EXAMPLES = (
    ("a smooth sum", "sin(x) + cos(y)", "x=-3:3,y=-3:3", "1e-6"),
    ("a kink", "max(x, y)", "x=-1:1,y=-1:1", "1e-8"),
    ("a curve", "abs(x) + sin(3*x)", "x=-2:2", "1e-4"),
    ("three variables", "x*y + sin(z)", "x=-1:1,y=-1:1,z=-1:1", "1e-3"),
    ("sorting", "sort_3", "", "1e-2"),
)


class Form:
    """The fields of a page, and the sentence about what is wrong with them."""

    def __init__(self, page: Page, ask: Ask) -> None:
        self.page = page
        self._seen: tuple[tuple[str, ...], list[Any]] = ((), [])  # variables that have sliders, and the sliders
        self._moving = False  # a slider writes a field, or a field a slider: not both ways at once
        self._places: dict[str, Any] = {}
        self._fields(ask)
        with ui.row().classes("items-center"):
            self.go = ui.button("Compile", on_click=page.compile).props('data-name="compile"')
            self.stop = ui.button("Cancel", on_click=page.cancel).props('outline data-name="cancel"')
        self.stop.disable()
        self.progress = ui.label().classes("text-sm opacity-70").props('data-name="progress"')
        self._place("")
        self._others()
        with self._places[""]:
            self.said = ui.column().classes("gap-1 w-full mistake").props('role=alert id="said"')
        self.boxed()

    # -- fields

    def _fields(self, ask: Ask) -> None:
        from maxaffine.heads import HEADS

        mono = 'outlined dense input-class="font-mono"'
        self.expression = ui.textarea("function", value=ask.expression).props(
            f'{mono} autogrow maxlength={LONGEST["expression"]} data-name="expression"'
        )
        self._place("expression", self.expression)
        self.box = ui.textarea("box", value=ask.box).props(f"{mono} autogrow maxlength={LONGEST['box']}")
        self._place("box", self.box)
        self.edges = ui.column().classes("w-full gap-0 px-1")
        with ui.row().classes("w-full no-wrap items-center"):
            self.error = ui.input("error", value=ask.error).props(f"outlined dense maxlength={LONGEST_OTHERS}").classes("w-28")
            power = ui.slider(min=LEAST_POWER, max=0, step=0.5, value=-6).props('aria-label="error, power of ten"')
        self._place("error")
        self.power = power
        power.on_value_change(self._slid)
        self.error.on_value_change(self._typed)
        self._typed()
        self.box.on_value_change(self.boxed)
        methods = ["auto", *HEADS]
        with ui.row().classes("w-full no-wrap"):
            self.norm = ui.select(list(NORMS), label="norm", value=_one_of(ask.norm, NORMS)).classes("w-20")
            self.dtype = ui.select(list(DTYPES), label="dtype", value=_one_of(ask.dtype, DTYPES)).classes("grow")
        self.method = ui.select(methods, label="method", value=_one_of(ask.method, methods)).classes("w-full")
        for choice in (self.norm, self.dtype, self.method):
            choice.props("outlined dense options-dense")
        for field in (self.expression, self.box, self.error):
            keys.on_enter(field, self.page.compile)

    def _others(self) -> None:
        """What may be compiled besides what is typed."""
        from maxaffine.target.gallery import gallery

        ui.select(list(gallery), label="or from the gallery", with_input=True, on_change=self._from_gallery).props(
            "outlined dense options-dense"
        ).classes("w-full")
        page = weakref.proxy(self.page)  # the web server keeps the addresses of uploads, and with them what receives one
        table = ui.upload(
            label="or drop a table here (.csv)", on_upload=lambda e: page.dropped(e), max_file_size=TABLE, auto_upload=True
        )
        table.on("rejected", lambda: page.tell(f"a table may have at most {TABLE:,} bytes here, and its name ends in .csv."))
        table.props('flat bordered accept=.csv data-name="table"').classes("w-full dropped")

    def _place(self, name: str, field: Any = None) -> None:
        if field is not None:
            field.classes("w-full")
        self._places[name] = ui.column().classes("w-full gap-0")

    def fill(self, expression: str, box: str, error: str) -> None:
        """Another request in the place of this one."""
        self.expression.value, self.box.value, self.error.value = expression, box, error

    def current(self) -> Ask:
        """The form as it stands."""
        return Ask(self.expression.value or "", self.box.value or "", self.error.value or "", str(self.norm.value),
                   str(self.dtype.value), str(self.method.value))  # fmt: skip

    def _from_gallery(self, event: Any) -> None:
        if event.value:
            self.expression.value, self.box.value = event.value, ""

    # -- what is wrong

    def tell(self, sentence: str, field: str = "") -> None:
        """A sentence under its field; what follows its first line is shown letter by letter, as a caret needs it."""
        first, _, rest = sentence.partition("\n")
        self.said.clear()
        self.said.move(self._places[field])
        if not sentence:
            return
        with self.said:
            ui.label(first).classes("text-sm whitespace-pre-wrap break-words w-full")
            if rest:
                ui.element("pre").classes("font-mono text-sm").props(f"tabindex=0 aria-label={'the place'!r}")._text = rest
        ui.run_javascript("document.getElementById('said').scrollIntoView({block: 'nearest'})")

    def offer(self, remedy: dict[str, Any]) -> None:
        """A button for the nearest request that would be met."""
        fields = {"error": self.error, "dtype": self.dtype, "norm": self.norm}
        if not remedy or not set(remedy) <= set(fields):
            return
        written = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in remedy.items()}

        def take() -> None:
            for name, value in written.items():
                fields[name].value = value
            self.page.compile()

        words = " and ".join(f"{name} {value}" for name, value in written.items())
        with self.said:
            ui.button(f"Compile with {words}", on_click=take).props('outline dense no-caps data-name="remedy"').classes("px-2")

    # -- sliders

    def _slid(self, event: Any) -> None:
        if self._moving:
            return
        power = float(event.value)
        self.error.value = f"1e{int(power)}" if power == int(power) else f"3e{math.floor(power)}"

    def _typed(self) -> None:
        """The slider follows the field."""
        try:
            power = math.log10(float(self.error.value))
        except (TypeError, ValueError):
            return
        self._moving = True
        self.power.set_value(min(max(round(2 * power) / 2, LEAST_POWER), 0))
        self._moving = False

    def boxed(self) -> None:
        """A slider for every pair of edges, where the box says few of them one by one."""
        from maxaffine.cli import arguments

        text = (self.box.value or "").strip()
        if self._moving:
            return
        try:
            box = arguments.box([text]) if text else None
        except MaxaffineError:
            return
        if box is None or ".." in text or len(box.names) > MOST_SLIDERS:
            self._seen = ((), [])
            self.edges.clear()
            return
        pairs = list(zip(box.names, box.low.tolist(), box.high.tolist(), strict=True))
        if box.names != self._seen[0]:
            self.edges.clear()
            with self.edges:
                self._seen = (tuple(box.names), [self._range(name, low, high) for name, low, high in pairs])
            return
        self._moving = True
        for (_, low, high), slider in zip(pairs, self._seen[1], strict=True):
            end = _reach(low, high)
            slider.props(f"min={-end} max={end} step={end / 100}")
            slider.set_value({"min": low, "max": high})
        self._moving = False

    def _range(self, name: str, low: float, high: float) -> Any:
        end = _reach(low, high)
        with ui.row().classes("w-full no-wrap items-center gap-3"):
            ui.label(name).classes("font-mono text-xs w-8 truncate")
            slider = ui.range(min=-end, max=end, step=end / 100, value={"min": low, "max": high})
            slider.props(f'dense label aria-label="{name}"').on_value_change(lambda e: self._edged(name, e.value))
        return slider

    def _edged(self, name: str, pair: dict[str, float]) -> None:
        """Write the edges of one variable into the box, and leave the others as they are typed."""
        from maxaffine.expression.texts import split

        if self._moving or pair["min"] >= pair["max"]:
            return
        items = [item.strip() for item in split(self.box.value or "", ",") if item.strip()]
        new = f"{name}={pair['min']:.4g}:{pair['max']:.4g}"
        self._moving = True
        self.box.value = ",".join(new if item.partition("=")[0].strip() == name else item for item in items)
        self._moving = False


def _reach(low: float, high: float) -> float:
    """An end for a slider that leaves room on both sides: 1, 2 or 5 times a power of ten."""
    wanted = 1.5 * max(abs(low), abs(high), 1e-9)
    unit = 10.0 ** math.floor(math.log10(wanted))
    return next(k * unit for k in (1, 2, 5, 10) if k * unit >= wanted)


def _one_of(value: str, known: Any) -> str:
    return value if value in known else next(iter(known))

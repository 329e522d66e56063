"""The colours of the page, light and dark, and what style sheets say beyond them."""

from __future__ import annotations

from nicegui import ui

from maxaffine.report import style

BAR = "#1f2933"  # behind the header, in both
# In the dark the paler blue of the same palette, with dark words on it.
CSS = f"""
.body--dark {{ --q-primary: {style.SKY} !important; }}
.body--dark .q-btn.bg-primary, .body--dark .q-slider__text {{ color: #000 !important; }}
.mistake {{ color: #b00020; }}
.body--dark .mistake {{ color: #ff8a8a; }}
.words, .mistake pre {{ white-space: pre; overflow-x: auto; max-width: 100%; }}
.dropped {{ border-style: dashed; }}
.dropped .q-uploader__header {{ background: none; color: inherit; }}
.dropped .q-uploader__subtitle, .dropped .q-uploader__list {{ display: none; }}
.nicegui-code pre, .nicegui-code code {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
.nicegui-interactive-image {{ cursor: crosshair; }}
.q-tab {{ padding: 0 12px; }}
"""


def dress() -> None:
    """Once for every page."""
    ui.colors(primary=style.BLUE, negative="#b00020")
    ui.add_css(CSS)

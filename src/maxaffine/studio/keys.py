"""What the keyboard does: Enter compiles, Escape cancels, arrows move the point of a picture, and where one stands is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nicegui import ui

# In the colour of the text, which is read on white, on black and on the header alike.
# What is important in an early layer of style sheets goes before what is in a later one, where Quasar takes outlines away.
FOCUS = """<style>@layer base { *:focus-visible, .q-field__control:has(:focus-visible) {
  outline: 2px solid currentColor !important; outline-offset: 2px;
} }</style>"""
# Escape closes what is open first; only where nothing is does it cancel.
ESCAPE = """<script>document.addEventListener('keydown', e => {
  if (e.key === 'Escape' && !document.querySelector('.q-menu, .q-dialog')) emitEvent('escape');
}, true);</script>"""
# Quasar names the frame of a slider, and gives the focus to the track or to the thumbs in it: a screen reader hears those.
SLIDERS = """<script>(() => {
  const ends = [', lower edge', ', upper edge'];
  const name = () => document.querySelectorAll('.q-slider').forEach(frame => {
    const tracks = [...frame.querySelectorAll('[tabindex]')], now = (frame.getAttribute('aria-valuenow') || '').split('|');
    tracks.forEach((track, k) => {
      const said = {role: 'slider', 'aria-valuenow': now[k] ?? now[0]};
      for (const one of ['aria-valuemin', 'aria-valuemax']) said[one] = frame.getAttribute(one);
      said['aria-label'] = frame.getAttribute('aria-label') + (tracks.length > 1 ? ends[k] : '');
      for (const one in said)
        if (said[one] !== null && track.getAttribute(one) !== said[one]) track.setAttribute(one, said[one]);
    });
    frame.removeAttribute('role');
  });
  new MutationObserver(name).observe(document.body, {childList: true, subtree: true, attributeFilter: ['aria-valuenow']});
})();</script>"""
ARROWS = {"ArrowLeft": (-1, 0), "ArrowRight": (1, 0), "ArrowDown": (0, -1), "ArrowUp": (0, 1)}


def whole_page(escape: Callable[[], None]) -> None:
    """A frame around whatever has the focus, names for what can have it, and Escape wherever it is."""
    ui.add_head_html(FOCUS)
    ui.add_body_html(ESCAPE + SLIDERS)
    ui.on("escape", lambda: escape())


def on_enter(field: Any, do: Callable[[], None]) -> None:
    """Enter in a field does what its button does; with Shift it begins a new line where there are lines."""
    caught = "(e) => { if (e.key === 'Enter' && !e.shiftKey) { e.preventDefault(); emit(); } }"
    field.on("keydown", lambda: do(), js_handler=caught)


def moves(
    picture: Any, label: str, move: Callable[[int, int], None], others: str = "", other: Callable[[str], Any] = str
) -> None:
    """Make a picture a stop of the Tab key: arrows move by steps to the right and upwards; `other` takes the keys `others`."""
    picture.props(f'tabindex=0 role=application aria-label="{label}"')

    def pressed(event: Any) -> Any:
        key = str(event.args)
        return move(*ARROWS[key]) if key in ARROWS else other(key)

    known = json.dumps([*ARROWS, *others.split()])
    taken = f"(e) => {{ if ({known}.includes(e.key)) {{ e.preventDefault(); emit(e.key); }} }}"
    picture.on("keydown", pressed, js_handler=taken)

"""The site: built strictly, whole without a network, and searchable."""

import functools
import importlib.util
import json
import re
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

import maxaffine as ma

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("site")

_spec = importlib.util.spec_from_file_location("maxaffine_browser", ROOT / "tests" / "unit" / "lab" / "toys" / "browser.py")
assert _spec is not None and _spec.loader is not None
browser = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(browser)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the site's tools are not installed")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, str(ROOT / "site" / "build.py"), "--out", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


def test_every_page_is_built_and_every_file_it_names_is_there(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        for goal in re.findall(r'(?:href|src)="([^"#]+)', page.read_text()):
            path = unquote(goal.partition("?")[0])
            if "://" in path or path.startswith(("mailto:", "data:", "/")):
                continue
            assert (page.parent / path).exists(), (page.relative_to(site), goal)


def test_no_page_asks_another_host_for_anything(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]+href="(?:https?:)?//', text), page


def test_every_public_name_has_its_place_in_the_reference(site):
    told = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    for name in ma.__all__:
        named = type(ma.gallery).__name__ if name == "gallery" else name
        assert name.startswith("__") or re.search(rf'id="maxaffine\.(?:[\w.]+\.)?{named}"', told), name


def test_every_refusal_of_the_source_is_listed(site):
    told = (site / "refusals.html").read_text()
    assert "needs a positive" in told or "must be positive" in told
    assert told.count("<li>") > 400


def test_every_entry_of_the_gallery_has_a_card_with_its_picture(site):
    told = (site / "pictures.html").read_text()
    for name in ma.gallery:
        assert f'id="{name}"' in told, f"{name}: run `make cards`"
    for source in re.findall(r'src="(images/cards/[^"]+)"', told):
        assert (site / source).read_bytes().startswith(b"\x89PNG")
    assert told.count("images/cards/") > 0.9 * len(ma.gallery)


def test_the_search_finds_what_readers_ask_for(site):
    path = browser.chromium()
    if path is None:
        pytest.skip("no browser is installed")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with browser.Browser(path) as page:
            page.open(f"http://127.0.0.1:{server.server_address[1]}/index.html")
            for word in ("temperature", "MultiheadAttention"):
                assert _found(page, word), word
            asked = {event["request"]["url"].split("/")[2] for event in page.seen("Network.requestWillBeSent")
                     if event["request"]["url"].startswith("http")}  # fmt: skip
        assert asked == {f"127.0.0.1:{server.server_address[1]}"}
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing."""


def _found(page, word):
    """The titles that the search shows for a word, typed into its field."""
    field = "document.querySelector('input.md-search__input')"
    page.evaluate(f"{field}.focus()")
    page.evaluate(
        f"{field}.value = {json.dumps(word)}; {field}.dispatchEvent(new Event('keyup', {{bubbles: true}}));"
        f"{field}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    )
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        text = page.evaluate("[...document.querySelectorAll('.md-search-result__item')].map(e => e.innerText).join('\\n')")
        if text and word.lower() in text.lower():
            return text
        time.sleep(0.2)
    return None

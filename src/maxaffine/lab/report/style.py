"""The look of the page: quiet, wide enough for figures, light and dark as the reader's system is."""

STYLE = """
:root {
  --ground: #fbfaf7; --sheet: #ffffff; --ink: #1f2430; --quiet: #5d6575; --line: #e3e1da; --link: #005b96;
  --good: #00664b; --good-ground: #e2f3ec; --bad: #a3350c; --bad-ground: #fbe9e1; --half: #7a5200; --half-ground: #fbf1d7;
  --none: #4b5263; --none-ground: #eceef2; --shadow: 0 1px 2px rgb(31 36 48 / .06), 0 6px 24px rgb(31 36 48 / .05);
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14161b; --sheet: #1c1f26; --ink: #e6e8ee; --quiet: #9fa7b7; --line: #2e333d; --link: #7fc4ff;
    --good: #7fe0bb; --good-ground: #12342a; --bad: #ffab8a; --bad-ground: #43221a; --half: #f2cc75; --half-ground: #3a2f12;
    --none: #c3c9d6; --none-ground: #2b303a; --shadow: none;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0 auto; padding: 3.5rem 1.25rem 4rem; max-width: 74rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
a { color: var(--link); text-decoration-thickness: .06em; text-underline-offset: .15em; }
h1, h2 { font-family: Georgia, "DejaVu Serif", serif; font-weight: 600; line-height: 1.15; letter-spacing: -.01em; }
h1 { font-size: 2.6rem; margin: 0 0 .8rem; }
h2 { font-size: 1.7rem; margin: 0 0 .9rem; }
h2 a { color: inherit; text-decoration: none; }
h2 a:hover { text-decoration: underline; }
h3 { font-size: .95rem; margin: 1.4rem 0 .3rem; }
.house { margin: 0 0 .3rem; color: var(--quiet); font-size: .85rem; letter-spacing: .12em; text-transform: uppercase; }
.lead { max-width: 44rem; font-size: 1.08rem; color: var(--quiet); margin: 0 0 2rem; }
code, .card dd { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .86em; }
.verdicts { list-style: none; margin: 0; padding: 0; border-top: 1px solid var(--line); }
.verdicts li {
  display: grid; grid-template-columns: 12.5rem 11rem 1fr; gap: .3rem 1.2rem; align-items: baseline;
  padding: .7rem 0; border-bottom: 1px solid var(--line);
}
.verdicts a { font-weight: 600; }
.verdicts .badge { justify-self: start; }
.verdicts span { color: var(--quiet); font-size: .93rem; line-height: 1.5; }
.badge {
  display: inline-block; padding: .12rem .6rem; border-radius: 1rem; font-size: .78rem; font-weight: 650; line-height: 1.45;
  color: var(--none); background: var(--none-ground);
}
.badge.reproduced { color: var(--good); background: var(--good-ground); }
.badge.refuted { color: var(--bad); background: var(--bad-ground); }
.badge.explained { color: var(--half); background: var(--half-ground); }
article {
  margin: 3rem 0 0; padding: 2rem 2.2rem 1.4rem; background: var(--sheet); border: 1px solid var(--line); border-radius: .7rem;
  box-shadow: var(--shadow);
}
blockquote { margin: 0 0 1.2rem; padding: 0 0 0 1.1rem; border-left: .2rem solid var(--line); }
blockquote p { margin: 0; font-family: Georgia, "DejaVu Serif", serif; font-size: 1.08rem; max-width: 46rem; }
cite { color: var(--quiet); font-size: .87rem; font-style: normal; }
.verdict { margin: 0 0 1.3rem; max-width: 60rem; }
.verdict .badge { margin-right: .4rem; }
.warning {
  margin: 0 0 1rem; padding: .5rem .9rem; border-radius: .4rem; font-weight: 650;
  background: var(--bad-ground); color: var(--bad);
}
figure { margin: 0 0 1.4rem; }
img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: .4rem; }
.wide { overflow: auto; max-height: 46rem; margin: 0 0 1.4rem; border-bottom: 1px solid var(--line); }
.wide:focus-visible, summary:focus-visible, a:focus-visible { outline: .15rem solid var(--link); outline-offset: .15rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; min-width: 60%; }
th, td {
  padding: .3rem 1rem .3rem 0; line-height: 1.4; text-align: left; vertical-align: baseline;
  border-bottom: 1px solid var(--line);
}
thead th { position: sticky; top: 0; background: var(--sheet); color: var(--quiet); font-weight: 600; border-bottom-width: 2px; }
td.s { white-space: nowrap; }
td.l { min-width: 18rem; }
td.n { text-align: right; padding-right: 1.4rem; white-space: nowrap; }
th.n { text-align: right; padding-right: 1.4rem; }
.numbers { display: flex; flex-wrap: wrap; gap: .35rem 1.6rem; margin: 0 0 1.2rem; font-size: .88rem; }
.numbers div { display: flex; gap: .45rem; }
.numbers dt { color: var(--quiet); }
.numbers dd { margin: 0; font-variant-numeric: tabular-nums; font-weight: 600; }
details { border-top: 1px solid var(--line); padding: .55rem 0; }
details[open] { padding-bottom: 1.2rem; }
summary { cursor: pointer; font-weight: 600; color: var(--link); }
details p, details ul { max-width: 50rem; margin: .4rem 0; }
.card { margin: .8rem 0 0; }
.card > div {
  display: grid; grid-template-columns: 10rem 1fr; gap: .2rem 1.2rem; padding: .45rem 0; border-top: 1px solid var(--line);
}
.card dt { color: var(--quiet); font-size: .9rem; }
.card dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.card dd p { margin: 0 0 .15rem; max-width: none; }
footer { margin: 3rem 0 0; color: var(--quiet); font-size: .9rem; }
@media (max-width: 46rem) {
  body { padding-top: 2rem; }
  article { padding: 1.3rem 1.1rem 1rem; }
  .verdicts li, .card > div { grid-template-columns: 1fr; }
}
@media print { body { max-width: none; } article { box-shadow: none; } .wide { max-height: none; } }
"""

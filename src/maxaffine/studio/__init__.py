"""The studio: a page on loopback where a function is typed, and its layer is seen, turned and taken away.

server.py    address, token, limits; starts and stops everything
page.py      what stands on the page, and what happens when something on it is touched
worker.py    the process beside a page in which layers are compiled, with limits of memory and time
views.py     a layer as plain data to show: numbers, curves, maps, query and attention at a point, matrices
keys.py      what the keyboard does
ask.py       what the form asks for; the link that restores it
"""

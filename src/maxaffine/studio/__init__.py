"""The studio: a page on loopback where a function is typed, and its layer is seen, turned and taken away.

server.py    address, token, limits; starts and stops everything
page.py      what a page asks of its processes, and what becomes of their answers
form.py      the fields, and what is wrong with them
show.py      what is shown of a layer; pictures.py, turning.py, comparing.py, taking.py are its parts
desk.py      errands of a page to a process: one at a time, the last of a kind alone
worker.py    the process beside a page in which layers are compiled, with limits of memory and time
views.py     a layer as plain data to show: numbers, curves, maps, query and attention at a point, matrices
keys.py      what the keyboard does; look.py, charts.py: colours and charts
ask.py       what the form asks for; the link that restores the page
"""

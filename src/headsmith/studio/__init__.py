"""Models to look at in a browser: `headsmith page` writes one as a file, `headsmith studio` compiles them on a page.

view.py      a model as JSON: certificate, bill, every matrix, every head in words, the target as a graph
assets/      what shows it: plain JavaScript, the same files for both
page.py      all of that in one self-contained file
server.py    the studio, bound to this machine alone; jobs.py its queue, worker.py the process that compiles
"""

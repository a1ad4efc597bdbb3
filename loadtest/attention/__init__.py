"""What attention costs on this machine: every method over the length, beside exact attention of the same call.

bench       the command
work        the calls
methods     who attends
answers     no figure for who answers wrongly
figures     times by turns, and the ratios of one round
curve       how a quantity grows with the length
memory      what a call holds beyond its inputs
decode      what a token costs in a stream
crossover   from which length a method is the faster one
claims      the design's targets
table, plot, report     the same as text, picture and JSON
"""

import loadtest.kernels  # noqa: F401  (says how OpenMP's threads wait, before torch is imported)

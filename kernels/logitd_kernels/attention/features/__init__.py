"""Feature maps φ with φ(q)·φ(k) near e^(scale · q·k): one file a map, one line a map in `registry`."""

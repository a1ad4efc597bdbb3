"""The calibrated second-order state: coordinates fitted to a head, sums over its keys, and how queries read them."""

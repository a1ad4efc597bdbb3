"""Wire formats: bytes to tensors and back, without a framework."""

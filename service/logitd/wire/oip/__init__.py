"""Open Inference Protocol v2, both ways: JSON header, raw tensors behind it, and places in shared memory."""

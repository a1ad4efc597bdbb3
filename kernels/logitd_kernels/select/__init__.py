"""Selection: one row's head, statistics and prefixes, by backend."""

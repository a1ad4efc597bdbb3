"""The series of `/metrics`: what there is, how it is counted, how it is exposed."""

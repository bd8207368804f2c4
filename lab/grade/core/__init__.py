"""The decisions of the judge: what is run, which faults, what is broken. Pure."""

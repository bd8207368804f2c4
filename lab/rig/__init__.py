"""Real processes under faults: one launcher, one faulty link, one player of scenarios."""

"""Interest and its tree: who wants what, told upwards, so that data goes down once per edge."""

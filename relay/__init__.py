"""Interest and the push tree: who wants which topics goes up, data comes down once per edge."""

"""Dead letters: what a subscriber rejects."""

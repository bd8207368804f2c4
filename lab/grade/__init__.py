"""Grade a whole service: run it under aimed faults, and judge what goes in and comes out."""

"""Commands for people who work on the project: demo, benchmark, and what they judge with."""

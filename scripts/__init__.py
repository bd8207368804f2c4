"""Commands for developers of the project: demo, benchmark, and the code that judges them."""

"""Groups: each message of a topic goes to one member."""

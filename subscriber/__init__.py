"""The subscriber: an inbox that knows its place, a client that gets, a runner of steps."""

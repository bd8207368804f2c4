"""The subscriber: an inbox with the subscriptions, a client that gets, a runner of steps."""

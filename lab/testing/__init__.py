"""Brokers for the tests of other people's programs: `reliable_pubsub.testing`."""

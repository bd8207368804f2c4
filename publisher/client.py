"""`Publisher`: puts that return when the proxy has the messages, once each."""

from __future__ import annotations

from .features import PublisherCalls


class Publisher(PublisherCalls):
    """Puts messages on topics, each exactly once, across its own crashes and the proxy's.

    While the proxy is unreachable, a call retries until its `timeout_s` expires, or as often as
    `retry` allows. Then it raises `InDoubtError`, and keeps numbered messages.

    Threads: calls of several threads wait for each other; puts on one topic that wait are sent in
    one request. A forked child needs a client of its own.
    An exception that is not a `PubSubError` (Ctrl-C, an alarm) may interrupt a call and be caught:
    the next call begins as after a crash, so no message is lost or duplicated.

    With `state_dir` a message that was in flight when the process died is sent again, under its
    number, by the next process with this id; without it the publisher keeps its state in memory
    and takes its numbering from the proxy.
    """

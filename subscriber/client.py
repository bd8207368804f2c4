"""`Subscriber`: gets each message of its topics once, in order, from where it subscribed."""

from __future__ import annotations

from .features import SubscriberCalls


class Subscriber(SubscriberCalls):
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    Threads: one for each call; a second one is refused while a call is open. A forked child needs a
    client of its own. An exception that is not a `PubSubError` (Ctrl-C, an alarm) may interrupt a
    call and be caught: the next call begins as after a crash, but messages of earlier calls stay in
    hand.

    A message is acknowledged when the program asks for the next one, calls `acknowledge`, or leaves
    the `with` block without an error. With `state_dir` the position survives the process, and
    messages in hand when it died are redelivered, with `redelivered` set.

    While the proxy is unreachable, a call asks again: until its `timeout_s` is over, or as often as
    `retry` says; `run` and loops ask until `stop`, unless `retry` or the settings give a number.
    """

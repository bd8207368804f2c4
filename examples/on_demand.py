"""A publisher that works only for listeners. See docs/how-to/relay.md, "Interest of publishers".

reliable-pubsub proxy                 # in one terminal
python examples/on_demand.py          # in another: it waits
reliable-pubsub subscriber -f examples/on_demand.yaml -i reader
"""

from __future__ import annotations

import click

from reliable_pubsub import Publisher
from reliable_pubsub.common.core.settings import PUBLISHER_ENDPOINT

TOPIC = "primes"


def an_expensive_result(first: int) -> bytes:
    """The next prime from a number on, by trial division."""
    number = max(first, 2)
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return b"%d" % number


@click.command()
@click.option("--endpoint", default=PUBLISHER_ENDPOINT, show_default=True)
@click.option("--results", default=10, show_default=True, help="How many to compute.")
@click.option("--patience", default=60.0, show_default=True, help="Seconds to wait for a listener.")
def main(endpoint: str, results: int, patience: float) -> None:
    """Compute only what is wanted."""
    with Publisher("on-demand", endpoint=endpoint) as publisher:
        number = 10**9
        for _ in range(results):
            if not publisher.wait_for_interest(TOPIC, timeout_s=patience):
                click.echo("no listener: nothing was computed")
                return
            result = an_expensive_result(number)
            fate = publisher.put(TOPIC, result, qos=0).fate
            click.echo(f"computed {result.decode()}: {fate}")
            number = int(result) + 1


if __name__ == "__main__":
    main()

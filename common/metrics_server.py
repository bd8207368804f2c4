"""The HTTP endpoint of a process: /metrics for Prometheus, /healthz and /readyz for supervisors.

Threads of their own serve it, with figures that the loop has given (`scrapes.py`). They share the
interpreter lock with the loop, and a thread that computes holds it for up to 5 ms, which is longer
than a put takes. So that time is 0.5 ms while metrics are served (`sys.setswitchinterval`); a page
is made metric by metric, with a pause after each in which the loop gets the lock; and the page is
served again while its figures are fresh. What speaks HTTP is `http_pages.py`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from . import threads
from .core.endpoint import host_of
from .core.errors import ConfigurationError
from .scrapes import Scrapes

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PAUSE_S: Final = 0.0001  # after each metric
SWITCH_S: Final = 0.0005  # that one thread may keep others waiting for the interpreter lock

F = TypeVar("F")


class Pages(Generic[F]):
    """What is served: from the figures of a loop, and from what the system says of the process."""

    def __init__(
        self, scrapes: Scrapes[F], metrics: Callable[[F | None], Iterable[Metric]]
    ) -> None:
        """Nothing is computed before a page is asked for.

        Args:
            metrics: makes metrics of figures; None: the loop has not given any yet.
        """
        self.scrapes = scrapes
        self._metrics = metrics
        self._making = threading.Lock()  # of the next line: one thread computes, others wait
        self._made: tuple[F | None, bytes] | None = None

    def metrics(self) -> bytes:
        """The text exposition format, made once for the same figures."""
        figures = self.scrapes.figures()
        with self._making:
            is_made = self._made is not None and self._made[0] is figures
            if self._made is None or not is_made or not self.scrapes.is_fresh:
                self._made = (figures, self._text(figures))
            return self._made[1]

    def _text(self, figures: F | None) -> bytes:
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)  # memory, CPU, descriptors; on Linux
        registry.register(_Paced(lambda: self._all(figures)))
        return generate_latest(registry)

    def _all(self, figures: F | None) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        yield GaugeMetricFamily(
            "reliable_pubsub_ready",
            "1 while every request is served, as /readyz says.",
            value=not self.scrapes.why_not_ready(),
        )
        yield GaugeMetricFamily(
            "reliable_pubsub_loop_silent_seconds",
            "Since the loop has turned; if it hangs, the other figures are old.",
            value=self.scrapes.silent_s,
        )
        yield GaugeMetricFamily(
            "reliable_pubsub_dead_threads",
            "Threads ended by an error; /healthz names them. Restart the process.",
            value=threads.dead_count(),
        )
        if self.scrapes.role:
            role = GaugeMetricFamily(
                "reliable_pubsub_role", "1: the role of this process.", labels=["role"]
            )
            for one in ("starting", "standby", "serving"):
                role.add_metric([one], one == self.scrapes.role)
            yield role
        yield from self._metrics(figures)


class _Paced:
    """A collector that gives way to other threads after each metric."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are not known before there are figures."""
        return ()

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics():
            yield metric
            time.sleep(PAUSE_S)


class MetricsServer:
    """Listens from its beginning; serves in threads that end with the process."""

    def __init__(self, address: str, pages: Pages[Any], token: str = "") -> None:
        """Bind.

        Args:
            address: `host:port` as in the setting `metrics_endpoint`.
            token: that /metrics asks for; "": none.

        Raises:
            ConfigurationError: it cannot be bound.
        """
        from .http_pages import server_for  # few processes serve metrics: 25 ms

        host, _, port = address.rpartition(":")
        host = host_of(f"tcp://{address}", bind=True) or host
        try:
            self._server = server_for(host, 0 if port == "*" else int(port), pages, token)
        except OSError as error:
            raise ConfigurationError(
                f"metrics_endpoint {address} cannot be bound: {error.strerror or error}; choose "
                "another address"
            ) from error
        bound_host, bound_port = self._server.server_address[:2]
        shown = f"[{bound_host!s}]" if ":" in str(bound_host) else str(bound_host)
        self.url = f"http://{shown}:{bound_port}/metrics"
        import prometheus_client  # noqa: F401 - now, because later no descriptor may be left

        threads.start(self._server.serve_forever, name="metrics")

    def close(self) -> None:
        """Unbind."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def metrics_served(address: str, pages: Callable[[], Pages[Any]], token: str = "") -> Iterator[str]:
    """Serve metrics within the block; give their URL, "" if no address is set."""
    if not address:
        yield ""
        return
    server = MetricsServer(address, pages(), token)
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield server.url
    finally:
        sys.setswitchinterval(before_s)
        server.close()

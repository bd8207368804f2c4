"""Send a message from a web request: POST /orders with the order as body.

    reliable-pubsub proxy          # in one terminal
    python examples/web_request.py # in another
    curl -d lamp localhost:8000/orders

The answer 201 means that the order is stored. service.py is a complete service, with asyncio.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reliable_pubsub import Publisher, PubSubError


class Orders(BaseHTTPRequestHandler):
    """Each request has a thread; they share one publisher, and so requests to the broker."""

    publisher: Publisher

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            receipt = self.publisher.put("orders", body, timeout_s=5)
        except PubSubError as error:  # not stored, or in doubt: the client tries again
            self.send_error(503, str(error.code))
            return
        self.send_response(201)
        self.end_headers()
        self.wfile.write(str(receipt.message_id).encode())


if __name__ == "__main__":
    with Publisher.unique("web") as Orders.publisher:
        ThreadingHTTPServer(("127.0.0.1", 8000), Orders).serve_forever()

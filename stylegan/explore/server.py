"""The page's server: for this computer alone, and for no page but its own."""

import contextlib
import json
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, TypeVar

from stylegan.explore.page import Answer, Page
from stylegan.explore.scene import Scene
from stylegan.messages import reason_of

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")  # of this computer; a page of another name that leads here gets nothing
PORTS = range(7860, 7960)  # of which the first free one is taken
LARGEST_REQUEST = 32 * 2**20  # bytes: a picture of 20 MB in base64, and the controls
PATIENCE = 30  # seconds, that a browser may take to send what it announced
FOLDER = Path(__file__).parent
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
Place = TypeVar("Place")


class Refused(Exception):
    """A request that is not answered: the status and a sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """One request: a file of the page, or a question, whose answer is a JSON object for each
    line."""

    server: "Server"
    timeout = PATIENCE
    server_version, sys_version = "stylegan", ""

    def do_GET(self) -> None:
        try:
            name, kind = self.found(FILES)
        except Refused as error:
            self.refuse(error.status, str(error))
        else:
            self.start(HTTPStatus.OK, kind)
            self.wfile.write((FOLDER / name).read_bytes())

    def do_POST(self) -> None:
        try:
            answer = self.found(self.server.page.answers)
            with contextlib.closing(answer(self.asked())) as parts:
                first = next(parts)
                self.start(HTTPStatus.OK, "application/x-ndjson")
                self.tell(first)
                self.tell_all(parts)
        except Refused as error:
            self.refuse(error.status, str(error))
        except (ConnectionError, TimeoutError):
            raise  # nobody is there to be told
        except (ValueError, OSError) as error:
            self.refuse(HTTPStatus.BAD_REQUEST, reason_of(error))

    def found(self, places: Mapping[str, Place]) -> Place:
        """What is at the request's address, for this page alone."""
        self.check_sender()
        place = places.get(self.path.partition("?")[0])
        if place is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        return place

    def tell_all(self, parts: Iterator[Answer]) -> None:
        """The other parts of an answer; an error is the last one."""
        try:
            for part in parts:
                self.tell(part)
        except (ConnectionError, TimeoutError):
            raise
        except (ValueError, OSError) as error:
            self.tell({"error": reason_of(error)})

    def check_sender(self) -> None:
        """Answers go to this page alone: its own scripts, and whoever types its address.

        A name other than this computer's is a foreign page whose DNS leads here; another `Origin`
        or `Sec-Fetch-Site` is one that the user has open beside this one.
        """
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].partition(":")[0] not in NAMES:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, f"this is {' or '.join(NAMES)}")
        own = f"http://{hosts[0]}"
        origins = self.headers.get_all("Origin", [] if self.command == "POST" else [own])
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        typed = site == "none" and self.command == "GET"
        if origins != [own] or not (typed or site == "same-origin"):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "only this page's own requests are answered; type its address to open it",
            )

    def asked(self) -> Mapping[str, Any]:
        """The JSON object of a request."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 10):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request needs a length")
        if int(length) > LARGEST_REQUEST:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"more than {LARGEST_REQUEST >> 20} MiB are too much",
            )
        try:
            asked = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "the request is not a JSON object")
        return asked

    def start(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def tell(self, part: Answer) -> None:
        self.wfile.write(json.dumps(part).encode() + b"\n")

    def refuse(self, status: HTTPStatus, message: str) -> None:
        self.start(status, "application/x-ndjson")
        self.tell({"error": message})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""


class Server(ThreadingTCPServer):
    """Serves a page until it is closed; then connections are cut and threads have ended."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.connections: set[socket.socket] = set()
        super().__init__((HOST, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What goes wrong with a request. A browser that went away is none of it."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """End the server, whatever browsers still wait for."""
        self.shutdown()
        self.page.close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()  # waits for the threads


@contextmanager
def serving(scene: Scene, *, port: int | None = None, browser: bool = False) -> Iterator[str]:
    """The address of the page, which is there until the end; `port` None takes a free one.

    OSError if it cannot be used. Nothing is kept of what users bring.
    """
    server = bound(Page(scene), PORTS if port is None else [port])
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="explorer")
    thread.start()
    try:
        address = f"http://{HOST}:{server.server_address[1]}/"
        if browser:
            webbrowser.open(address)
        yield address
    finally:
        server.close()
        thread.join()


def bound(page: Page, ports: range | list[int]) -> Server:
    """A server at the first port that is free."""
    for port in ports:
        try:
            return Server(page, port)
        except OSError as error:
            if port == ports[-1]:
                which = f"port {port}" if len(ports) == 1 else f"no port from {ports[0]} to {port}"
                cannot = "cannot be used" if len(ports) == 1 else "can be used"
                raise OSError(
                    f"{which} of {HOST} {cannot} ({error.strerror}); choose another with --port"
                ) from error
    raise AssertionError("no ports were given")

"""The page's server, which answers requests of this page on this computer only."""

import contextlib
import json
import os
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import TypeVar

from stylegan.explore.page import Answer, Page
from stylegan.utils.memory import is_out_of_memory
from stylegan.utils.text import error_reason

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")  # accepted host names; others may be a foreign page's DNS entry
PORTS = range(7860, 7960)  # the first free one is used
MAX_REQUEST = 32 * 2**20  # bytes: an image of 20 MB in base64, and the controls
FOLDER = Path(__file__).parent
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/engine.js": ("server.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
T = TypeVar("T")
STATUSES: Mapping[type[Exception], int] = {PermissionError: 403, FileNotFoundError: 404}


class Handler(BaseHTTPRequestHandler):
    """Handles a request for a file of the page, or for JSON objects, one per line."""

    server: "Server"
    begun = False  # whether the response has begun
    timeout = 5  # seconds without a byte; a server that ends waits as long for idle connections
    server_version = "stylegan"
    sys_version = ""

    def do_GET(self) -> None:
        with self.refusing():
            name, kind = self.own(FILES)
            self.start(200, kind)
            self.wfile.write((FOLDER / name).read_bytes())

    def do_POST(self) -> None:
        with self.refusing():
            answer = self.own(self.server.page.answers)
            length = int(self.headers.get("Content-Length", 0))
            if not 0 <= length <= MAX_REQUEST:
                limit = f"{MAX_REQUEST >> 20} MiB"
                raise ValueError(f"a request must have at most {limit}, got {length:,} bytes")
            if not isinstance(values := json.loads(self.rfile.read(length)), dict):
                raise ValueError(f"a request must be a JSON object, got {type(values).__name__}")
            with contextlib.closing(answer(values)) as parts:
                for part in parts:
                    self.tell(200, part)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Report errors to the page, with a status unless the response has begun."""
        try:
            yield
        except (ValueError, OSError, RuntimeError, MemoryError) as error:
            full = is_out_of_memory(error)
            if not full and not isinstance(error, ValueError | OSError | RecursionError):
                raise
            reason = error_reason(error, line=0 if full else None)
            reason = f"the device is out of memory: {reason}" if full else reason
            self.tell(STATUSES.get(type(error), 400), {"error": reason})

    def own(self, places: Mapping[str, T]) -> T:
        """The resource at the request's address. Raises OSError for requests of other pages."""
        # Another host name: a foreign page whose DNS entry points here. Another `Origin`: a page
        # that is open in another tab.
        host = self.headers.get("Host", "")
        if host.partition(":")[0] not in NAMES:
            raise PermissionError(f"host must be {' or '.join(NAMES)}")
        origin = f"http://{host}"
        if self.headers.get("Origin", origin if self.command == "GET" else "") != origin:
            raise PermissionError("only this page's own requests are answered")
        if self.path not in places:
            raise FileNotFoundError("there is nothing at this address")
        return places[self.path]

    def start(self, status: int, kind: str) -> None:
        self.begun = True
        self.send_response(status)
        for name, value in {"Content-Type": kind, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def tell(self, status: int, part: Answer) -> None:
        if not self.begun:
            self.start(status, "application/x-ndjson")
        self.wfile.write(json.dumps(part).encode() + b"\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal belongs to the user."""


class Server(ThreadingHTTPServer):
    """Serves a page. Closing it joins its threads: PyTorch aborts if Python exits before them."""

    daemon_threads = False
    allow_reuse_address = os.name == "posix"  # on Windows it lets two servers have one port
    request_queue_size = 128  # a browser opens many connections at a time; more are reset

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        super().__init__((HOST, port), Handler)

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Report errors, except that a browser has disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


@contextmanager
def serving(page: Page, *, port: int | None = None, browser: bool = False) -> Iterator[str]:
    """Serve the page at the yielded address, on the first free port if `port` is None."""
    for place in PORTS if port is None else [port]:
        try:
            server = Server(page, place)
            break
        except OSError as error:
            reason = error.strerror
    else:
        raise OSError(
            f"port {place} of {HOST} cannot be used ({reason}); choose another with --port"
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="explorer")
    thread.start()
    try:
        address = f"http://{HOST}:{server.server_address[1]}/"
        if browser:
            webbrowser.open(address)
        yield address
    finally:
        server.shutdown()
        page.closing.set()
        server.server_close()
        thread.join()

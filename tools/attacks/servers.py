"""Servers of files that are not as they should be."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
Send = Callable[[bytes], None]


def endless(send: Send) -> None:
    send(HEAD + b"\r\n")
    while True:
        send(bytes(2**16))


def slow(send: Send) -> None:
    send(HEAD + b"Content-Length: 100000\r\n\r\n")
    while True:
        send(b"\0")
        time.sleep(1)


def silent(send: Send) -> None:
    time.sleep(900)


def silent_later(send: Send) -> None:
    send(HEAD + b"Content-Length: 9\r\n\r\n")
    time.sleep(900)


def moved(place: str) -> Callable[[Send], None]:
    head = f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
    return lambda send: send(head.encode())


def said(content: bytes) -> Callable[[Send], None]:
    return lambda send: send(content)


BEHAVIOURS: dict[str, Callable[[Send], None]] = {
    "silent": silent,
    "silent after the head": silent_later,
    "endless": endless,
    "slow": slow,
    "a circle": moved("/g-01234567.pt"),
    "to a file": moved("file:///etc/passwd"),
    "to no protection": moved("http://localhost/x"),
    "nowhere": moved("https://[/"),
    "404": said(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
    "500": said(b"HTTP/1.1 500 \x1b[31m\r\nContent-Length: 0\r\n\r\n"),
    "cut": said(HEAD + b"Content-Length: 1000\r\n\r\nabc"),
    "other content": said(HEAD + b"Content-Length: 3\r\n\r\nabc"),
    "odd length": said(HEAD + b"Content-Length: -x\r\n\r\nabc"),
    "huge length": said(HEAD + b"Content-Length: 99999999999999\r\n\r\nabc"),
    "not HTTP": said(os.urandom(5000)),
    "nothing": said(b""),
    "many fields": said(HEAD + b"X: y\r\n" * 100_000),
    "odd chunks": said(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc"),
}


@contextlib.contextmanager
def answering(behaviour: str, certificate: Path) -> Iterator[int]:
    """The port of localhost at which a process of its own behaves so, by https."""
    key = certificate.with_suffix(".key")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    names = ["subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        pid = os.fork()
        if pid == 0:
            try:
                serve(server, context, BEHAVIOURS[behaviour])
            finally:
                os._exit(0)
        try:
            yield server.getsockname()[1]
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def serve(server: socket.socket, context: ssl.SSLContext, behave: Callable[[Send], None]) -> None:
    while True:
        connection, _ = server.accept()
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(connection, server_side=True) as sent,
        ):
            sent.recv(2**16)
            behave(sent.sendall)

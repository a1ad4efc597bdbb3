"""HTTP/1.1 as bytes on a socket: what was sent, split where a test likes, and what came back."""

import contextlib
import hashlib
from dataclasses import dataclass

KEY = "a-key-of-the-tests"


@dataclass
class Answer:
    """One answer: informational ones that came before it, its status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes
    informed: list[int]


class Wire:
    """One connection, over whatever socket."""

    def __init__(self, connection):
        self.socket = connection
        self._read = bytearray()

    def send(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece)

    def _more(self):
        data = self.socket.recv(1 << 16)
        self._read += data
        return data

    def _line_end(self):
        while b"\r\n\r\n" not in self._read:
            if not self._more():
                raise EOFError(f"closed after {self._read[:200]!r}")
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return bytes(head).decode("latin-1")

    def _exactly(self, count):
        while len(self._read) < count:
            if not self._more():
                raise EOFError(f"closed, {count - len(self._read)} bytes are missing")
        body = bytes(self._read[:count])
        del self._read[:count]
        return body

    def answer(self, method="GET"):
        informed = []
        while True:
            status_line, *lines = self._line_end().split("\r\n")
            status = int(status_line.split(" ")[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if status >= 200:
                break
            informed.append(status)
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"", informed)
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self._chunks(), informed)
        return Answer(status, headers, self._exactly(int(headers["content-length"])), informed)

    def _chunks(self):
        body = b""
        while True:
            while b"\r\n" not in self._read:
                assert self._more()
            size, _, self._read = self._read.partition(b"\r\n")
            body += self._exactly(int(size, 16))
            assert self._exactly(2) == b"\r\n"
            if int(size, 16) == 0:
                return body

    def read_some(self, count):
        """Read some bytes; they are the first of the next answer."""
        self._read += self.socket.recv(count)

    def rest(self):
        """Everything until the server closes."""
        with contextlib.suppress(ConnectionResetError):
            while self._more():
                pass
        return bytes(self._read)

    def is_open(self):
        """Whether the connection still answers."""
        try:
            self.send(head("GET", "/probe/empty"))
            return self.answer().status == 200
        except (EOFError, ConnectionError):
            return False


def head(method, path, *headers, version="1.1", host=True):
    """A request's head, with the key of the tests."""
    lines = [f"{method} {path} HTTP/{version}", f"x-api-key: {KEY}", *(["host: x"] if host else []), *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def post(path, body, *headers):
    """A whole POST with a declared length."""
    return head("POST", path, f"content-length: {len(body)}", *headers) + body


def chunked(body, size):
    """A body in chunks."""
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def content(count, seed=0):
    """Bytes that are not the same anywhere."""
    block = b"".join(hashlib.sha256(b"%d %d" % (seed, place)).digest() for place in range(min(count, 8192) // 32 + 1))
    whole = block * (count // len(block) + 1)
    marked = bytearray(whole[:count])
    for place in range(0, count - 8, 4096):
        marked[place : place + 8] = place.to_bytes(8, "big")
    return bytes(marked)


def digest(body):
    return hashlib.sha256(body).hexdigest().encode()

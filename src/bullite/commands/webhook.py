"""Webhooks: HTTP requests that are signed, bounded, and not sent to private addresses."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import io
import ipaddress
import json
import queue
import re
import socket
import ssl
import string
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

from ..core.backoff import RetryLater

SIGNATURE, DELIVERY = "Bullite-Signature", "Bullite-Delivery"
TOLERANCE = 300.0
"""Seconds by which the time of a valid signature may differ from now."""

TIMEOUT = 30.0
MAX_TIMEOUT = 3_600.0
MAX_WAIT = 86_400.0
"""Maximum of Retry-After that is respected, in seconds."""

MAX_URL_LENGTH = 8_192
MAX_BODY = 64 * 1024
"""Bytes of a response's body that are kept."""

MAX_HEAD = 64 * 1024
"""Bytes that are read of a response's headers."""

MAX_BODY_READ = 1024 * 1024
"""Bytes that are read for a body: with chunked encoding more than its size."""

MAX_ADDRESSES = 4
"""Addresses of one host that are tried."""

MAX_QUERIES = 32
"""DNS queries at a time: a query cannot be cancelled when its deadline has passed."""

_CHUNK = 8_192
_PORTS = {"http": 80, "https": 443}
_RETRYABLE = frozenset({408, 425, 429})
_WITH_RETRY_AFTER = frozenset({429, 503})
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te"}
    | {"trailer", SIGNATURE.lower(), DELIVERY.lower()}
)
"""Headers that control the framing of the request, or that this module sets."""

_PRINTABLE = string.ascii_letters + string.digits + string.punctuation
_METHOD = re.compile(r"[A-Z]{1,20}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[ -~\xa0-\xff]*")

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    # Global to some versions of `ipaddress`, or the metadata service of a cloud.
    for network in ("192.0.0.0/24", "168.63.129.16/32", "3fff::/20")
)

_queries = threading.BoundedSemaphore(MAX_QUERIES)


class WebhookFailed(RetryLater):
    """A request was refused, got no response, or an unsuccessful one; the text says which."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.is_final = is_final
        """Whether a retry would fail in the same way."""


class TooMuchData(OSError):
    """A peer sent more bytes than are read."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """An HTTP request to be sent."""

    url: str
    method: str = "POST"
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = TIMEOUT
    """Seconds for everything: DNS, connecting, sending, and the whole response."""
    secret: bytes | None = field(default=None, repr=False)
    allow_private: bool = False
    id: tuple[str, ...] = ()
    """Identifies repeated deliveries for the receiver; any characters."""
    now: Callable[[], float] = time.time

    @classmethod
    def of(cls, data: Mapping[str, Any], **options: Any) -> Self:
        """Return the request that a job's data describes."""
        return cls(
            url=data["url"],
            method=data.get("method", "POST"),
            body=_bytes_of(data.get("body")),
            headers=data.get("headers", {}),
            timeout=data.get("timeout") or TIMEOUT,
            **options,
        )


def _bytes_of(body: Any) -> bytes:
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


class WebResponse(NamedTuple):
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    """The first MAX_BODY bytes."""


def deliver(request: WebRequest) -> WebResponse:
    """Send a request. Raise `WebhookFailed` unless the response is a success."""
    response = call(request)
    status = response.status
    if 200 <= status < 300:
        return response
    hint = ", and redirects are not followed" if 300 <= status < 400 else ""
    raise WebhookFailed(
        f"{_authority_of(request.url).host} answered {status}{hint}",
        status=status,
        retry_after=_retry_after(response, request.now()),
        is_final=400 <= status < 500 and status not in _RETRYABLE,
    )


def call(request: WebRequest) -> WebResponse:
    """Send a request and return any response. Raise `WebhookFailed` if there is none."""
    authority, headers = check(request)
    deadline = time.monotonic() + request.timeout
    try:
        with _connect(authority, request.allow_private, deadline) as sock:
            return _exchange(sock, deadline, request, authority, headers)
    except WebhookFailed:
        raise
    except Exception as error:  # http.client raises many types for malformed responses
        problem = _problem(error, request.timeout)
        raise WebhookFailed(f"{authority.host} {problem}") from error


def check(request: WebRequest) -> tuple[_Authority, dict[str, str]]:
    """Return where a request goes and its headers. Raise `WebhookFailed` if it is not allowed."""
    authority = _authority_of(request.url)
    headers = _headers(request, authority)
    if not 0 < request.timeout <= MAX_TIMEOUT:
        raise _refused(f"the timeout must be more than 0 and at most {MAX_TIMEOUT:g} s")
    return authority, headers


def _refused(why: str) -> WebhookFailed:
    return WebhookFailed(f"The call is refused: {why}", is_final=True)


def _problem(error: Exception, timeout: float) -> str:
    match error:
        case TimeoutError():
            return f"did not answer within {timeout:g} s"
        case socket.gaierror():
            return f"could not be found: {error.strerror}"
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"could not be spoken to over TLS: {error.reason or 'it broke off'}"
        case TooMuchData():
            return "sent more headers than are read"
        case ConnectionRefusedError():
            return "refused the connection"
        case ConnectionError():
            return "broke off the connection"
        case OSError():
            return f"could not be reached: {error.strerror or 'no reason is known'}"
        case _:
            return "did not answer in proper HTTP"


# --- signatures ----------------------------------------------------------------------------------


def sign(secret: bytes, body: bytes, at: float) -> str:
    """Return the signature header, which proves the sender and the time of a body."""
    moment = int(at)
    return f"t={moment},v1={_digest(secret, body, str(moment))}"


def verify_signature(
    secret: bytes,
    body: bytes,
    header: str,
    tolerance: float = TOLERANCE,
    now: Callable[[], float] = time.time,
) -> bool:
    """Return whether a body was signed with the secret, at most `tolerance` seconds ago."""
    pairs = [part.strip().partition("=") for part in header.split(",")]
    moments = [value for name, _, value in pairs if name == "t"]
    if not secret or len(moments) != 1 or not re.fullmatch(r"[0-9]{1,12}", moments[0]):
        return False
    if abs(now() - int(moments[0])) > tolerance:
        return False
    right = _digest(secret, body, moments[0]).encode()
    given = [value.encode(errors="replace") for name, _, value in pairs if name == "v1"]
    return any(hmac.compare_digest(right, one) for one in given)


def _digest(secret: bytes, body: bytes, moment: str) -> str:
    return hmac.new(secret, f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


# --- requests ------------------------------------------------------------------------------------


class _Authority(NamedTuple):
    """Where a request goes: the parts of its URL."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def host_and_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def _authority_of(url: str) -> _Authority:
    if len(url) > MAX_URL_LENGTH:
        raise _refused(f"the URL is longer than {MAX_URL_LENGTH} characters")
    if not url.isprintable() or " " in url:
        raise _refused("the URL holds spaces or control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refused("the URL cannot be understood") from None
    if parts.scheme not in _PORTS:
        raise _refused("the URL must begin with http:// or https://")
    if "@" in parts.netloc:
        raise _refused("the URL holds a user or a password; send them in a header")
    if not host or port == 0:
        raise _refused("the URL names no host, or the port 0")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Authority(
        parts.scheme,
        _checked_host(host),
        port or _PORTS[parts.scheme],
        quote(target, safe=_PRINTABLE),
    )


def _checked_host(host: str) -> str:
    try:
        if ":" in host and "%" not in host:
            return str(ipaddress.IPv6Address(host))
        name = host.encode("idna").decode("ascii")
    except ValueError:
        raise _refused("the URL's host is no name and no address") from None
    if not _HOST.fullmatch(name):
        raise _refused("the URL's host is no name and no address")
    return name


def _headers(request: WebRequest, authority: _Authority) -> dict[str, str]:
    if not _METHOD.fullmatch(request.method):
        raise _refused("the method must be a word in capital letters, such as POST")
    given = {name.lower() for name in request.headers}
    if reserved := given & _RESERVED:
        raise _refused(f"the header {min(reserved)} cannot be chosen")
    usual = {"User-Agent": "bullite", "Content-Type": "application/json"}
    headers = {name: value for name, value in usual.items() if name.lower() not in given}
    headers |= request.headers
    headers |= {"Host": authority.host_and_port, "Connection": "close"}
    if request.id:
        headers[DELIVERY] = ":".join(quote(part, safe="@", errors="replace") for part in request.id)
    if request.secret is not None:
        if not request.secret:
            raise _refused("the secret is empty")
        headers[SIGNATURE] = sign(request.secret, request.body, request.now())
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise _refused("a header holds characters that no header may hold")
    return headers


# --- connections ---------------------------------------------------------------------------------


def is_public(address: str) -> bool:
    """Return whether an IP address is one host's on the public internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        # A NAT64 gateway connects to the embedded IPv4 address.
        if found in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)))
        if found.sixtofour is not None:
            return is_public(str(found.sixtofour))
        if found not in _UNICAST:
            return False
    if any(found in network for network in _NOT_PUBLIC):
        return False
    return found.is_global and not found.is_multicast


def names_private_address(url: str) -> bool:
    """Return whether the host in a URL is a private address; names are not resolved."""
    host = _authority_of(url).host.rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return False
    return not all(is_public(str(address[0])) for *_, address in found)


_Address = tuple[int, int, int, Any]
"""Family, type and protocol of a socket, and the address to connect it to."""


def _connect(authority: _Authority, allow_private: bool, deadline: float) -> socket.socket:
    """Resolve a host once, check its addresses, and connect to one of them."""
    found = _resolve(authority, deadline)
    # A private address among public ones is an attack or a mistake: connect to none.
    if not allow_private and not all(is_public(address[0]) for *_, address in found):
        raise _refused(
            f"{authority.host} is at a private address; allow those with: "
            "queuectl config set allow_private_webhooks true"
        )
    sock = _connect_to_one(found[:MAX_ADDRESSES], deadline)
    if authority.scheme == "http":
        return sock
    try:
        sock.settimeout(seconds_until(deadline))
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context.wrap_socket(sock, server_hostname=authority.host.rstrip("."))
    except BaseException:
        sock.close()
        raise


def _connect_to_one(found: list[_Address], deadline: float) -> socket.socket:
    problem = OSError()
    for number, (family, kind, protocol, address) in enumerate(found):
        # Divide the time: an address that does not reply must leave some for the next ones.
        timeout = seconds_until(deadline) / (len(found) - number)
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            problem = error
            continue
        try:
            sock.settimeout(timeout)
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            problem = error
    raise problem


def _resolve(authority: _Authority, deadline: float) -> list[_Address]:
    """Return the addresses of a host. A DNS query has no timeout, so it runs in a thread."""
    results: queue.SimpleQueue[list[_Address] | OSError] = queue.SimpleQueue()
    queries = _queries

    def query() -> None:
        try:
            found = socket.getaddrinfo(authority.host, authority.port, type=socket.SOCK_STREAM)
            results.put([(family, kind, protocol, at) for family, kind, protocol, _, at in found])
        except OSError as error:
            results.put(error)
        except ValueError:
            results.put(socket.gaierror(socket.EAI_NONAME, "it is no name"))
        finally:
            queries.release()

    if not queries.acquire(timeout=seconds_until(deadline)):
        raise TimeoutError
    try:
        threading.Thread(target=query, name="bullite-lookup", daemon=True).start()
    except RuntimeError as error:
        queries.release()
        raise OSError("no thread can be started") from error
    try:
        result = results.get(timeout=seconds_until(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(result, OSError):
        raise result
    return result


# --- requests over a socket------------------------------------------------------------------------


def seconds_until(deadline: float) -> float:
    """Return the seconds until a deadline. Raise TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class BoundedReader(io.RawIOBase):
    """Reads from a socket until a deadline, at most `most` bytes."""

    def __init__(self, sock: socket.socket, deadline: float, most: int) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self.left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.left <= 0:
            raise TooMuchData
        self._sock.settimeout(seconds_until(self._deadline))
        count = self._sock.recv_into(memoryview(buffer)[: self.left])
        self.left -= count
        return count


class _BoundedSocket:
    """The part of a socket that `http.client` uses, with a deadline for each operation."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self.reader = BoundedReader(sock, deadline, MAX_HEAD)

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._sock.settimeout(seconds_until(self._deadline))
            left = left[self._sock.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self.reader)

    def close(self) -> None:
        """Do nothing: `http.client` calls it before the body is read; `call` closes the socket."""


def _exchange(
    sock: socket.socket,
    deadline: float,
    request: WebRequest,
    authority: _Authority,
    headers: Mapping[str, str],
) -> WebResponse:
    bounded = _BoundedSocket(sock, deadline)
    connection = http.client.HTTPConnection(authority.host, authority.port)
    connection.auto_open = 0
    connection.sock = bounded
    # A server that closes early may have sent its response already.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(request.method, authority.target, request.body or None, headers)
    with connection.getresponse() as response:
        bounded.reader.left = MAX_BODY_READ
        return WebResponse(response.status, _headers_of(response), _body_of(response))


def _headers_of(response: http.client.HTTPResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        known = headers.get(name.lower())
        headers[name.lower()] = value if known is None else f"{known}, {value}"
    return headers


def _body_of(response: http.client.HTTPResponse) -> bytes:
    """Return the first bytes of a body.

    A body that breaks off is returned as far as it came: the request has been received.
    """
    body = b""
    try:
        while len(body) < MAX_BODY and (chunk := response.read(_CHUNK)):
            body += chunk
    except TimeoutError:
        raise
    except http.client.IncompleteRead as error:
        body += error.partial
    except (OSError, http.client.HTTPException, ValueError, ArithmeticError):
        pass  # the connection was cut, or a chunk size is malformed
    return body[:MAX_BODY]


def _retry_after(response: WebResponse, now: float) -> float | None:
    text = response.headers.get("retry-after", "").strip()
    if response.status not in _WITH_RETRY_AFTER or not text:
        return None
    if re.fullmatch(r"[0-9]+", text):
        return min(float(text), MAX_WAIT)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(max(moment.timestamp() - now, 0.0), MAX_WAIT)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None

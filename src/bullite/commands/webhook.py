"""Calls a URL, safely: signed, bounded, never to a private address unless allowed."""

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
"""Seconds that a signature may be old, or ahead, and still be taken."""

TIMEOUT = 30.0
MAX_TIMEOUT = 3_600.0
MAX_WAIT = 86_400.0
"""Seconds that a server may ask us to wait before the next try."""

MAX_URL_LENGTH = 8_192
MAX_BODY = 64 * 1024
"""Bytes that are kept of an answer."""

MAX_HEAD = 64 * 1024
"""Bytes that are read before an answer's body begins."""

MAX_WIRE = 1024 * 1024
"""Bytes that are read to get at the body: small chunks take more room than what is in them."""

MAX_ADDRESSES = 4
"""Addresses of one host that are tried."""

MAX_LOOKUPS = 32
"""Questions to the name service at a time: those that nobody waits for any more cannot be ended."""

_PIECE = 8_192
_PORTS = {"http": 80, "https": 443}
_TRY_AGAIN = frozenset({408, 425, 429})
_SAYS_WHEN = frozenset({429, 503})
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te"}
    | {"trailer", SIGNATURE.lower(), DELIVERY.lower()}
)
"""Headers that decide how a message is read, or that we vouch for."""

_PRINTABLE = string.ascii_letters + string.digits + string.punctuation
_METHOD = re.compile(r"[A-Z]{1,20}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[ -~\xa0-\xff]*")

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    # Called global by some versions of `ipaddress`, or the door of a cloud to its own machines.
    for network in ("192.0.0.0/24", "168.63.129.16/32", "3fff::/20")
)

_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)


class WebhookFailed(RetryLater):
    """A call was refused, got no answer, or one that is no success; the text says which."""

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
        """Whether another try would end the same way."""


class TooMuch(OSError):
    """Somebody said more than is listened to."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """What is to be sent, and where to."""

    url: str
    method: str = "POST"
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = TIMEOUT
    """Seconds for all of it: finding the host, connecting, sending, and the whole answer."""
    secret: bytes | None = field(default=None, repr=False)
    allow_private: bool = False
    id: tuple[str, ...] = ()
    """What the receiver knows a repeated delivery by, in any characters."""
    now: Callable[[], float] = time.time

    @classmethod
    def of(cls, data: Mapping[str, Any], **conditions: Any) -> Self:
        """The call that a job's data tells of."""
        return cls(
            url=data["url"],
            method=data.get("method", "POST"),
            body=_bytes_of(data.get("body")),
            headers=data.get("headers", {}),
            timeout=data.get("timeout") or TIMEOUT,
            **conditions,
        )


def _bytes_of(body: Any) -> bytes:
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


class WebAnswer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Their names are in lower case."""
    body: bytes
    """Or its head."""


def deliver(request: WebRequest) -> WebAnswer:
    """Call a URL; anything but a success raises `WebhookFailed`."""
    answer = call(request)
    status = answer.status
    if 200 <= status < 300:
        return answer
    hint = ", and redirects are not followed" if 300 <= status < 400 else ""
    raise WebhookFailed(
        f"{_place_of(request.url).host} answered {status}{hint}",
        status=status,
        retry_after=_retry_after(answer, request.now()),
        is_final=400 <= status < 500 and status not in _TRY_AGAIN,
    )


def call(request: WebRequest) -> WebAnswer:
    """Call a URL and take any answer; raise `WebhookFailed` if it is refused or none comes."""
    place, headers = check(request)
    deadline = time.monotonic() + request.timeout
    try:
        with _connect(place, request.allow_private, deadline) as sock:
            return _converse(sock, deadline, request, place, headers)
    except WebhookFailed:
        raise
    except Exception as error:  # what parses answers trusts them, and raises all kinds
        problem = _problem(error, request.timeout)
        raise WebhookFailed(f"{place.host} {problem}") from error


def check(request: WebRequest) -> tuple[_Authority, dict[str, str]]:
    """Where a call goes and with which headers; raise `WebhookFailed` if it can only be refused."""
    place = _place_of(request.url)
    headers = _headers(request, place)
    if not 0 < request.timeout <= MAX_TIMEOUT:
        raise _refused(f"the timeout must be more than 0 and at most {MAX_TIMEOUT:g} s")
    return place, headers


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
        case TooMuch():
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
    """The value of the header that tells a receiver who sent a body, and when."""
    moment = int(at)
    return f"t={moment},v1={_digest(secret, body, str(moment))}"


def verify_signature(
    secret: bytes,
    body: bytes,
    header: str,
    tolerance: float = TOLERANCE,
    now: Callable[[], float] = time.time,
) -> bool:
    """Whether who knows the secret sent this body, at most `tolerance` seconds ago."""
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


# --- what is asked for ---------------------------------------------------------------------------


class _Authority(NamedTuple):
    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def _place_of(url: str) -> _Authority:
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


def _headers(request: WebRequest, place: _Authority) -> dict[str, str]:
    if not _METHOD.fullmatch(request.method):
        raise _refused("the method must be a word in capital letters, such as POST")
    given = {name.lower() for name in request.headers}
    if reserved := given & _RESERVED:
        raise _refused(f"the header {min(reserved)} cannot be chosen")
    usual = {"User-Agent": "bullite", "Content-Type": "application/json"}
    headers = {name: value for name, value in usual.items() if name.lower() not in given}
    headers |= request.headers
    headers |= {"Host": place.authority, "Connection": "close"}
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


# --- where it goes to ----------------------------------------------------------------------------


def is_public(address: str) -> bool:
    """Whether an IP address belongs to one host that the whole internet may call."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        # A router that translates these connects to the IPv4 address inside.
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
    """Whether a URL says by itself that it leads to a private address; looks no name up."""
    host = _place_of(url).host.rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return False
    return not all(is_public(str(address[0])) for *_, address in found)


_Found = tuple[int, int, int, Any]
"""Family, kind and protocol of a socket, and the address it is to be connected to."""


def _connect(place: _Authority, allow_private: bool, deadline: float) -> socket.socket:
    """Connect to an address that was looked at, so that no second look-up can change it."""
    found = _look_up(place, deadline)
    # One that is not public among others is a trick, or a mistake: neither is to be tried out.
    if not allow_private and not all(is_public(address[0]) for *_, address in found):
        raise _refused(
            f"{place.host} is at a private address; allow those with: "
            "queuectl config set allow_private_webhooks true"
        )
    sock = _connect_to_one(found[:MAX_ADDRESSES], deadline)
    if place.scheme == "http":
        return sock
    try:
        sock.settimeout(seconds_until(deadline))
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context.wrap_socket(sock, server_hostname=place.host.rstrip("."))
    except BaseException:
        sock.close()
        raise


def _connect_to_one(found: list[_Found], deadline: float) -> socket.socket:
    problem = OSError()
    for number, (family, kind, protocol, address) in enumerate(found):
        # An address that is silent leaves time for those after it.
        patience = seconds_until(deadline) / (len(found) - number)
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            problem = error
            continue
        try:
            sock.settimeout(patience)
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            problem = error
    raise problem


def _look_up(place: _Authority, deadline: float) -> list[_Found]:
    """The addresses of a host. The question has a thread of its own: it knows no timeout."""
    answers: queue.SimpleQueue[list[_Found] | OSError] = queue.SimpleQueue()
    turns = _lookups

    def ask() -> None:
        try:
            found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
            answers.put([(family, kind, protocol, at) for family, kind, protocol, _, at in found])
        except OSError as error:
            answers.put(error)
        except ValueError:
            answers.put(socket.gaierror(socket.EAI_NONAME, "it is no name"))
        finally:
            turns.release()

    if not turns.acquire(timeout=seconds_until(deadline)):
        raise TimeoutError
    try:
        threading.Thread(target=ask, name="bullite-lookup", daemon=True).start()
    except RuntimeError as error:
        turns.release()
        raise OSError("no thread can be started") from error
    try:
        answer = answers.get(timeout=seconds_until(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


# --- the conversation ----------------------------------------------------------------------------


def seconds_until(deadline: float) -> float:
    """Seconds that are left; TimeoutError, if none are."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class BoundedReader(io.RawIOBase):
    """What a socket says until a deadline, however slowly, and of that so many bytes."""

    def __init__(self, sock: socket.socket, deadline: float, most: int) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self.left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.left <= 0:
            raise TooMuch
        self._sock.settimeout(seconds_until(self._deadline))
        taken = self._sock.recv_into(memoryview(buffer)[: self.left])
        self.left -= taken
        return taken


class _Wire:
    """As much of a socket as `http.client` uses; every use of it minds the deadline."""

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
        """Nothing: the connection is closed before the answer is read, the socket after it."""


def _converse(
    sock: socket.socket,
    deadline: float,
    request: WebRequest,
    place: _Authority,
    headers: Mapping[str, str],
) -> WebAnswer:
    wire = _Wire(sock, deadline)
    connection = http.client.HTTPConnection(place.host, place.port)
    connection.auto_open = 0
    connection.sock = wire
    # Who does not listen to the end may have answered already.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(request.method, place.target, request.body or None, headers)
    with connection.getresponse() as response:
        wire.reader.left = MAX_WIRE
        return WebAnswer(response.status, _headers_of(response), _body_of(response))


def _headers_of(response: http.client.HTTPResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        known = headers.get(name.lower())
        headers[name.lower()] = value if known is None else f"{known}, {value}"
    return headers


def _body_of(response: http.client.HTTPResponse) -> bytes:
    """The head of a body. One that breaks off still has a head: what was sent has arrived, whatever
    becomes of the rest of the answer."""
    body = b""
    try:
        while len(body) < MAX_BODY and (piece := response.read(_PIECE)):
            body += piece
    except TimeoutError:
        raise
    except http.client.IncompleteRead as error:
        body += error.partial
    except (OSError, http.client.HTTPException, ValueError, ArithmeticError):
        pass  # it is cut off here, or says that a chunk has less than no bytes
    return body[:MAX_BODY]


def _retry_after(answer: WebAnswer, now: float) -> float | None:
    text = answer.headers.get("retry-after", "").strip()
    if answer.status not in _SAYS_WHEN or not text:
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

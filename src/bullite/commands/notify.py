"""Notifications that a job has failed: by mail, a URL or a command."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import json
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid, parseaddr
from typing import Any, Literal

from ..core.backoff import RetryLater
from .runner import EXITED, TIMED_OUT, Command, CommandResult, CommandRunner, NotStarted
from .webhook import BoundedReader, WebhookFailed, WebRequest, deliver

COMMAND_TIMEOUT = 30.0
"""Seconds that a notification command may take."""

MAX_OUTPUT = 2_000
"""Characters of the end of a job's output in a notification."""

MAX_VARIABLE = 30_000
"""Characters of one variable: the kernel limits the size of an environment."""

MAX_SUBJECT = 150
MAX_REPLY = 64 * 1024
"""Bytes that are read from a mail server on one connection."""

_MAIL = re.compile(r"(?!-)[\w.+%=~!#'-]+@[^\W_](?:[\w.-]*[^\W_])?")
_URL = re.compile(r"https?://", re.IGNORECASE)

Kind = Literal["mail", "url", "command"]
Security = Literal["none", "starttls", "tls"]
RunCommand = Callable[[Command], CommandResult]
"""Runs a command to its end, blocking; raises `NotStarted`."""


class NotifyFailed(RetryLater):
    """A notification could not be sent; the text says why."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Failure:
    """The facts about a failed job that a notification contains."""

    job_id: str
    queue: str
    command: str
    """A one-line description of the job."""
    reason: str
    attempts: int
    exit_code: int | None
    failed_at: datetime
    output_tail: str = ""

    @property
    def id(self) -> tuple[str, ...]:
        """Identifies this failure, also among several of one job."""
        return self.queue, self.job_id, str(round(self.failed_at.timestamp() * 1000))

    def as_json(self) -> bytes:
        """Return the body of a webhook and the input of a command."""
        facts = asdict(self) | {
            "event": "job.failed",
            "failed_at": self.failed_at.isoformat(),
            "output_tail": self.output_tail[-MAX_OUTPUT:],
        }
        return json.dumps(facts).encode()

    def as_variables(self) -> dict[str, str]:
        """Return the environment variables of a command."""
        facts = {
            "JOB_ID": self.job_id,
            "JOB_QUEUE": self.queue,
            "JOB_REASON": self.reason,
            "JOB_COMMAND": self.command,
            "JOB_ATTEMPTS": str(self.attempts),
            "JOB_EXIT_CODE": "" if self.exit_code is None else str(self.exit_code),
        }
        return {name: _clean(value)[:MAX_VARIABLE] for name, value in facts.items()}

    def as_text(self) -> str:
        """Return the text of a mail."""
        ended = "" if self.exit_code is None else f"Exit code:  {self.exit_code}\n"
        output = self.output_tail[-MAX_OUTPUT:]
        return _clean(
            f"Job:        {self.job_id}\n"
            f"Queue:      {self.queue}\n"
            f"Command:    {self.command}\n"
            f"Reason:     {self.reason}\n"
            f"Attempts:   {self.attempts}\n"
            f"{ended}"
            f"Failed at:  {self.failed_at.isoformat()}\n"
            + (f"\nThe end of its output:\n\n{output}\n" if output else "")
        )


@dataclass(frozen=True, slots=True)
class MailServer:
    """The SMTP server that mails are sent through."""

    host: str
    port: int = 25
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sender: str = "bullite@localhost"
    security: Security = "none"
    timeout: float = 30.0
    """Seconds for one mail; resolving and connecting may take this time again."""

    @property
    def problem(self) -> str | None:
        """Reason why a login with these settings is refused; None if there is none."""
        if self.user is None or self.security != "none" or _is_this_machine(self.host):
            return None
        return (
            f"No mail is sent: the password for {self.host} would be sent unencrypted; "
            "encrypt with: queuectl config set smtp_security starttls, or tls"
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def mail_server(config: Mapping[str, Any]) -> MailServer | None:
    """Return the configured mail server; None if there is none."""
    if config["smtp_host"] is None:
        return None
    return MailServer(
        config["smtp_host"],
        config["smtp_port"],
        config["smtp_user"],
        config["smtp_password"],
        config["smtp_sender"],
        config["smtp_security"],
    )


def kind_of(target: str) -> Kind:
    """Return how a target is notified."""
    if _URL.match(target):
        return "url"
    return "mail" if _MAIL.fullmatch(target) else "command"


def send_notification(
    target: str,
    failure: Failure,
    *,
    mail: MailServer | None,
    secret: bytes | None = None,
    allow_private: bool = False,
    run: RunCommand | None = None,
) -> None:
    """Notify an e-mail address, a URL or a command of a failure.

    `run` runs a command. It must belong to the process's only `CommandRunner`: another one could
    not distinguish the processes of its commands from those of the first. Raise NotifyFailed if the
    notification could not be sent.
    """
    if not target.strip():
        raise NotifyFailed("Nobody is named who is to be told")
    kind = kind_of(target)
    if kind == "url":
        _call(target, failure, secret, allow_private)
    elif kind == "command":
        _run(target, failure, run or CommandRunner(alone=False).run)
    elif mail is None:
        raise NotifyFailed(
            "No mail server is known; name one with: queuectl config set smtp_host HOST"
        )
    elif mail.problem is not None:
        raise NotifyFailed(mail.problem)
    else:
        _send(_message(target, failure, mail), mail)


def _clean(text: str) -> str:
    """Return text without lone surrogates and zero bytes, which no environment can hold."""
    return text.encode(errors="replace").decode().replace("\0", "")


def _one_line(text: str, max_length: int) -> str:
    printable = "".join(one if one.isprintable() else " " for one in _clean(text))
    return " ".join(printable.split())[:max_length]


# --- a URL ---------------------------------------------------------------------------------------


def _call(url: str, failure: Failure, secret: bytes | None, allow_private: bool) -> None:
    request = WebRequest(
        url,
        body=failure.as_json(),
        secret=secret,
        allow_private=allow_private,
        id=failure.id,
    )
    try:
        deliver(request)
    except WebhookFailed as error:
        raise NotifyFailed(str(error), retry_after=error.retry_after) from error


# --- a command -----------------------------------------------------------------------------------


def _run(line: str, failure: Failure, run: RunCommand) -> None:
    try:
        result = run(
            Command(
                line,
                env=failure.as_variables(),
                input=failure.as_json(),
                timeout=COMMAND_TIMEOUT,
            )
        )
    except (NotStarted, OSError) as error:
        why = _one_line(str(error), 200)
        raise NotifyFailed(f"The command that was to tell could not be started: {why}") from error
    if result.succeeded:
        return
    if result.how == TIMED_OUT:
        how = f"took longer than {COMMAND_TIMEOUT:g} s"
    elif result.how == EXITED:
        how = f"ended with exit code {result.exit_code}"
    else:
        how = f"was ended by signal {result.signal}"
    raise NotifyFailed(f"The command that was to tell {how}")


# --- mail ----------------------------------------------------------------------------------------


def _message(target: str, failure: Failure, mail: MailServer) -> EmailMessage:
    message = EmailMessage()
    subject = f"Job {failure.job_id} of {failure.queue} failed: {failure.reason}"
    name, _, domain = parseaddr(mail.sender)[1].rpartition("@")
    if not name or not domain:
        raise NotifyFailed("The sender of mail must be an address, such as queue@example.com")
    try:
        message["From"] = mail.sender
        message["To"] = target
        message["Subject"] = _one_line(subject, MAX_SUBJECT)
        message["Date"] = format_datetime(failure.failed_at)
        message["Message-ID"] = make_msgid(domain=domain)
        # Keeps automatic responders from replying.
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(failure.as_text(), cte="quoted-printable")
    except (ValueError, IndexError, MessageError) as error:
        raise NotifyFailed("The mail could not be written: an address is not valid") from error
    return message


def _send(message: EmailMessage, mail: MailServer) -> None:
    try:
        connection = _connect(mail)
        try:
            _log_in(connection, mail)
            connection.send_message(message)
            # The server has accepted the mail: an error of QUIT does not matter.
            with contextlib.suppress(OSError, smtplib.SMTPException):
                connection.quit()
        finally:
            connection.close()
    except (OSError, ValueError, smtplib.SMTPException) as error:
        # Not chained: the traceback would show what was sent, such as the password.
        raise NotifyFailed(f"The mail server {mail.host} {_problem(error)}") from None


class _Bounded(smtplib.SMTP):
    """An SMTP connection with a deadline for all replies together, and a limit of their size."""

    def __init__(self, mail: MailServer, **options: Any) -> None:
        self.deadline = time.monotonic() + mail.timeout
        super().__init__(
            mail.host, mail.port, local_hostname=_local_name(), timeout=mail.timeout, **options
        )

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(BoundedReader(self.sock, self.deadline, MAX_REPLY))
        return super().getreply()


class _BoundedTls(_Bounded, smtplib.SMTP_SSL):
    """The same over TLS from the first byte."""


def _connect(mail: MailServer) -> _Bounded:
    if mail.security == "tls":
        return _BoundedTls(mail, context=ssl.create_default_context())
    return _Bounded(mail)


def _log_in(connection: _Bounded, mail: MailServer) -> None:
    if mail.security == "starttls":
        connection.starttls(context=ssl.create_default_context())
    if mail.user is not None:
        connection.login(mail.user, mail.password or "")


def _local_name() -> str:
    # Not getfqdn(): a DNS query has no timeout.
    name = socket.gethostname()
    return name if "." in name else "[127.0.0.1]"


def _problem(error: Exception) -> str:
    match error:
        case smtplib.SMTPAuthenticationError():
            return f"refused the user or the password ({error.smtp_code})"
        case smtplib.SMTPRecipientsRefused():
            code, text = next(iter(error.recipients.values()))
            return f"refused the receiver: {code} {_reply_text(text)}"
        case smtplib.SMTPResponseException():
            return f"refused the mail: {error.smtp_code} {_reply_text(error.smtp_error)}"
        case smtplib.SMTPNotSupportedError():
            return f"cannot do what it is asked to: {error}"
        case smtplib.SMTPServerDisconnected() | TimeoutError():
            return "broke off the connection, or took too long"
        case smtplib.SMTPException():
            return "could not be spoken to"
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"could not be spoken to over TLS: {error.reason or 'it broke off'}"
        case OSError():
            return f"could not be reached: {error.strerror or 'no reason is known'}"
        case _:
            return "cannot be given a host, user, password or address like this"


def _reply_text(text: bytes | str) -> str:
    return _one_line(text.decode(errors="replace") if isinstance(text, bytes) else text, 200)

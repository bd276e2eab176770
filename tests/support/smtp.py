"""A mail server that keeps what it gets, and refuses or stalls when told to."""

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread


class SmtpServer(ThreadingTCPServer):
    """One server of the loopback, which speaks enough SMTP for Python's client."""

    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Talk)
        self.port: int = self.server_address[1]
        self.received: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.refuses: dict[str, str] = {}
        """An answer by verb, such as `550 no such person` to RCPT, in place of yes."""
        self.stalls = False
        """Whether it takes connections and says nothing."""
        self.ending = Event()


class Talk(StreamRequestHandler):
    """One connection."""

    server: SmtpServer

    def handle(self) -> None:
        """Answer until the client quits."""
        if self.server.stalls:
            self.server.ending.wait(30)
            return
        self._say("220 test.example ready")
        for line in self.rfile:
            verb = line.split()[0].decode().upper()
            if refusal := self.server.refuses.get(verb):
                self._say(refusal)
            elif verb == "EHLO":
                self._say("250-test.example", "250 8BITMIME")
            elif verb == "DATA":
                self._say("354 go on")
                self._keep()
                self._say("250 kept")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                if verb == "RCPT":
                    address = line.decode().partition("<")[2].partition(">")[0]
                    self.server.recipients.append(address)
                self._say("250 fine")

    def _keep(self) -> None:
        lines = iter(self.rfile.readline, b".\r\n")
        content = b"".join(line.removeprefix(b".") for line in lines)
        self.server.received.append(message_from_bytes(content, policy=policy.default))

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


@contextmanager
def smtp_server() -> Iterator[SmtpServer]:
    """Run a mail server."""
    with SmtpServer() as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            server.shutdown()
            thread.join(10)

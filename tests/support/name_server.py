"""A real DNS server on the loopback: TXT records that a test writes, and nothing else."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


@dataclass
class NameServer:
    """Its port, and what it says of names."""

    port: int
    texts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The server as the configuration has it."""
        return (("127.0.0.1", self.port),)

    def answer(self, wire: bytes) -> bytes:
        asked = dns.message.from_wire(wire)
        reply = dns.message.make_response(asked)
        reply.flags |= dns.flags.AA
        name = asked.question[0].name
        found = self.texts.get(name.to_text(omit_final_dot=True))
        if found is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        else:
            quoted = [f'"{text}"' for text in found]
            reply.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *quoted))
        return reply.to_wire()


@contextmanager
def serving_names() -> Iterator[NameServer]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        server = NameServer(own.getsockname()[1])

        def serve() -> None:
            while True:
                wire, sender = own.recvfrom(4096)
                if not wire:
                    return
                own.sendto(server.answer(wire), sender)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield server
        finally:
            own.sendto(b"", own.getsockname())
            thread.join(5)

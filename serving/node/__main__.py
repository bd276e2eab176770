"""`python -m serving.node`: one engine and the proxy before it, as its standard input says."""

import argparse
import sys

import uvloop

from serving.contract.codec import ContractError, decode
from serving.contract.node import NodeLaunch
from serving.node.supervisor import NodeError, become_leader, supervise


def main() -> None:
    """Run until the engine ends, and exit with its status; 2 for a launch that is none, 1 where
    the engine cannot start or no port is free."""
    grammar = argparse.ArgumentParser(prog="python -m serving.node", description=__doc__)
    grammar.epilog = "Reads one JSON object from standard input; see serving/contract/node.py."
    grammar.parse_args()
    try:
        launch = decode(sys.stdin.buffer.read(), NodeLaunch)
    except ContractError as error:
        grammar.error(str(error))
    become_leader()
    try:
        status = uvloop.run(supervise(launch))
    except (NodeError, OSError) as error:
        raise SystemExit(f"NodeError: {error}") from error
    raise SystemExit(status)


if __name__ == "__main__":
    main()

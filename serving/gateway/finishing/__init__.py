"""From an answer that is told whole, and is long, to the client's body: beside the loop."""

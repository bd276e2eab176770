"""The playground: the console's own server calls the gateway, as any client would."""

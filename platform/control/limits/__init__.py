"""Rate limits: what each limit tier allows, who stands in which, what operators and members set
otherwise, and how many gateways there are to share a limit while Redis is away."""

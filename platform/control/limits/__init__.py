"""Spending limits, rate limits and usage tiers of organizations, projects and API keys. Gateways
enforce them; billing counts against the spending limits."""

"""The limiter a gateway embeds: local decisions on leased grants. Never waits for accounting."""

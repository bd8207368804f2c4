"""Who may connect, what they may do, and what it may cost: for the proxy and the relays."""

"""What the page shows, as values: rates, lag, reasons, decoded messages, stories. Pure."""

"""Access: rights and quotas of keys."""

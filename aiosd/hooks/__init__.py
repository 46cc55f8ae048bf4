"""Webhooks, sent: the loop over the outbox, and the HTTP client, which is imported when there is something to send."""

"""Proves one idea at a time, with nothing outside the process, against the documents' own values."""

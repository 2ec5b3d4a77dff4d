"""Tests run against a simulated driver (tests/driver), never against patches."""

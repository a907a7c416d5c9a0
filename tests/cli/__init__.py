"""Tests of the commands for people's own files."""

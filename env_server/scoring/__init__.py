"""Scoring: replay, metrics, statistics, report."""

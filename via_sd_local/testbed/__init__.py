"""Builds testbeds: synthetic verifiers with a known best mask, made from a small model."""

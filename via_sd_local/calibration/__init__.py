"""Calibration: the search for a mask, the choice of thresholds, and the routing profile of a pair."""

"""The stages of a calibration, in order: answers, mask, recordings, costs, comparison."""

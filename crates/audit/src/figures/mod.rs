//! The figures: pure functions of a snapshot. One file a figure.

"""The frames, byte for byte."""

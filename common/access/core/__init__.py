"""Decisions about access: values in, values out."""

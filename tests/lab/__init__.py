"""Tests of the lab: recording, running, judging and showing a run."""

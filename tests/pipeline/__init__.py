"""The pipeline: its decisions without Spark, and everything together on a real Spark and proxy."""

"""The crash lab: scripted failures of real processes, their history, a verdict, a picture."""

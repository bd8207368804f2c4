"""The crash lab: scripted failures of real processes, their journal, a verdict, a picture."""

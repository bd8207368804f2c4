"""The console: a page in the browser that shows what a proxy holds, and acts on it."""

"""Property tests of the accounting."""

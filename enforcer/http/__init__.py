"""The limiter in front of HTTP applications. Decides nothing by itself."""

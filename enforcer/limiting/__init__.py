"""The limiter itself: decides from the grants in hand, asks for more in the background, and settles what was spent."""

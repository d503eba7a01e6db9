"""What callers need to wait for their tokens: the decision when to send a refused request again. Sends nothing."""

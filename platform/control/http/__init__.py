"""What every request passes and every answer holds to, whoever asks: addresses, the policy of
pages, what is said when something fails."""

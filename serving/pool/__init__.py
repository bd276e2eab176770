"""The replicas of each deployment, the queue before them and the choice among them."""

"""Forms that were sent after the session had ended are kept until the person has signed in again,
and are then shown as they were typed, never sent by themselves. For the settings, the step-up and
the console's error pages."""

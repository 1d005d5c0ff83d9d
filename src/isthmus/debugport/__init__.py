"""The debug port: routes that show what the operator's stores hold and why they did what they did."""

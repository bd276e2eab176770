"""One module per section of the console; each view asks selectors, calls services, renders."""

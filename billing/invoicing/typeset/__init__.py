"""Setting documents as PDF: a template, its fonts, and the one function that fills them."""

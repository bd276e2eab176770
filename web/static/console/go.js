// Sends the one form of a page that only passes something on.

document.querySelector("form[data-go]").submit();

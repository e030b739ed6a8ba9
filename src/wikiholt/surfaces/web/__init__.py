"""The web page: a reader's way in, with script and without; the server renders and cleans what it shows of pages."""

"""HTML pages and SVG pictures: templates, number formats and one kit of charts; knows nothing of privacy."""

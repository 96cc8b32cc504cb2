"""From content to page: sections, charts, HTML, Markdown, the terminal."""
